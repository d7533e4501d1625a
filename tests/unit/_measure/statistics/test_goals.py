# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a plan has enough samples: by the width of intervals, by looks at the verdicts, and what a budget allows."""

from __future__ import annotations

import collections

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import forecast, goals

ASSIGNMENT = {"workers": [[0], [1]], "same_as": None, "reason": None}
BOTH = {"one_per_core": ASSIGNMENT, "all_threads": ASSIGNMENT}
PLACEMENTS = {
    "smt_on": {"single": ASSIGNMENT, **BOTH},
    "smt_off": {"single": ASSIGNMENT, **BOTH, "all_threads": {**ASSIGNMENT, "same_as": "one_per_core"}},
}
CORES = {"siblings": ASSIGNMENT, "cores": ASSIGNMENT, "all_threads": {**ASSIGNMENT, "same_as": "cores"}}
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


def test_when_nothing_is_switched_siblings_are_compared_with_cores():
    precision = made(goals.PRECISION, {"as_found": CORES})
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


# A second of each: eleven seconds a block, 44 for four blocks. A workload of one worker is decided by that.
COSTS = [forecast.Cost("gzip", place, 1.0, place == placements.ALL_THREADS) for place in placements.NAMES[:-1]]
COSTS += [forecast.Cost("gzip", place, 1.0, False) for place in ("cpus_0_2", "free_3")]
COSTS += [forecast.Cost("alone", "single", 1.0, True)]


@pytest.mark.parametrize(
    ("budget", "dropped"),
    [
        (44, ""),
        (40, "remote_memory"),
        (33, "remote_memory packages_2 same_cpu"),
        (16, "remote_memory packages_2 same_cpu single siblings cores one_per_core"),
    ],
)
def test_what_does_not_decide_is_left_out_in_a_fixed_order(budget, dropped):
    assert forecast.left_out(COSTS, 0.0, budget) == dropped.split()


def test_a_budget_that_is_too_short_is_named_with_what_would_do():
    deciding = [cost for cost in COSTS if cost.decides][:1]
    assert forecast.too_short(deciding, 2.0, 12) is None and forecast.too_short([], 2.0, 1) is None
    assert forecast.too_short(deciding, 2.0, 11.4) == (
        "11 s are left of the budget, too few for a verdict: a block of what decides takes at least 3.0 s here, so 4"
        " blocks, the least for a verdict, need 12 s and 10 blocks 30 s: give the host a larger budget, fewer"
        " workloads, or shorter samples; nothing was switched"
    )
