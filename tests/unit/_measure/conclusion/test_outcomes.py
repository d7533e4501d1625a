# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of many arms is better or best, two factors, the recommendation for programs and the side of each reason."""

import json
import math
import pathlib

import jsonschema_rs
import night
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import (
    conclusion,
    outcomes,
    recommendation,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_arms import factors
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.recommendation import Licence
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import host as host_page
from result_maker import analysed

EVEN = {"even": {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "even work"}}
BOTH = {"gzip": result_maker.GZIP, **EVEN}
TAIL = {"latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"}}
LATENCY = {"title": "orders", "metrics": TAIL, "model": lambda _arm, _spot, workers: [2.0] * len(workers)}
WAITS = {"title": "web", "metrics": TAIL, "model": lambda arm, _s, ws: [10.0 if arm == "smt_off" else 25.0] * len(ws)}
EVALUATIONS = night.number(60, 200)
THREE = {"smt_on": 1.0, "isolated": 1.2, "threads_per_core_2": 0.8}
ISOLATED, ONE_THREAD = map(result_maker.title_of, ("isolated", "one_thread_per_core"))


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
    assert (made.standing.best, made.standing.better) == (best, better)
    assert len(made.standing.outcomes) == (len(arms) - 1 if compare == "baseline" else len(arms) * (len(arms) - 1) // 2)


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


FIVE = {"smt_on": 1.0, "smt_off": {"orders": 1.0}, "one_thread_per_core": {"orders": 0.7, "gzip": 0.96}}
FIVE.update(isolated={"orders": 1.1}, threads_per_core_2=1.0)
OF_FIVE = {"workloads": {"orders": LATENCY, "gzip": result_maker.GZIP}}


@pytest.mark.parametrize(
    ("arms", "compare", "options", "words"),
    [
        (FIVE, "baseline", OF_FIVE, "No arm is called better than SMT on. Leave SMT on: with every"),
        (FIVE, "baseline", OF_FIVE, f" Against SMT on, with every online thread busy: {ONE_THREAD} changes orders "),
        (FIVE, "baseline", OF_FIVE, " changes nothing: within 1 % for orders and gzip of a fixed"),
        (THREE, "baseline", {}, f"Better than SMT on: {ISOLATED}; which arm is best was not compared"),
        (THREE, "all", {}, " is the best of the 3 arms: it is better than each other one. Against SMT on"),
        ({**THREE, "isolated": 0.9}, "baseline", {}, "SMT on, the baseline, is the best of the 3 arms: each other"),
        ({**THREE, "threads_per_core_2": 1.2}, "all", {}, "none of the arms is better than each other one."),
        # Where another arm is better than both, the choice between on and off is said to be that alone.
        ({"smt_on": 1.0, "smt_off": 1.0, "isolated": 1.2}, "baseline", {}, "Of SMT on and off alone, leave SMT on:"),
        ({**THREE, "isolated": 1.01}, "baseline", {"noise": 0.03}, " blocks would decide)"),
        (THREE, "baseline", {"blocks": 3}, f"{ISOLATED} is not decided for gzip of a fixed stream (3 of at least 4"),
        ({"smt_on": 1.0, "mitigations_off": 1.2}, "all", {}, "ends the mitigation of mds and meltdown (inferred)"),
    ],
)
def test_each_arm_is_named_with_what_it_gives_and_costs(arms, compare, options, words):
    found = conclusion.conclude(standing(arms, compare, **options)[0])
    assert any(words in one for one in (found.sentence, *found.costs)), found.sentence


TENTH = {"smt_on": 1.0, "overcommit_strict": 1.0, "isolated": 1.1}
NOTHING = dict.fromkeys(("smt_on", "overcommit_strict", "isolated", "threads_per_core_2"), 1.0)


@pytest.mark.parametrize(("arms", "compare", "found_of"), [(TENTH, "baseline", "isolated"), (NOTHING, "all", None)])
def test_an_arm_that_does_nothing_is_seldom_called_none_best_and_a_tenth_is_found(arms, compare, found_of):
    """Many small evaluations whose truth is known."""
    best = called = found = 0
    for seed in range(EVALUATIONS):
        analysis, concluded = standing(arms, compare, seed=seed, noise=0.03, shape=(1, 1, 2))
        verdicts = [(one.effect, one.verdict) for one in analysis.comparisons if one.kind == "arm"]
        best += concluded.best not in (None, found_of)
        called += any(verdict in ("gain", "loss") for effect, verdict in verdicts if effect != found_of)
        found += (found_of, "gain") in verdicts
    assert max(best, called) <= 0.05 * EVALUATIONS, (best, called)
    assert found_of is None or found >= 0.95 * EVALUATIONS, found


def recommended(licence=None, vulnerable=True, facts=None, **options):
    result = result_maker.result(**options)
    result["facts"].update(facts or {}, **({} if vulnerable else {"vulnerabilities": {}}))
    return recommendation.recommend(analysed(result), licence).described()


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
    assert measure is None or (measure["blocks"] > 6 and measure["seconds"] > 0)


def test_licences_are_weighed_by_the_work_they_buy():
    """SMT off does 0.8 of the work: half the licences for it are cheaper by work, as many are dearer."""
    for per, on, points_to, factor in (("thread", 8, "off", ""), ("core", 4, "on", "SMT off costs 1.25 times")):
        (reason,) = about(recommended(Licence(per, 100.0)), "licence")
        assert (reason["licences"], reason["points_to"]) == ({"on": on, "off": 4}, points_to)
        assert reason["price"] == {"on": 100.0 * on, "off": 400.0} and factor in reason["text"]
    # A time of each worker is no work.
    for options in ({"facts": {"sibling_groups": [], "hardware_class": None}}, {"workloads": {"web": WAITS}}):
        (reason,) = about(recommended(Licence("thread", 1.0), **options), "licence")
        assert reason["points_to"] is None and "same work" not in reason["text"]


# Two factors in one evaluation.
SCHEMA = pathlib.Path(__file__).parents[4] / "docs" / "results.schema.json"
ARMS = ("smt_on__thp_always", "smt_on__thp_never", "smt_off__thp_always", "smt_off__thp_never")


def planted(*effects, arms=ARMS, blocks=20, **options):
    """A result of four arms, each with what it multiplies the rate of the first one by."""
    return result_maker.result(names=("all_threads",), arms=dict(zip(arms, effects)), blocks=blocks, **options)


def found(document):
    return factors.of_host(analysed(document))


def test_an_effect_that_turns_with_the_other_factor_is_said_at_each_of_its_levels():
    """SMT off costs 4 % with huge pages and gives 9.5 % without."""
    analysis = analysed(planted(1, 1.05, 0.96, 1.15))
    (one,) = factors.of_host(analysis)
    changes = [effect.change.value for effect in (*one.first_at, *one.main)]
    truth = (0.96, 1.15 / 1.05, math.sqrt(0.96 * 1.15 / 1.05), math.sqrt(1.05 * 1.15 / 0.96))
    assert changes == pytest.approx([ratio - 1 for ratio in truth], abs=0.002)
    assert one.interaction.ratio == pytest.approx(1.15 / 1.05 / 0.96, abs=0.003) and one.interaction.is_called
    # The first of both is a comparison of arms, too, and is the same number there.
    here = one.first_at[0]
    (compared,) = [one for one in analysis.against_baseline if one.effect == ARMS[2]]
    assert (here.ratio, here.verdict) == (compared.ratio, compared.verdict)
    assert "huge pages: never, SMT off changes it by +9.5 %" in conclusion.conclude(analysis).sentence


NOISY = {"noise": 0.1, "blocks": 6}


@pytest.mark.parametrize(
    ("effects", "options", "interaction", "words"),
    [
        ((1, 1.05, 0.96, 1.05 * 0.96), {}, "equivalent", "by +5.0 % (+4.8 to +5.0 %), better; neither depends on the "),
        ((1, 1, 1, 1), {}, "equivalent", "SMT off leaves it within 1 %; transparent huge pages: never leaves it"),
        ((1, 1.05, 0.96, 1.02), NOISY, "inconclusive", "whether one depends on the other is not decided"),
        ((1, 1, 1, 1), NOISY, "inconclusive", "transparent huge pages: never is not decided ("),
        ((1, 1.3, 0.7, 1), {"blocks": 1}, "inconclusive", "what SMT off does 1 block cannot say"),
    ],
)
def test_what_is_said_of_both(effects, options, interaction, words):
    (one,) = found(planted(*effects, **options))
    assert one.interaction.verdict == interaction and words in one.sentence(), one.sentence()


def test_a_metric_of_which_less_is_better_has_its_own_signs():
    time = {"time": {"unit": "ms", "better": "lower", "aggregate": "mean"}}
    answer = {"title": "answer", "metrics": time, "model": lambda _arm, _spot, placed: [10.0] * len(placed)}
    (one,) = found(planted(1, 1.05, 0.96, 1.15, workloads={"own": answer}))
    assert one.first_at[0].change.value == pytest.approx(-0.04, abs=0.002) and one.first_at[0].ratio > 1
    assert "%), better; with" in one.sentence()


def without(document, left_out):
    for sample in document["samples"]:
        if left_out(sample):
            sample.update(ok=False, error="exit status 1", metrics={}, workers=[])
    return document


@pytest.mark.parametrize(
    "document",
    [
        planted(1, 1, 1, 1, arms=("smt_on", "smt_off", "thp_always", "thp_never")),
        planted(1, 1, 1, 1, arms=(*ARMS[:3], "smt_off__thp_madvise")),
        # An arm that was left out, and blocks without all four arms.
        without(planted(1, 1.05, 0.96, 1.15), lambda one: one["arm"] == ARMS[3]),
        without(planted(1, 1.05, 0.96, 1.15, blocks=4), lambda one: ARMS.index(one["arm"]) == one["block"]),
    ],
)
def test_other_arms_are_no_factors(document):
    assert found(document) == []
    assert "of a fixed stream" in conclusion.conclude(analysed(document)).sentence


def test_page_and_data_have_them():
    document = planted(1, 1.05, 0.96, 1.15)
    summary = result_maker.summarised(document)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema_rs.validator_for({**schema, "$ref": "#/$defs/host", "properties": {}, "required": []}).validate(summary)
    assert summary["factors"][0]["interaction"]["verdict"] == "gain"
    shown = host_page.render(result_maker.summary(document), True)
    assert "<h2>Two factors" in shown and "SMT off, with transparent huge pages: never" in shown
