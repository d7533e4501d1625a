# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two factors in one evaluation: planted effects and interactions, on made results and on recorded noise."""

import json
import math
import pathlib

import jsonschema_rs
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_arms import factors
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import host as host_page

TESTS = pathlib.Path(__file__).resolve().parents[4]
SCHEMA = TESTS.parent / "docs" / "results.schema.json"
ARMS = ("smt_on__thp_always", "smt_on__thp_never", "smt_off__thp_always", "smt_off__thp_never")


def planted(*effects, arms=ARMS, blocks=20, **options):
    """A result of four arms, each with what it multiplies the rate of the first one by."""
    return result_maker.result(
        workloads={"gzip": result_maker.GZIP},
        names=("all_threads",),
        arms=dict(zip(arms, effects)),
        blocks=blocks,
        **options,
    )


def found(document):
    return factors.of_host(result_maker.analysed(document))


def test_an_effect_that_turns_with_the_other_factor_is_said_at_each_of_its_levels():
    """SMT off costs 4 % with huge pages and gives 9.5 % without."""
    analysis = result_maker.analysed(planted(1, 1.05, 0.96, 1.15))
    (one,) = factors.of_host(analysis)
    changes = [effect.change.value for effect in (*one.first_at, *one.main)]
    truth = (0.96, 1.15 / 1.05, math.sqrt(0.96 * 1.15 / 1.05), math.sqrt(1.05 * 1.15 / 0.96))
    assert changes == pytest.approx([ratio - 1 for ratio in truth], abs=0.002)
    assert one.interaction.ratio == pytest.approx(1.15 / 1.05 / 0.96, abs=0.003) and one.interaction.is_called
    # The first of both is a comparison of arms, too, and is the same number there.
    here = one.first_at[0]
    (compared,) = [one for one in analysis.against_baseline if one["effect"] == ARMS[2]]
    assert (here.low, here.high, here.verdict) == (compared["ci_low"], compared["ci_high"], compared["verdict"])
    assert conclusion.conclude(analysis)["sentence"].startswith(
        "gzip of a fixed stream: with transparent huge pages: always, SMT off changes it by \u22123.9 % (\u22124.1 to"
        " \u22123.8 %), worse; with transparent huge pages: never, SMT off changes it by +9.5 %"
    )


NOISY = {"noise": 0.1, "blocks": 6}


@pytest.mark.parametrize(
    ("effects", "options", "interaction", "words"),
    [
        (
            (1, 1.05, 0.96, 1.05 * 0.96),
            {},
            "equivalent",
            "huge pages: never changes it by +5.0 % (+4.8 to +5.0 %), better; neither depends on the other.",
        ),
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
    times = {"rate": 10.0, "share": 0.625, "unit": "ms", "title": "answer", "better": "lower"}
    arms = dict(zip(ARMS, (1, 1.05, 0.96, 1.15)))
    document = result_maker.result(workloads={"own": times}, names=("single",), arms=arms)
    (workload,) = document["plan"]["workloads"]
    metric = workload["primary"]
    workload["metrics"][metric].update(better="lower", aggregate="mean")
    for sample in document["samples"]:
        sample["metrics"][metric]["better"] = "lower"
    (one,) = found(document)
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
        *(
            planted(1, 1, 1, 1, arms=arms)
            for arms in (
                ("smt_on", "smt_off", "thp_always", "thp_never"),
                (*ARMS[:3], "smt_off"),
                (ARMS[0], ARMS[3], ARMS[1], ARMS[2]),
                (*ARMS[:3], "smt_off__thp_madvise"),
            )
        ),
        # An arm that was left out, and blocks without all four arms.
        without(planted(1, 1.05, 0.96, 1.15), lambda one: one["arm"] == ARMS[3]),
        without(planted(1, 1.05, 0.96, 1.15, blocks=4), lambda one: ARMS.index(one["arm"]) == one["block"]),
    ],
)
def test_other_arms_are_no_factors(document):
    assert found(document) == []
    assert "of a fixed stream" in conclusion.conclude(result_maker.analysed(document))["sentence"]


def test_page_and_data_have_them():
    document = planted(1, 1.05, 0.96, 1.15)
    summary = result_maker.summarised(document)
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema_rs.validator_for({**schema, "$ref": "#/$defs/host", "properties": {}, "required": []}).validate(summary)
    assert summary["factors"][0]["interaction"]["verdict"] == "gain"
    shown = host_page.render(result_maker.analysed(document), summary, True)
    assert "<h2>Two factors" in shown and "SMT off, with transparent huge pages: never" in shown
