# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A limit of response times that one arm meets with no load, or not in each block: an answer, in words."""

import datetime

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions import cautions
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import hardware_classes
from result_maker import accepted, analysed

NOW = datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC)
ON_ALONE = "ithin 2 s SAP SD serves 650 users with SMT on, and with SMT off none of the loads measured"
SMALLER = (
    "No load of SAP SD that was measured is served within 2 s with SMT off, every online thread busy{}: measure smaller"
    " loads."
)


def sap(over=2.5, blocks=6, in_blocks=None, **options):
    """SAP's figures, but for the response time of 550 users with SMT off; they fail where it is None."""
    document = {**studies.sap(blocks), **options}
    for sample in document["samples"]:
        if (sample["arm"], sample["parameter"]) == ("smt_off", 550) and sample["block"] < (in_blocks or blocks):
            if over is None:
                sample.update(ok=False, error="no answer", metrics={}, workers=[])
            else:
                sample["metrics"]["latency_mean"]["value"] = over
    return document


def with_gzip(document, share=0.45):
    """The same with gzip beside it, which gains where ``share`` is below a half."""
    gzip = {**result_maker.GZIP, "share": share, "title": "gzip"}
    other = result_maker.result(workloads={"gzip": gzip}, shape=(1, 4, 2), blocks=6, noise=0.002, names=["all_threads"])
    document["plan"]["workloads"] += other["plan"]["workloads"]
    return {**document, "samples": [*document["samples"], *other["samples"]]}


@pytest.mark.parametrize("over", [2.5, None])
def test_a_limit_that_one_arm_never_meets_is_an_answer(over):
    analysis = analysed(sap(over))
    unserved = "6 of its samples failed: the response time was not reached"
    why = f" ({unserved})" if over else f" (6 of its samples failed: no answer; {unserved})"
    found, made = conclusion.conclude(analysis), recommendation.recommend(analysis)
    assert found["sentence"] == f"Leave SMT on: w{ON_ALONE}."
    # A load that fails is the result.
    assert cautions.failures(analysis.result) == [] and SMALLER.format(why) in found["cautions"]
    assert (made["choice"], made["decided_by"], made["best"]) == ("on", "performance", "smt_on")
    (reason, *_others) = made["reasons"]
    assert (reason["points_to"], reason["verdict"], reason["text"]) == ("on", "loss", f"w{ON_ALONE}")
    assert made["pairs"] == [{"arm": "smt_off", "against": "smt_on", "outcome": "worse"}]


def slow_everywhere():
    document = sap()
    for sample in document["samples"]:
        if sample["ok"]:
            sample["metrics"]["latency_mean"]["value"] = 3.0
    return document


def with_isolated():
    document = studies.sap()
    document["samples"] += [{**one, "arm": "isolated"} for one in sap()["samples"] if one["arm"] == "smt_off"]
    document["arms"].append(result_maker.arm("isolated", "isolated", False))
    document["plan"]["placements"]["isolated"] = document["plan"]["placements"]["smt_off"]
    return document


@pytest.mark.parametrize(
    ("document", "choice", "part", "words"),
    [
        # What gains beside it does not decide alone.
        (with_gzip(sap()), "by_workload", "sentence", f"It depends on the work: w{ON_ALONE}; with every online thread"),
        (sap(blocks=3), "undecided", "sentence", f"Not decided: w{ON_ALONE}, not decided by 3 of at least 4 blocks."),
        (sap(blocks=3), "undecided", "next", "Measure more blocks: there are too few to say how many it would take."),
        (slow_everywhere(), "not_compared", "sentence", "no load that was measured is served within its limit."),
        (sap(blocks=8, in_blocks=3), "on", "sentence", "with SMT off, +18 % in 5 of 8 blocks."),
        (
            sap(blocks=8, in_blocks=3),
            "on",
            "cautions",
            SMALLER.format(", in 3 of 8 blocks, which are left out of its comparisons"),
        ),
        (with_isolated(), "on", "sentence", "650 users with SMT on, and with isolated none of the loads"),
        (with_isolated(), "on", "sentence", "SMT on, the baseline, is the best of the 3 arms: each other one costs."),
    ],
)
def test_where_it_is_not_met_is_said(document, choice, part, words):
    analysis = analysed(document)
    said = conclusion.conclude(analysis)[part]
    assert any(words in one for one in ([said] if isinstance(said, str) else said)), said
    made = recommendation.recommend(analysis)
    assert made["choice"] == choice
    if len(document["arms"]) > 2:
        assert [(one["name"], one["outcome"]) for one in made["arms"]] == [("isolated", "worse")]


def test_a_class_decides_with_it():
    documents = [with_gzip(sap(host=host)) for host in "ab"]
    rows = [hardware_classes.row(result_maker.summarised(one), f"{one['host']}.html") for one in documents]
    assert [one["title"] for one in hardware_classes.by_class(rows, 0.01, 0.95)] == ["depends on the work"]
    assert [one["recommendation"] for one in hardware_classes.by_class(rows[:1], 0.01, 0.95)] == ["undecided"]
    for choice, made in (("by_workload", documents), ("on", [sap(host=host) for host in "ab"])):
        concluded = [decisions.conclude(accepted(one), NOW) for one in made]
        assert {one.choice for one in concluded} == {choice}
        (found,) = decisions.decisions(concluded, NOW).values()
        assert found["decision"] == {"on": "enabled"}.get(choice)
