# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The most load within a limit of response times."""

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import limits, measures
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions import cautions
from result_maker import accepted, analysed, compared


def most_loads(document):
    return [one for one in compared(document) if one["metric"] == limits.MOST_LOAD]


def at(document, arm, load):
    """The samples of an arm at a load."""
    return [one for one in document["samples"] if (one["arm"], one["parameter"]) == (arm, load)]


def test_sap_serves_650_users_against_550():
    document = studies.sap()
    analysis = analysed(document)
    (one,) = [one for one in analysis.comparisons if one["primary"]]
    assert (one["candidate"]["arm"], one["candidate_value"]) == ("smt_on", 650)
    assert (one["baseline"]["arm"], one["baseline_value"]) == ("smt_off", 550)
    assert one["change"] == pytest.approx(100 / 550) and (one["verdict"], one["unit"], one["n"]) == ("gain", "users", 6)
    assert (one["metric"], one["better"], one["response_limit"]) == ("most_load", "higher", 2.0)
    # Each block says the same: that is no interval.
    assert {one[key] for key in ("ci_low", "ci_high", "change_low", "minimum_detectable")} == {None}
    said = conclusion.conclude(analysis)
    assert said["sentence"] == (
        "Leave SMT on: within 2 s SAP SD serves 650 users with SMT on against 550 with SMT off, +18 % in each block."
    )
    assert said["basis"].endswith(" SAP SD was measured with 550 and 650 users only.")
    # The load that fails is the result.
    assert not any("failed" in words for words in said["cautions"]) and cautions.failures(accepted(document)) == []
    (reason, *_others) = recommendation.recommend(analysis)["reasons"]
    assert (reason["points_to"], reason["text"]) == (
        "on",
        "SAP SD, most users within 2 s: +18 % (no interval) with SMT on, better",
    )


def test_blocks_that_differ_have_an_interval_around_a_load_that_was_measured():
    document = studies.sap()
    at(document, "smt_on", 650)[2]["metrics"]["latency_mean"]["value"] = 2.01
    (one,) = most_loads(document)
    assert (one["candidate_value"], one["baseline_value"]) == (650, 550) and one["change"] == pytest.approx(100 / 550)
    assert one["change_low"] < one["change"] < one["change_high"]
    sentence = conclusion.conclude(analysed(document))["sentence"]
    assert "650 users with SMT on against 550 with SMT off, +18 % (+" in sentence


def test_the_smaller_load_that_is_over_the_limit_ends_the_walk():
    document = studies.sap()
    for sample in at(document, "smt_on", 550):
        sample["metrics"]["latency_mean"]["value"] = 2.1
    # No load is served with SMT on, so that there is nothing to compare with.
    assert most_loads(document) == []
    found = conclusion.conclude(analysed(document))
    assert found["recommendation"] == "undecided"
    (caution,) = found["cautions"]
    assert "the smallest load is over the limit in 6 blocks, and larger ones are within it" in caution


def test_where_no_arm_serves_a_load_a_sample_that_fails_is_a_failure():
    document = studies.sap()
    for sample in document["samples"]:
        sample.update(ok=False, error="no such command", metrics={}, workers=[])
    found = cautions.failures(accepted(document))
    assert [(one["arm"], one["samples"]) for one in found] == [("smt_on", 12), ("smt_off", 12)]


def test_a_load_that_fails_above_one_that_is_over_the_limit_was_not_sustained():
    document = studies.sap()
    for sample in (*at(document, "smt_on", 550), *at(document, "smt_off", 550)):
        sample["metrics"]["latency_mean"]["value"] = 2.5
    assert cautions.failures(accepted(document)) == []


@pytest.mark.parametrize(("fails", "verdict"), [("smt_off", "gain"), ("smt_on", "inconclusive")])
def test_blocks_in_which_one_side_serves_no_load_are_not_left_out_of_the_verdict(fails, verdict):
    document = studies.sap()
    for sample in at(document, fails, 550)[:2]:
        sample["metrics"]["latency_mean"]["value"] = 2.1
    (one,) = most_loads(document)
    assert (one["n"], one["dropped_blocks"], one["verdict"]) == (4, 2, verdict)


def test_a_limit_that_no_load_exceeds_decides_nothing():
    document = studies.sap()
    document["plan"]["workloads"][0]["response_limit"] = 3.0
    document["samples"] = [one for one in document["samples"] if one["parameter"] == 550]
    comparisons = compared(document)
    assert [one["metric"] for one in comparisons if one["primary"]] == ["throughput"]
    (caution,) = conclusion.conclude(analysed(document))["cautions"]
    assert caution.startswith("Each load of SAP SD that was measured is served within 3 s")
    # Nor do too few blocks, however equal they are.
    assert [one["verdict"] for one in most_loads(studies.sap(blocks=3))] == ["inconclusive"]


def test_another_arm_than_smt_keeps_the_baseline():
    document = studies.sap()
    names = {"smt_on": "as_found", "smt_off": "isolated"}
    document["arms"] = [result_maker.arm(name, name, name == "as_found") for name in names.values()]
    document["plan"]["placements"] = {names[arm]: spots for arm, spots in document["plan"]["placements"].items()}
    for sample in document["samples"]:
        sample["arm"] = names[sample["arm"]]
    (one,) = most_loads(document)
    assert (one["baseline_value"], one["candidate_value"], one["verdict"]) == (650, 550, "loss")
    sentence = conclusion.conclude(analysed(document))["sentence"]
    assert "it changes SAP SD, most users within 2 s by −15 % (no interval), worse" in sentence


def test_the_load_that_each_worker_is_offered_is_none_of_the_machine():
    document = studies.sap()
    document["plan"]["workloads"][0]["parameter"]["per_worker"] = True
    assert not [one for one in measures.levels(accepted(document)) if one.metric == limits.MOST_LOAD]
