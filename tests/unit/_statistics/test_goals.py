# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a plan has enough samples: by the width of intervals, or by planned looks at the verdicts."""

from __future__ import annotations

import math

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._statistics import goals, verdicts
from ansible_collections.threadwise.smt.plugins.module_utils._statistics.ranks import Paired

ASSIGNMENT = {"workers": [[0], [1]], "same_as": None, "reason": None}
PLACEMENTS = {
    "smt_on": {"single": ASSIGNMENT, "one_per_core": ASSIGNMENT, "all_threads": ASSIGNMENT},
    "smt_off": {
        "single": ASSIGNMENT,
        "one_per_core": ASSIGNMENT,
        "all_threads": dict(ASSIGNMENT, same_as="one_per_core"),
    },
}
AS_FOUND = {"as_found": {"siblings": ASSIGNMENT, "cores": ASSIGNMENT, "all_threads": dict(ASSIGNMENT, same_as="cores")}}


class Better(dict):
    """Each workload's rate is better when it is higher."""

    def __missing__(self, name):
        return "higher"


BETTER = Better()


def sample(block, arm, placement, value, workload="gzip", parameter=None):
    return {
        "block": block,
        "arm": arm,
        "placement": placement,
        "workload": workload,
        "parameter": parameter,
    }, value


def measured(ratios, precision=None, **kwargs):
    precision = precision or goals.UntilPrecise(0.01, PLACEMENTS, BETTER)
    for block, ratio in enumerate(ratios):
        precision.add(*sample(block, "smt_on", "all_threads", 100.0 * 1.0001**block, **kwargs))
        precision.add(*sample(block, "smt_off", "one_per_core", 100.0 * 1.0001**block * ratio, **kwargs))
    return precision


def test_half_of_the_width_is_that_of_the_interval():
    before, after = [100.0 + block for block in range(7)], [101.0, 99.0, 103.0, 106.0, 104.0, 103.0, 108.0]
    _centre, low, high = Paired.of_values(before, after, "higher").interval(0.05)
    assert goals.half_width(Paired.of_values(before, after, "higher"), 0.05) == pytest.approx((high - low) / 2)
    assert goals.half_width(Paired.of_values(before[:5], after[:5], "higher"), 0.05) == math.inf


@pytest.mark.parametrize("effect", [0.5, 0.95, 1.0, 1.02, 3.0])
def test_the_size_of_the_effect_does_not_matter(effect):
    assert measured([effect * (1 + noise) for noise in (0, 0.002, -0.002, 0.001, 0, -0.001)]).after_block(9, 9)
    assert not measured([effect * (1 + noise) for noise in (0, 0.02, -0.02, 0.03, 0, -0.03)]).after_block(9, 9)


def test_few_blocks_are_never_enough():
    assert not measured([1.0] * (verdicts.MIN_BLOCKS_RANKED - 1)).after_block(9, 9)
    assert measured([1.0] * verdicts.MIN_BLOCKS_RANKED).after_block(9, 9)


def test_each_workload_and_each_parameter_value_must_be_precise():
    even, noisy = [1.0] * 6, [1.0, 1.1, 0.9, 1.2, 0.8, 1.0]
    precision = measured(noisy, measured(even), workload="sysbench_cpu")
    assert not precision.after_block(9, 9)
    precision.drop("sysbench_cpu")
    assert precision.after_block(9, 9)
    assert not measured(noisy, measured(even, parameter=1.0), parameter=0.5).after_block(9, 9)


def test_more_workloads_need_narrower_intervals():
    ratios = [1.0 + noise for noise in (0.008, -0.008, 0.0008, -0.0072, 0.004, -0.004)]
    assert measured(ratios).after_block(9, 9)
    many = goals.UntilPrecise(0.01, PLACEMENTS, BETTER)
    for number in range(20):
        measured(ratios, many, workload=f"own{number}")
    assert not many.after_block(9, 9)


