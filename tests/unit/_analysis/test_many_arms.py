# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Three and more arms: which are compared with which, in one family, and what two arms are compared like."""

from __future__ import annotations

import itertools

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import (
    comparisons as host_comparisons,
    paired,
    recorded,
)
from result_maker import accepted, compared

EVEN = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}
BOTH = {"gzip": result_maker.GZIP, "even": EVEN}
ARMS = {"smt_on": 1.0, "smt_off": 1.0, "isolated": 0.9, "threads_per_core_2": 1.0}


ALL = ["smt_on", "smt_off", "isolated", "threads_per_core_2"]


def measured(**options):
    usual = {"arms": ARMS, "workloads": BOTH, "blocks": 6, "shape": (1, 2, 2), "names": ("single", "all_threads")}
    return result_maker.result(**{**usual, **options})


def of_arms(comparisons, placement="all_threads"):
    return [one for one in comparisons if (one["kind"], one["placement"]) == ("arm", placement)]


def pairs(comparisons):
    return list(dict.fromkeys(map(host_comparisons.sides_of, comparisons)))


def test_all_arms_and_workloads_of_a_placement_are_one_family():
    comparisons = compared(measured())
    for placement in ("all_threads", "single"):
        found = of_arms(comparisons, placement)
        assert pairs(found) == [("smt_on", arm) for arm in ALL[1:]]
        assert len(found) == 6 and {one["family"] for one in found} == {6}
        p_values = [one["p_value"] for one in found]
        assert [one["p_adjusted"] for one in found] == pytest.approx(paired.holm(p_values))


def test_on_demand_the_others_are_compared_among_each_other_in_the_same_family():
    found = of_arms(compared(measured(), compare="all"))
    assert pairs(found) == list(itertools.combinations(ALL, 2))
    assert len(found) == 12 and {one["family"] for one in found} == {12}
    last = found[-2]
    assert last["effect"] == "threads_per_core_2" and last["ratio"] == pytest.approx(1 / 0.9, rel=0.01)
    title = result_maker.title_of("isolated")
    assert last["baseline"] == {"arm": "isolated", "arm_title": title, "placement": "all_threads"}


def test_two_arms_are_compared_as_they_were():
    result = result_maker.result(workloads=BOTH)
    comparisons = compared(result)
    assert compared(result, compare="all") == comparisons
    sides = [
        [
            [one["metrics"]["throughput"]["value"]]
            for one in result["samples"]
            if (one["workload"], one["arm"], one["placement"]) == ("gzip", arm, placement)
        ]
        for arm, placement in (("smt_on", "all_threads"), ("smt_off", "one_per_core"))
    ]
    alone, first = paired.compare(*sides), of_arms(comparisons)[0]
    assert (first["family"], first["ratio"], first["p_value"]) == (2, alone["ratio"], alone["p_value"])


def test_other_metrics_are_a_family_of_their_own():
    latency = {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}
    gzip = {**result_maker.GZIP, "metrics": {**studies.RATES, **latency}, "further": lambda *_at: {"latency_p99": 2.0}}
    found = of_arms(compared(measured(workloads={"gzip": gzip})))
    assert [(one["metric"], one["family"]) for one in found] == [("throughput", 3)] * 3 + [("latency_p99", 3)] * 3


def test_an_arm_that_was_not_measured_is_compared_with_none():
    result = measured()
    result["samples"] = [one for one in result["samples"] if one["arm"] != "isolated"]
    found = of_arms(compared(result, compare="all"))
    assert pairs(found) == list(itertools.combinations([arm for arm in ALL if arm != "isolated"], 2))
    assert {one["family"] for one in found} == {6}


@pytest.mark.parametrize(
    ("arms", "concerned"),
    [
        (ALL[:2], True),
        (ALL[:3], True),
        (["as_found"], True),
        (["smt_on", "isolated"], False),
        (["as_found", "x"], False),
    ],
)
def test_a_run_concerns_smt_when_it_asks_for_on_and_off(arms, concerned):
    assert recorded.concerns_smt(accepted(measured(arms=dict.fromkeys(arms, 1.0)))) is concerned
