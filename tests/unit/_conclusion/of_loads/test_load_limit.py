# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A limit of response times that one arm meets with no load, or not in each block: an answer, in words."""

from __future__ import annotations

import dataclasses
import datetime

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion.of_cautions import cautions
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.deciding import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import hardware_classes
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
    document = sap(over)
    unserved = "6 of its samples failed: the response time was not reached"
    why = f" ({unserved})" if over else f" (6 of its samples failed: no answer; {unserved})"
    found, made = conclusion.conclude(analysed(document)), recommendation.recommend(analysed(document))
    assert found["sentence"] == f"Leave SMT on: w{ON_ALONE}."
    assert found["basis"].startswith("6 interleaved blocks, paired")
    # A load that fails is the result.
    assert cautions.failures(accepted(document)) == []
    assert SMALLER.format(why) in found["cautions"]
    assert (made["choice"], made["decided_by"]) == ("on", "performance")
    (reason, *_others) = made["reasons"]
    assert (reason["points_to"], reason["verdict"], reason["text"]) == ("on", "loss", f"w{ON_ALONE}")
    assert made["pairs"] == [{"arm": "smt_off", "against": "smt_on", "outcome": "worse"}] and made["best"] == "smt_on"


def test_what_gains_beside_it_does_not_decide_alone():
    found = analysed(with_gzip(sap()))
    said = conclusion.conclude(found)
    assert said["sentence"].startswith(f"It depends on the work: w{ON_ALONE}; with every online thread busy, turning")
    assert recommendation.recommend(found)["choice"] == "by_workload"


def test_too_few_blocks_are_not_decided():
    found = conclusion.conclude(analysed(sap(blocks=3)))
    assert found["sentence"] == f"Not decided: w{ON_ALONE}, not decided by 3 of at least 4 blocks."
    assert found["next"] == "Measure more blocks: there are too few to say how many it would take."


def test_where_no_arm_meets_the_limit_that_is_the_reason():
    document = sap()
    for sample in document["samples"]:
        if sample["ok"]:
            sample["metrics"]["latency_mean"]["value"] = 3.0
    assert (
        "SMT on and off were not compared here: no load that was measured is served within its limit."
        in (conclusion.conclude(analysed(document))["sentence"])
    )


def test_an_answer_of_some_blocks_says_of_how_many():
    found = conclusion.conclude(analysed(sap(blocks=8, in_blocks=3)))
    assert "650 users with SMT on against 550 with SMT off, +18 % in 5 of 8 blocks." in found["sentence"]
    assert SMALLER.format(", in 3 of 8 blocks, which are left out of its comparisons") in found["cautions"]


def test_another_arm_that_never_meets_the_limit_is_one_that_costs():
    document = studies.sap()
    added = [{**one, "arm": "isolated"} for one in sap()["samples"] if one["arm"] == "smt_off"]
    document["samples"] += added
    document["arms"].append(result_maker.arm("isolated", "isolated", False))
    document["plan"]["placements"]["isolated"] = document["plan"]["placements"]["smt_off"]
    found, made = conclusion.conclude(analysed(document)), recommendation.recommend(analysed(document))
    assert "Within 2 s SAP SD serves 650 users with SMT on, and with isolated none of the loads" in found["sentence"]
    assert found["sentence"].startswith("SMT on, the baseline, is the best of the 3 arms: each other one costs.")
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


def test_hosts_that_decide_together_decide_with_it():
    open_ones = [
        decisions.conclude(accepted({**with_gzip(sap()), "host": host, "samples": samples}), NOW)
        for host in "abcde"
        for samples in [[one for one in with_gzip(sap())["samples"] if one["workload"] == "gzip" and one["block"] < 3]]
    ]
    assert {one.choice for one in open_ones} == {"undecided"}

    def decided(conclusions):
        (found,) = decisions.decisions(conclusions, NOW).values()
        return found["decision"]

    assert decided(open_ones) == "disabled"
    by_one = decisions.conclude(accepted(sap()), NOW).by_one
    assert decided([dataclasses.replace(one, by_one=by_one) for one in open_ones]) is None
