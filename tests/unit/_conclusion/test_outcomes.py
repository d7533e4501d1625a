# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of many arms is better, and which is best: never more than the comparisons say, also by chance."""

from __future__ import annotations

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion, outcomes, recommendation
from result_maker import analysed

EVEN = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}
LATENCY = {
    "title": "orders",
    "metrics": {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}},
    "model": lambda _arm, _spot, workers: [2.0] * len(workers),
}
EVALUATIONS = 200


def measured(arms, **options):
    return result_maker.result(
        **{"arms": arms, "blocks": 8, "noise": 0.003, "shape": (1, 2, 2), "names": ("all_threads",), **options}
    )


def standing(arms, compare="baseline", **options):
    analysis = analysed(measured(arms, **options), compare=compare)
    return analysis, analysis.comparisons, outcomes.standing(analysis)


def sentence(arms, compare="baseline", **options):
    analysis, _comparisons, _standing = standing(arms, compare, **options)
    return conclusion.conclude(analysis)["sentence"]


@pytest.mark.parametrize(
    ("arms", "compare", "best", "better"),
    [
        # Against the baseline alone only the baseline can be called best.
        ({"smt_on": 1.0, "isolated": 0.9, "threads_per_core_2": 0.8}, "baseline", "smt_on", ()),
        ({"smt_on": 1.0, "isolated": 1.2, "threads_per_core_2": 0.8}, "baseline", None, ("isolated",)),
        ({"smt_on": 1.0, "isolated": 1.2, "threads_per_core_2": 0.8}, "all", "isolated", ("isolated",)),
        ({"smt_on": 1.0, "isolated": 1.2, "threads_per_core_2": 1.2}, "all", None, ("isolated", "threads_per_core_2")),
        ({"smt_on": 1.0, "isolated": 1.0, "threads_per_core_2": 0.8}, "all", None, ()),
        # SMT on against off decides by the same comparisons as without other arms.
        ({"smt_on": 1.0, "smt_off": 1.6, "isolated": 1.1}, "all", "smt_off", ("smt_off", "isolated")),
        ({"smt_on": 1.0, "isolated": 1.1}, "baseline", "isolated", ("isolated",)),
    ],
)
def test_the_best_arm_beats_each_other_one_that_it_was_compared_with(arms, compare, best, better):
    analysis, _comparisons, found = standing(arms, compare)
    assert (found.best, found.better) == (best, better)
    made = recommendation.recommend(analysis)
    assert (made["best"], made["better_than_baseline"]) == (best, list(better))
    assert len(made["pairs"]) == (len(arms) - 1 if compare == "baseline" else len(arms) * (len(arms) - 1) // 2)


def test_an_arm_that_costs_another_workload_is_not_the_best():
    both = {"gzip": result_maker.GZIP, "even": EVEN}
    arms = {"smt_on": 1.0, "isolated": {"gzip": 1.2, "even": 0.9}, "threads_per_core_2": 0.8}
    _result, _comparisons, found = standing(arms, "all", workloads=both)
    assert found.best is None and found.outcomes["isolated", "smt_on"] == "by_workload"


def test_an_arm_that_lacks_a_workload_is_not_the_best():
    both = {"gzip": result_maker.GZIP, "even": EVEN}
    result = measured({"smt_on": 1.0, "isolated": 1.2, "threads_per_core_2": 0.8}, workloads=both)
    assert outcomes.standing(analysed(result, compare="all")).best == "isolated"
    for sample in result["samples"]:
        if (sample["arm"], sample["workload"]) == ("isolated", "even"):
            sample.update(ok=False, metrics={}, error="sysbench ended with status 1")
    found = outcomes.standing(analysed(result, compare="all"))
    assert found.best is None and found.outcomes["isolated", "smt_on"] == "undecided"


def test_the_sentence_names_each_arm_with_what_it_gives_and_costs():
    arms = {
        "smt_on": 1.0,
        "smt_off": {"orders": 1.0},
        "one_thread_per_core": {"orders": 0.7, "gzip": 0.96},
        "isolated": {"orders": 1.1},
        "threads_per_core_2": 1.0,
    }
    said = sentence(arms, workloads={"orders": LATENCY, "gzip": result_maker.GZIP})
    assert said.startswith(
        "No arm is called better than SMT on. Leave SMT on: with every online thread busy, turning it off changes"
        " gzip of a fixed stream by −"
    )
    title = result_maker.title_of
    assert (
        f" Against SMT on, with every online thread busy: {title('one_thread_per_core')} changes orders latency_p99 by"
        " −30" in said
    )
    assert " %), better; gzip of a fixed stream by −4" in said and "(−3" in said
    assert (
        f"; {title('threads_per_core_2')} changes nothing: within 1 % for orders and gzip of a fixed stream; " in said
    )
    assert (
        f"{title('isolated')} changes orders latency_p99 by +" in said
        and "leaves gzip of a fixed stream within 1 %." in said
    )


def test_the_sentence_says_best_only_of_what_is():
    arms = {"smt_on": 1.0, "isolated": 1.2, "threads_per_core_2": 0.8}
    isolated = result_maker.title_of("isolated")
    assert sentence(arms).startswith(
        f"Better than SMT on: {isolated}; which arm is best was not compared (smt_report_compare: all). Against SMT on"
    )
    said = sentence(arms, "all")
    assert (
        said.startswith(
            f"{isolated[:1].upper()}{isolated[1:]} is the best of the 3 arms: it is better than each other one. Against"
            " SMT on"
        )
        and "Turn SMT" not in said
    )
    assert sentence({**arms, "isolated": 0.9}).startswith(
        "SMT on, the baseline, is the best of the 3 arms: each other one costs."
    )
    tied = sentence({**arms, "threads_per_core_2": 1.2}, "all")
    assert "none of the arms is better than each other one." in tied
    # Where another arm is better than both, the choice between on and off is said to be that alone.
    assert "Of SMT on and off alone, leave SMT on: with every" in sentence(
        {"smt_on": 1.0, "smt_off": 1.0, "isolated": 1.2}
    )


def test_what_is_undecided_is_named_with_what_would_decide_it():
    said = sentence({"smt_on": 1.0, "isolated": 1.01, "threads_per_core_2": 0.8}, noise=0.03)
    isolated = result_maker.title_of("isolated")
    assert f"{isolated} is not decided for gzip of a fixed stream (−" in said and " blocks would decide)" in said
    few = sentence({"smt_on": 1.0, "isolated": 1.2, "threads_per_core_2": 0.8}, blocks=3)
    assert f"{isolated} is not decided for gzip of a fixed stream (3 of at least 4 blocks)" in few and "best" not in few


def test_two_arms_are_concluded_on_in_the_words_they_had():
    result = result_maker.result(workloads={"gzip": result_maker.GZIP, "even": EVEN}, noise=0.001)
    made = conclusion.conclude(analysed(result))
    assert made["sentence"].startswith(
        "Leave SMT on: with every online thread busy, turning it off changes gzip of a fixed stream by −20"
    )
    assert (
        made["sentence"].endswith("; sysbench cpu stays within 1 % either way.")
        and "for the 2 workloads combined" in made["basis"]
    )
    analysis, _comparisons, _standing = standing({"smt_on": 1.0, "smt_off": 1.0, "isolated": 0.9})
    several = conclusion.conclude(analysis)
    assert "95 % confidence for the 2 comparisons combined" in several["basis"]


def test_that_mitigations_are_off_is_said_beside_its_speed():
    analysis, _comparisons, _standing = standing({"smt_on": 1.0, "mitigations_off": 1.2})
    costs = conclusion.conclude(analysis)["costs"]
    assert any(
        one.endswith("ends the mitigation of mds and meltdown (inferred); speed says nothing about that.")
        for one in costs
    )


def evaluations(arms, compare):
    """Many small evaluations whose truth is known."""
    for seed in range(EVALUATIONS):
        yield standing(arms, compare, seed=seed, noise=0.03, shape=(1, 1, 2))[1:]


def test_an_arm_that_does_nothing_is_seldom_called_and_a_tenth_is_found():
    called = found = 0
    for comparisons, _standing in evaluations({"smt_on": 1.0, "overcommit_strict": 1.0, "isolated": 1.1}, "baseline"):
        verdicts = {one["effect"]: one["verdict"] for one in comparisons if one["kind"] == "arm"}
        called += verdicts["overcommit_strict"] in ("gain", "loss")
        found += verdicts["isolated"] == "gain"
    assert called <= 0.05 * EVALUATIONS and found >= 0.95 * EVALUATIONS, (called, found)


def test_of_equal_arms_none_is_called_best_and_seldom_one_better():
    arms = {"smt_on": 1.0, "overcommit_strict": 1.0, "isolated": 1.0, "threads_per_core_2": 1.0}
    best = called = 0
    for comparisons, found in evaluations(arms, "all"):
        best += found.best is not None
        called += any(one["verdict"] in ("gain", "loss") for one in comparisons if one["kind"] == "arm")
    assert best <= 0.05 * EVALUATIONS and called <= 0.05 * EVALUATIONS, (best, called)