def test_without_a_main_comparison_nothing_is_enough():
    precision = goals.UntilPrecise(0.01, PLACEMENTS, BETTER)
    assert not precision.after_block(9, 9)
    for block in range(20):
        precision.add(*sample(block, "smt_on", "single", 100.0))
    assert not precision.after_block(9, 9)


def test_when_nothing_is_switched_siblings_are_compared_with_cores():
    precision = goals.UntilPrecise(0.01, AS_FOUND, BETTER)
    for block in range(6):
        precision.add(*sample(block, "as_found", "cores", 100.0))
        precision.add(*sample(block, "as_found", "siblings", 60.0))
    assert precision.after_block(9, 9)


def test_blocks_in_which_a_side_failed_do_not_count():
    precision = measured([1.0] * 5)
    for block in range(5, 9):
        precision.add(*sample(block, "smt_on", "all_threads", 100.0))
    assert not precision.after_block(9, 9)


def test_a_change_other_than_smt_is_compared_by_its_own_arms():
    """A precise comparison of core sharing does not show the effect of a memory policy."""
    assignments = {"one_per_core": ASSIGNMENT, "all_threads": ASSIGNMENT}
    for noise, enough in ((0.0, True), (0.1, False)):
        precision = goals.UntilPrecise(0.01, {"as_found": assignments, "overcommit_strict": assignments}, BETTER)
        for block in range(8):
            precision.add(*sample(block, "as_found", "one_per_core", 50.0))
            precision.add(*sample(block, "as_found", "all_threads", 100.0))
            precision.add(*sample(block, "overcommit_strict", "all_threads", 100.0 * (1 + noise * (-1) ** block)))
        assert (precision.after_block(9, 9) == goals.PRECISE) is enough


def looked(goal, more=20, parameter=None, **workloads):
    """Blocks one after the other, each with one ratio of each workload that does not rest;
    the reasons to end after each.
    """
    found = []
    for block, ratios in enumerate(zip(*workloads.values())):
        for workload, ratio in zip(workloads, ratios):
            if not goal.rests((workload, parameter)):
                goal.add(*sample(block, "smt_on", "all_threads", 100.0 * 1.0001**block, workload, parameter))
                goal.add(*sample(block, "smt_off", "one_per_core", 100.0 * 1.0001**block * ratio, workload, parameter))
        found.append(goal.after_block(block + 1, more))
    return found


CLEAR = [0.8, 0.801, 0.799, 0.8]
WILD = [1.0, 1.2, 0.9, 1.1, 0.85, 1.15]


def decision_goal(better=BETTER):
    return goals.UntilDecided(0.01, PLACEMENTS, better)


def test_a_clear_effect_ends_the_plan_at_the_first_look():
    goal = decision_goal()
    assert looked(goal, gzip=CLEAR) == [None, None, None, "loss"]
    assert goal.decided == [goals.Decision("gzip", None, "smt_off", "all_threads", 4, "loss")]
    assert [look.blocks for look in goal.looks] == [4]
    assert goal.rests(("gzip", None))


def test_the_direction_of_the_metric_counts():
    assert looked(decision_goal({"gzip": "lower"}), gzip=CLEAR)[-1] == "gain"


def test_a_decided_workload_rests_and_the_others_go_on():
    goal = decision_goal()
    assert looked(goal, clear=[*CLEAR, 0.8, 0.8], wild=WILD) == [None] * 6
    assert goal.rests(("clear", None))
    assert not goal.rests(("wild", None))
    assert [(one.workload, one.blocks) for one in goal.decided] == [("clear", 4)]


def test_each_value_of_a_parameter_rests_by_itself():
    goal = decision_goal()
    for block in range(4):
        for parameter, ratios in ((1.0, CLEAR), (2.0, WILD)):
            goal.add(*sample(block, "smt_on", "all_threads", 100.0 * 1.0001**block, parameter=parameter))
            goal.add(
                *sample(block, "smt_off", "one_per_core", 100.0 * 1.0001**block * ratios[block], parameter=parameter)
            )
        assert goal.after_block(block + 1, 20) is None
    assert goal.rests(("gzip", 1.0))
    assert not goal.rests(("gzip", 2.0))


