# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of many arms is better, and which is best; the recommendation for programs, with the side of each reason."""

import night
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import (
    conclusion,
    outcomes,
    recommendation,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.recommendation import Licence
from result_maker import analysed

BOTH = {"gzip": result_maker.GZIP, "even": {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}}
LATENCY = {
    "title": "orders",
    "metrics": {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}},
    "model": lambda _arm, _spot, workers: [2.0] * len(workers),
}
EVALUATIONS = night.number(60, 200)
THREE = {"smt_on": 1.0, "isolated": 1.2, "threads_per_core_2": 0.8}
ISOLATED, ONE_THREAD, TWO_THREADS = map(
    result_maker.title_of, ("isolated", "one_thread_per_core", "threads_per_core_2")
)


def measured(arms, **options):
    usual = {"blocks": 8, "noise": 0.003, "shape": (1, 2, 2), "names": ("all_threads",)}
    return result_maker.result(**{"arms": arms, **usual, **options})


def standing(arms, compare="baseline", **options):
    analysis = analysed(measured(arms, **options), compare=compare)
    return analysis, outcomes.standing(analysis)


@pytest.mark.parametrize(
    ("arms", "compare", "best", "better"),
    [
        # Against the baseline alone only the baseline can be called best.
        ({**THREE, "isolated": 0.9}, "baseline", "smt_on", ()),
        (THREE, "baseline", None, ("isolated",)),
        (THREE, "all", "isolated", ("isolated",)),
        ({**THREE, "threads_per_core_2": 1.2}, "all", None, ("isolated", "threads_per_core_2")),
        ({**THREE, "isolated": 1.0}, "all", None, ()),
        # SMT on against off decides by the same comparisons as without other arms.
        ({"smt_on": 1.0, "smt_off": 1.6, "isolated": 1.1}, "all", "smt_off", ("smt_off", "isolated")),
        ({"smt_on": 1.0, "isolated": 1.1}, "baseline", "isolated", ("isolated",)),
    ],
)
def test_the_best_arm_beats_each_other_one_that_it_was_compared_with(arms, compare, best, better):
    analysis, found = standing(arms, compare)
    assert (found.best, found.better) == (best, better)
    made = recommendation.recommend(analysis)
    assert (made["best"], made["better_than_baseline"]) == (best, list(better))
    assert len(made["pairs"]) == (len(arms) - 1 if compare == "baseline" else len(arms) * (len(arms) - 1) // 2)


def test_an_arm_that_costs_another_workload_or_lacks_it_is_not_the_best():
    _analysis, found = standing({**THREE, "isolated": {"gzip": 1.2, "even": 0.9}}, "all", workloads=BOTH)
    assert found.best is None and found.outcomes["isolated", "smt_on"] == "by_workload"
    result = measured(THREE, workloads=BOTH)
    assert outcomes.standing(analysed(result, compare="all")).best == "isolated"
    for sample in result["samples"]:
        if (sample["arm"], sample["workload"]) == ("isolated", "even"):
            sample.update(ok=False, metrics={}, error="sysbench ended with status 1")
    found = outcomes.standing(analysed(result, compare="all"))
    assert found.best is None and found.outcomes["isolated", "smt_on"] == "undecided"


FIVE = {
    "smt_on": 1.0,
    "smt_off": {"orders": 1.0},
    "one_thread_per_core": {"orders": 0.7, "gzip": 0.96},
    "isolated": {"orders": 1.1},
    "threads_per_core_2": 1.0,
}
OF_FIVE = {"workloads": {"orders": LATENCY, "gzip": result_maker.GZIP}}


@pytest.mark.parametrize(
    ("arms", "compare", "options", "words"),
    [
        (FIVE, "baseline", OF_FIVE, "No arm is called better than SMT on. Leave SMT on: with every"),
        (FIVE, "baseline", OF_FIVE, f" Against SMT on, with every online thread busy: {ONE_THREAD} changes orders "),
        (FIVE, "baseline", OF_FIVE, " %), better; gzip of a fixed stream by −4"),
        (FIVE, "baseline", OF_FIVE, f"; {TWO_THREADS} changes nothing: within 1 % for orders and gzip of a fixed"),
        (FIVE, "baseline", OF_FIVE, "leaves gzip of a fixed stream within 1 %."),
        (THREE, "baseline", {}, f"Better than SMT on: {ISOLATED}; which arm is best was not compared"),
        (THREE, "all", {}, " is the best of the 3 arms: it is better than each other one. Against SMT on"),
        ({**THREE, "isolated": 0.9}, "baseline", {}, "SMT on, the baseline, is the best of the 3 arms: each other"),
        ({**THREE, "threads_per_core_2": 1.2}, "all", {}, "none of the arms is better than each other one."),
        # Where another arm is better than both, the choice between on and off is said to be that alone.
        ({"smt_on": 1.0, "smt_off": 1.0, "isolated": 1.2}, "baseline", {}, "Of SMT on and off alone, leave SMT on:"),
        ({**THREE, "isolated": 1.01}, "baseline", {"noise": 0.03}, f"{ISOLATED} is not decided for gzip of a fixed"),
        ({**THREE, "isolated": 1.01}, "baseline", {"noise": 0.03}, " blocks would decide)"),
        (THREE, "baseline", {"blocks": 3}, f"{ISOLATED} is not decided for gzip of a fixed stream (3 of at least 4"),
    ],
)
def test_the_sentence_names_each_arm_with_what_it_gives_and_costs(arms, compare, options, words):
    found = conclusion.conclude(standing(arms, compare, **options)[0])
    assert words in found["sentence"], found["sentence"]


def test_that_mitigations_are_off_is_said_beside_its_speed():
    costs = conclusion.conclude(standing({"smt_on": 1.0, "mitigations_off": 1.2})[0])["costs"]
    assert any("ends the mitigation of mds and meltdown (inferred)" in one for one in costs)


@pytest.mark.parametrize(
    ("arms", "compare", "found_of"),
    [
        ({"smt_on": 1.0, "overcommit_strict": 1.0, "isolated": 1.1}, "baseline", "isolated"),
        (dict.fromkeys(("smt_on", "overcommit_strict", "isolated", "threads_per_core_2"), 1.0), "all", None),
    ],
)
def test_an_arm_that_does_nothing_is_seldom_called_none_best_and_a_tenth_is_found(arms, compare, found_of):
    """Many small evaluations whose truth is known."""
    best = called = found = 0
    for seed in range(EVALUATIONS):
        analysis, concluded = standing(arms, compare, seed=seed, noise=0.03, shape=(1, 1, 2))
        verdicts = [(one["effect"], one["verdict"]) for one in analysis.comparisons if one["kind"] == "arm"]
        best += concluded.best not in (None, found_of)
        called += any(verdict in ("gain", "loss") for effect, verdict in verdicts if effect != found_of)
        found += (found_of, "gain") in verdicts
    assert max(best, called) <= 0.05 * EVALUATIONS, (best, called)
    assert found_of is None or found >= 0.95 * EVALUATIONS, found


EVEN = {"even": {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "even work"}}
TAIL = {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}
WAITS = {"title": "web", "metrics": TAIL, "model": lambda arm, _s, ws: [10.0 if arm == "smt_off" else 25.0] * len(ws)}


def recommended(licence=None, vulnerable=True, facts=None, **options):
    result = result_maker.result(**options)
    result["facts"].update(facts or {}, **({} if vulnerable else {"vulnerabilities": {}}))
    return recommendation.recommend(analysed(result), licence)


def about(made, kind):
    return [reason for reason in made["reasons"] if reason["about"] == kind]


@pytest.mark.parametrize(
    ("options", "expected", "points_to"),
    [
        # A vulnerability contradicts what performance chooses, and decides only between equals.
        ({}, ("on", "performance", False), ["on"]),
        ({"vulnerable": False}, ("on", "performance", True), ["on"]),
        ({"workloads": EVEN, "noise": 0.001}, ("off", "other reasons", True), [None]),
        ({"workloads": EVEN, "noise": 0.001, "vulnerable": False}, ("either", None, False), [None]),
        ({"workloads": EVEN, "noise": 0.03, "blocks": 6}, ("undecided", None, False), [None]),
        ({"compared": False, "reason": "not switched"}, ("not_compared", None, False), []),
    ],
)
def test_performance_chooses_before_all_else(options, expected, points_to):
    made = recommended(**options)
    assert (made["choice"], made["decided_by"], made["agreed"]) == expected
    assert [reason["points_to"] for reason in about(made, "performance")] == points_to
    asked = [] if options.get("vulnerable") is False else [("mds", "off")]
    assert [(reason["name"], reason["points_to"]) for reason in about(made, "vulnerability")] == asked
    measure = made["measure"]
    assert (measure is not None) == (made["choice"] == "undecided")
    if measure:
        assert measure["blocks"] > 6 and measure["seconds"] > 0 and f"about {measure['blocks']}" in measure["text"]


@pytest.mark.parametrize(
    ("per", "licences", "points_to"), [("thread", {"on": 8, "off": 4}, "off"), ("core", {"on": 4, "off": 4}, "on")]
)
def test_licences_are_weighed_by_the_work_they_buy(per, licences, points_to):
    """SMT off does 0.8 of the work: half the licences for it are cheaper by work, as many are dearer."""
    (reason,) = about(recommended(Licence(per, 100.0)), "licence")
    assert reason["licences"] == licences and reason["points_to"] == points_to
    assert reason["price"] == {side: 100.0 * count for side, count in licences.items()}
    assert per == "thread" or "for the same work SMT off costs 1.25 times" in reason["text"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"facts": {"sibling_groups": [], "hardware_class": None}}, "not known"),
        # A time of each worker is no work.
        ({"workloads": {"web": WAITS}}, ""),
    ],
)
def test_what_licences_buy_is_not_guessed(options, words):
    (reason,) = about(recommended(Licence("thread", 1.0), **options), "licence")
    assert reason["points_to"] is None and words in reason["text"] and "same work" not in reason["text"]
