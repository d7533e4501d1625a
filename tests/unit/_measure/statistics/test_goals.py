# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a plan has enough samples: by the width of intervals, or by planned looks at the verdicts."""

from __future__ import annotations

import collections
import math

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import goals
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.ranks import Paired

ASSIGNMENT = {"workers": [[0], [1]], "same_as": None, "reason": None}
BOTH = {"one_per_core": ASSIGNMENT, "all_threads": ASSIGNMENT}
PLACEMENTS = {
    "smt_on": {"single": ASSIGNMENT, **BOTH},
    "smt_off": {"single": ASSIGNMENT, **BOTH, "all_threads": {**ASSIGNMENT, "same_as": "one_per_core"}},
}
AS_FOUND = {
    "as_found": {"siblings": ASSIGNMENT, "cores": ASSIGNMENT, "all_threads": {**ASSIGNMENT, "same_as": "cores"}}
}
HIGHER = collections.defaultdict(lambda: "higher")
EVEN, NOISY, CLEAR = [1.0] * 6, [1.0, 1.1, 0.9, 1.2, 0.8, 1.0], [0.8, 0.801, 0.799, 0.8]
WILD = [1.0, 1.2, 0.9, 1.1, 0.85, 1.15]


def made(name, placements=None, better=None):
    return goals.goal(name, 0.01, placements or PLACEMENTS, better or HIGHER)


def add(goal, block, arm, placement, value, workload="gzip", parameter=None):
    key = {"block": block, "arm": arm, "placement": placement, "workload": workload, "parameter": parameter}
    goal.add(key, value)


def add_ratio(goal, block, ratio, *measured):
    add(goal, block, "smt_on", "all_threads", 100.0 * 1.0001**block, *measured)
    add(goal, block, "smt_off", "one_per_core", 100.0 * 1.0001**block * ratio, *measured)


def measured(ratios, goal=None, name=goals.PRECISION, of=("gzip", None)):
    goal = goal or made(name)
    for block, ratio in enumerate(ratios):
        add_ratio(goal, block, ratio, *of)
    return goal


def is_enough(ratios, name=goals.PRECISION):
    return measured(ratios, name=name).after_block(len(ratios), 20)


def test_half_of_the_width_is_that_of_the_interval():
    before, after = [100.0 + block for block in range(7)], [101.0, 99.0, 103.0, 106.0, 104.0, 103.0, 108.0]
    _centre, low, high = Paired.of_values(before, after, "higher").interval(0.05)
    assert goals.half_width(Paired.of_values(before, after, "higher"), 0.05) == pytest.approx((high - low) / 2)
    assert goals.half_width(Paired.of_values(before[:5], after[:5], "higher"), 0.05) == math.inf


@pytest.mark.parametrize(("name", "reason"), [(goals.PRECISION, goals.PRECISE), (goals.RECHECK, goals.RECHECKED)])
@pytest.mark.parametrize("effect", [0.5, 1.0, 1.02, 3.0])
def test_the_size_of_the_effect_does_not_matter(effect, name, reason):
    assert is_enough([effect * (1 + noise) for noise in (0, 0.002, -0.002, 0.001, 0, -0.001)], name) == reason
    assert is_enough([effect * (1 + noise) for noise in (0, 0.2, -0.2, 0.3, 0, -0.3)], name) is None


def test_each_workload_and_each_parameter_value_must_be_precise():
    precision = measured(NOISY, measured(EVEN), of=("sysbench_cpu", None))
    assert not precision.after_block(9, 9)
    precision.drop("sysbench_cpu")
    assert precision.after_block(9, 9)
    assert not measured(NOISY, measured(EVEN, of=("gzip", 1.0)), of=("gzip", 0.5)).after_block(9, 9)


def test_more_workloads_need_narrower_intervals():
    ratios = [1.0 + noise for noise in (0.008, -0.008, 0.0008, -0.0072, 0.004, -0.004)]
    assert is_enough(ratios)
    many = made(goals.PRECISION)
    for number in range(20):
        measured(ratios, many, of=(f"own{number}", None))
    assert not many.after_block(9, 9)


@pytest.mark.parametrize("name", goals.GOALS)
def test_without_a_main_comparison_nothing_is_enough(name):
    goal = made(name)
    for block in range(12):
        add(goal, block, "smt_on", "single", 100.0)
        assert goal.after_block(block + 1, 20) is None
    assert not goal.rests(("gzip", None)) and goal.looks == [], "looks that can end nothing would only widen intervals"


def test_when_nothing_is_switched_siblings_are_compared_with_cores():
    precision = made(goals.PRECISION, AS_FOUND)
    for block in range(6):
        add(precision, block, "as_found", "cores", 100.0)
        add(precision, block, "as_found", "siblings", 60.0)
    assert precision.after_block(9, 9)


@pytest.mark.parametrize(("noise", "reason"), [(0.0, goals.PRECISE), (0.1, None)])
def test_a_change_other_than_smt_is_compared_by_its_own_arms(noise, reason):
    """A precise comparison of core sharing does not show the effect of a memory policy."""
    precision = made(goals.PRECISION, {"as_found": BOTH, "overcommit_strict": BOTH})
    for block in range(8):
        add(precision, block, "as_found", "one_per_core", 50.0)
        add(precision, block, "as_found", "all_threads", 100.0)
        add(precision, block, "overcommit_strict", "all_threads", 100.0 * (1 + noise * (-1) ** block))
    assert precision.after_block(9, 9) == reason