def test_many_comparisons_are_decided_at_a_stricter_level():
    ratios = [1.04, 1.044, 1.036, 1.042]
    assert looked(decision_goal(), gzip=ratios)[-1] == "gain"
    many = decision_goal()
    assert looked(many, **{f"own{number}": ratios for number in range(30)})[-1] is None
    assert not many.decided


def test_a_workload_that_is_given_up_does_not_hold_the_others_up():
    goal = decision_goal()
    looked(goal, broken=WILD[:3], gzip=CLEAR[:3])
    goal.drop("broken")
    goal.add(*sample(3, "smt_on", "all_threads", 100.0))
    goal.add(*sample(3, "smt_off", "one_per_core", 80.0))
    assert goal.after_block(4, 20) == "loss"


def test_without_a_main_comparison_nothing_is_decided():
    goal = decision_goal()
    for block in range(8):
        goal.add(*sample(block, "smt_on", "single", 100.0))
        assert goal.after_block(block + 1, 20) is None
    assert not goal.rests(("gzip", None))
    assert goal.looks == [], "looks that can end nothing would only widen the intervals"


def test_a_workload_of_one_worker_is_decided_by_that_and_the_plan_waits_for_it():
    """The plan ended with the others' verdicts, and left it with as few blocks as those had needed."""
    goal = decision_goal()
    for block in range(4):
        goal.add(*sample(block, "smt_on", "single", 100.0, "beside_others"))
        goal.add(*sample(block, "smt_off", "single", 100.0 * WILD[block], "beside_others"))
    assert looked(goal, gzip=CLEAR) == [None] * 4
    assert [(one.workload, one.placement) for one in goal.decided] == [("gzip", "all_threads")]
    assert goal.rests(("gzip", None)) and not goal.rests(("beside_others", None))


def test_the_samples_of_one_worker_decide_where_a_workload_has_no_others():
    planned = {
        (workload, None, arm, placement)
        for workload, names in {"gzip": ("single", "one_per_core", "all_threads"), "beside_others": ("single",)}.items()
        for arm in PLACEMENTS
        for placement in names
        if not PLACEMENTS[arm][placement]["same_as"]
    }
    assert decision_goal().deciding(planned) == {
        ("gzip", None, "smt_on", "all_threads"),
        ("gzip", None, "smt_off", "one_per_core"),
        ("beside_others", None, "smt_on", "single"),
        ("beside_others", None, "smt_off", "single"),
    }


def rechecked(ratios):
    goal = measured(ratios, goals.TwoLooks(0.01, PLACEMENTS, BETTER))
    return goal.after_block(len(ratios), 20)


def test_a_recheck_ends_at_its_first_look_where_intervals_are_narrow_and_at_the_second_otherwise():
    quiet = [0.9 + 0.002 * (-1) ** block for block in range(12)]
    noisy = [0.9 + 0.2 * (-1) ** block for block in range(12)]
    assert [rechecked(quiet[:blocks]) for blocks in (4, 5, 6)] == [None, None, goals.RECHECKED]
    assert [rechecked(noisy[:blocks]) for blocks in (5, 6, 7, 11, 12)] == [None, None, None, None, goals.RECHECKED]


@pytest.mark.parametrize("effect", [0.5, 0.95, 1.0, 1.02, 3.0])
def test_what_the_effect_is_ends_no_recheck(effect):
    assert rechecked([effect * (1 + 0.002 * (-1) ** block) for block in range(6)]) == goals.RECHECKED
    assert rechecked([effect * (1 + 0.2 * (-1) ** block) for block in range(6)]) is None


def test_a_recheck_without_a_main_comparison_goes_on():
    assert goals.TwoLooks(0.01, PLACEMENTS, BETTER).after_block(12, 20) is None


@pytest.mark.parametrize("name", goals.GOALS)
def test_each_goal_has_its_name(name):
    assert isinstance(goals.goal(name, 0.01, PLACEMENTS, BETTER), goals.Goal)
