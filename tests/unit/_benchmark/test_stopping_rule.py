# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stopping rule depends on the width of intervals, not on their position."""

from __future__ import annotations

import math

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import stopping_rule
from scipy import stats

ASSIGNMENT = {"workers": [[0], [1]], "same_as": None, "reason": None}
PLACEMENTS = {
    "smt_on": {"single": ASSIGNMENT, "one_per_core": ASSIGNMENT, "all_threads": ASSIGNMENT},
    "smt_off": {"single": ASSIGNMENT, "one_per_core": ASSIGNMENT, "all_threads": dict(ASSIGNMENT, same_as="one_per_core")},
}
AS_FOUND = {"as_found": {"siblings": ASSIGNMENT, "cores": ASSIGNMENT, "all_threads": dict(ASSIGNMENT, same_as="cores")}}


def sample(block, arm, placement, value, workload="gzip", parameter=None):
    return {
        "block": block,
        "arm": arm,
        "placement": placement,
        "workload": workload,
        "parameter": parameter,
    }, value


def measured(ratios, precision=None, **kwargs):
    precision = precision or stopping_rule.Precision(0.01, PLACEMENTS)
    for block, ratio in enumerate(ratios):
        precision.add(*sample(block, "smt_on", "all_threads", 100.0 * (block + 1), **kwargs))
        precision.add(*sample(block, "smt_off", "one_per_core", 100.0 * (block + 1) * ratio, **kwargs))
    return precision


@pytest.mark.parametrize("freedom", [5, 9, 30, 200])
@pytest.mark.parametrize("share", [0.9, 0.975, 0.995, 0.999])
def test_quantiles_of_students_t(freedom, share):
    assert stopping_rule.student_quantile(share, freedom) == pytest.approx(stats.t.ppf(share, freedom), rel=0.01)


def test_half_width_is_that_of_the_t_interval():
    values = [0.01, -0.02, 0.005, 0.03, 0.0, -0.01, 0.02]
    low, high = stats.t.interval(0.95, len(values) - 1, loc=0, scale=stats.sem(values))
    assert stopping_rule.half_width(values, 0.95) == pytest.approx((high - low) / 2, rel=1e-3)
    assert stopping_rule.half_width(values[:5], 0.95) == math.inf


@pytest.mark.parametrize("effect", [0.5, 0.95, 1.0, 1.02, 3.0])
def test_the_size_of_the_effect_does_not_matter(effect):
    assert measured([effect * (1 + noise) for noise in (0, 0.002, -0.002, 0.001, 0, -0.001)]).enough()
    assert not measured([effect * (1 + noise) for noise in (0, 0.02, -0.02, 0.03, 0, -0.03)]).enough()


def test_few_blocks_are_never_enough():
    assert not measured([1.0] * (stopping_rule.LEAST_BLOCKS - 1)).enough()
    assert measured([1.0] * stopping_rule.LEAST_BLOCKS).enough()


def test_each_workload_and_each_parameter_value_must_be_precise():
    even, noisy = [1.0] * 6, [1.0, 1.1, 0.9, 1.2, 0.8, 1.0]
    precision = measured(noisy, measured(even), workload="sysbench_cpu")
    assert not precision.enough()
    precision.drop("sysbench_cpu")
    assert precision.enough()
    assert not measured(noisy, measured(even, parameter=1.0), parameter=0.5).enough()


def test_more_workloads_need_narrower_intervals():
    ratios = [1.0 + noise for noise in (0.008, -0.008, 0.008, -0.008, 0.008, -0.008)]
    assert measured(ratios).enough()
    many = stopping_rule.Precision(0.01, PLACEMENTS)
    for number in range(20):
        measured(ratios, many, workload=f"own{number}")
    assert not many.enough()


def test_without_a_main_comparison_nothing_is_enough():
    precision = stopping_rule.Precision(0.01, PLACEMENTS)
    assert not precision.enough()
    for block in range(20):
        precision.add(*sample(block, "smt_on", "single", 100.0))
    assert not precision.enough()


def test_when_nothing_is_switched_siblings_are_compared_with_cores():
    precision = stopping_rule.Precision(0.01, AS_FOUND)
    for block in range(6):
        precision.add(*sample(block, "as_found", "cores", 100.0))
        precision.add(*sample(block, "as_found", "siblings", 60.0))
    assert precision.enough()


def test_blocks_in_which_a_side_failed_do_not_count():
    precision = measured([1.0] * 5)
    for block in range(5, 9):
        precision.add(*sample(block, "smt_on", "all_threads", 100.0))
    assert not precision.enough()


def test_a_change_other_than_smt_is_compared_by_its_own_arms():
    """A precise comparison of core sharing does not show the effect of a memory policy."""
    assignments = {"one_per_core": ASSIGNMENT, "all_threads": ASSIGNMENT}
    for noise, enough in ((0.0, True), (0.1, False)):
        precision = stopping_rule.Precision(0.01, {"as_found": assignments, "overcommit_strict": assignments})
        for block in range(8):
            precision.add(*sample(block, "as_found", "one_per_core", 50.0))
            precision.add(*sample(block, "as_found", "all_threads", 100.0))
            precision.add(*sample(block, "overcommit_strict", "all_threads", 100.0 * (1 + noise * (-1) ** block)))
        assert precision.enough() is enough