def looked(goal, more=20, **workloads):
    """Blocks one after the other, each with one ratio of each workload that does not rest: why to end after each."""
    found = []
    for block, ratios in enumerate(zip(*workloads.values())):
        for workload, ratio in zip(workloads, ratios):
            if not goal.rests((workload, None)):
                add_ratio(goal, block, ratio, workload)
        found.append(goal.after_block(block + 1, more))
    return found


def test_a_clear_effect_ends_the_plan_at_the_first_look():
    goal = made(goals.DECISION)
    assert looked(goal, gzip=CLEAR) == [None, None, None, "loss"] and goal.rests(("gzip", None))
    assert goal.decided == [goals.Decision("gzip", None, "smt_off", "all_threads", 4, "loss")]
    assert [look.blocks for look in goal.looks] == [4]
    assert looked(made(goals.DECISION, better={"gzip": "lower"}), gzip=CLEAR)[-1] == "gain"


def test_a_decided_workload_rests_and_the_others_go_on():
    goal = made(goals.DECISION)
    assert looked(goal, clear=[*CLEAR, 0.8, 0.8], wild=WILD) == [None] * 6
    assert goal.rests(("clear", None)) and not goal.rests(("wild", None))
    assert [(one.workload, one.blocks) for one in goal.decided] == [("clear", 4)]


def test_each_value_of_a_parameter_rests_by_itself():
    goal = measured(WILD[:4], measured(CLEAR, name=goals.DECISION, of=("gzip", 1.0)), of=("gzip", 2.0))
    assert goal.after_block(4, 20) is None
    assert goal.rests(("gzip", 1.0)) and not goal.rests(("gzip", 2.0))


def test_many_comparisons_are_decided_at_a_stricter_level():
    ratios, many = [1.04, 1.044, 1.036, 1.042], made(goals.DECISION)
    assert looked(made(goals.DECISION), gzip=ratios)[-1] == "gain"
    assert looked(many, **{f"own{number}": ratios for number in range(30)})[-1] is None and not many.decided


def test_a_workload_that_is_given_up_or_has_few_blocks_does_not_end_the_others():
    goal = made(goals.DECISION)
    looked(goal, broken=WILD[:3], gzip=CLEAR[:3])
    goal.drop("broken")
    add_ratio(goal, 3, 0.8)
    assert goal.after_block(4, 20) == "loss"
    # Three blocks say nothing, however clear they are.
    late = measured(CLEAR[:3], measured(WILD[:4], name=goals.DECISION), of=("late", None))
    assert late.after_block(4, 20) is None and late.decided == []


def test_a_workload_of_one_worker_is_decided_by_that_and_the_plan_waits_for_it():
    """The plan ended with the others' verdicts, and left it with as few blocks as those had needed."""
    goal = made(goals.DECISION)
    for block in range(4):
        add(goal, block, "smt_on", "single", 100.0, "beside_others")
        add(goal, block, "smt_off", "single", 100.0 * WILD[block], "beside_others")
    assert looked(goal, gzip=CLEAR) == [None] * 4
    assert [(one.workload, one.placement) for one in goal.decided] == [("gzip", "all_threads")]
    assert goal.rests(("gzip", None)) and not goal.rests(("beside_others", None))


def test_the_samples_of_one_worker_decide_where_a_workload_has_no_others():
    gzip = {(arm, place) for arm in PLACEMENTS for place in PLACEMENTS[arm] if not PLACEMENTS[arm][place]["same_as"]}
    alone = {("beside_others", None, arm, "single") for arm in PLACEMENTS}
    main = {("gzip", None, "smt_on", "all_threads"), ("gzip", None, "smt_off", "one_per_core")}
    assert made(goals.DECISION).deciding({("gzip", None, *one) for one in gzip} | alone) == main | alone


def test_two_factors_are_decided_by_what_each_does_and_by_their_interaction():
    """SMT off halves the work, THP costs a tenth, and together they cost what each does."""
    arms = {"thp_always__smt_on": 1.0, "thp_always__smt_off": 0.5, "thp_never__smt_on": 0.9, "thp_never__smt_off": 0.6}
    goal = made(goals.DECISION, dict.fromkeys(arms, BOTH))
    for block in range(4):
        for number, (arm, value) in enumerate(arms.items()):
            add(goal, block, arm, "all_threads", 100 * value * (1 + 0.001 * ((block + number) % 3)))
    goal.after_block(4, 20)
    outcomes = {one.arm: one.outcome for one in goal.decided}
    assert outcomes == {"thp_always__smt_off": "loss", "thp_never__smt_on": "gain", "thp_never__smt_off": "gain"}


def test_a_recheck_ends_at_its_first_look_where_intervals_are_narrow_and_at_the_second_otherwise():
    quiet, noisy = ([0.9 + scatter * (-1) ** block for block in range(12)] for scatter in (0.002, 0.2))
    assert [is_enough(quiet[:blocks], goals.RECHECK) for blocks in (4, 5, 6)] == [None, None, goals.RECHECKED]
    found = [is_enough(noisy[:blocks], goals.RECHECK) for blocks in (5, 6, 7, 11, 12)]
    assert found == [None, None, None, None, goals.RECHECKED]
