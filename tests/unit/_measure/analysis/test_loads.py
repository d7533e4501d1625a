# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From how many streams on SMT helps, and the most load within a limit of response times."""

import types

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import limits, measures, streams
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions import cautions
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_loads import crossovers
from result_maker import accepted, analysed, compared


def curve(analysis, workload):
    return next(one for one in analysis.curves if one.workload == workload)


def crossover(document, workload):
    return curve(analysed(document), workload).crossover


@pytest.fixture(name="published", scope="module")
def of_all_tests():
    return analysed(studies.hp())


def test_published_crossovers(published):
    found = {one.workload: one.crossover for one in published.curves}
    assert {name: (one.streams, crossovers.text(one)) for name, one in found.items()} == {
        "none": (9, "from 9 streams on (8 to 10)"),
        "inner": (8, "from 8 streams on"),
        "outer": (8, "from 8 streams on"),
        "inner_write": (6, "from 6 streams on (5 to 6)"),
        "outer_write": (None, "with 1 and 2 streams, and no longer with 3 to 12"),
    }
    assert {(one.cores, one.measured) for one in found.values()} == {(4, tuple(range(1, 13)))}


@pytest.mark.parametrize(
    ("numbers", "blocks", "status", "streams_from", "text"),
    [
        # Both sides of the number of cores are needed.
        ((1, 2, 4), 6, "unknown", None, "not known: measure streams up to, and above, the 4 cores in both arms"),
        ((5, 8, 12), 6, "some", None, "with 8 and 12 streams, and not with 5"),
        ((4, 7, 8), 6, "found", 8, "from 8 streams on"),
        # Few blocks decide nothing.
        ((4, 5, 12), 3, "undecided", None, "not decided: the comparisons with 4 to 12 streams are not"),
    ],
)
def test_what_some_numbers_of_streams_tell(numbers, blocks, status, streams_from, text):
    document = studies.hp(numbers, blocks=blocks, tests=["inner"])
    found = crossover(document, "inner")
    assert (found.status, found.streams, crossovers.text(found)) == (status, streams_from, text)
    # It does not depend on which arm is the baseline, and one arm alone is no comparison.
    on, off = document["arms"]
    document["arms"] = [{**off, "baseline": True}, {**on, "baseline": False}]
    assert crossover(document, "inner") == found
    document["samples"] = [one for one in document["samples"] if one["arm"] == "smt_on"]
    assert analysed(document).curves == []


def test_the_conclusion_is_that_it_depends_on_how_much_runs_at_once(published):
    found = conclusion.conclude(published)
    assert found.recommendation == recommendation.recommend(published).choice == "by_workload"
    assert found.sentence.startswith("It depends on how much runs at once: SMT helps array, none from 9 streams ")
    worst = "SMT costs most with 9 streams: turning it off changes array, OUTER stream_time by −56.0 % ("
    assert worst in found.sentence and found.sentence.endswith("), better.")


@pytest.mark.parametrize(
    ("numbers", "options", "choice", "words"),
    [
        ((4, 7, 10, 12), {"tests": ["OUTER"]}, "off", ""),
        ((4, 9, 12), {}, "undecided", "is not decided: no number of streams between the 4 cores and the 8 threads"),
        ((4, 7, 12), {"blocks": 3}, "undecided", "is not decided: the comparisons with 4 to 12 streams are not"),
        ((1, 4), {}, "not_compared", ""),
        # Published with 1 to 12 streams it depends; a play that leaves out those between must not say more.
        ((1, 2, 4, 8, 12), {"tests": ["inner", "outer"]}, "by_workload", "array, outer stream_time by −28"),
    ],
)
def test_where_streams_decide_alone_or_nothing(numbers, options, choice, words):
    found = conclusion.conclude(analysed(studies.hp(numbers, **{"tests": ["inner"], **options})))
    assert found.recommendation == choice and words in found.sentence, found.sentence


def factors(by_count, blocks=8):
    """A time of 100 ms with SMT on, and by how much it is longer with SMT off at each number of streams."""

    def model(arm, _spot, placed):
        return [100 if arm == "smt_on" else 100 * by_count[len(placed)]] * len(placed)

    array = {"title": "array", "metrics": studies.STREAM_TIME, "model": model}
    names = [f"free_{count}" for count in by_count]
    return result_maker.result(workloads={"a": array}, shape=(1, 4, 2), blocks=blocks, noise=0.002, names=names)


MIDDLE = {3: 1, 4: 1, 5: 0.95, 6: 1.1, 8: 1.3, 10: 1.2, 11: 1.1, 12: 1.0}


@pytest.mark.parametrize(
    ("by_count", "opening", "text"),
    [
        (MIDDLE, "It depends on how much runs at once", "with 6 to 11 streams, and no longer with 12"),
        ({2: 2, 4: 1.2, 6: 1, 8: 1, 12: 1}, "Leave SMT on", "with 2 and 4 streams, and no longer with 6 to 12"),
        (dict.fromkeys((5, 6, 8, 12), 1.2), "Leave SMT on", "with each number of streams measured (5 to 12)"),
        (dict.fromkeys((5, 6, 12), 0.8), "Turn SMT off", "with none of the numbers of streams measured (5 to 12)"),
        ({4: 1, 5: 0.8, 6: 0.9, 12: 1}, "Turn SMT off", "with no number of streams up to 12"),
    ],
)
def test_the_numbers_of_streams_with_which_smt_helps_are_named(by_count, opening, text):
    analysis = analysed(factors(by_count))
    assert crossovers.text(curve(analysis, "a").crossover) == text
    assert conclusion.conclude(analysis).sentence.startswith(f"{opening}: SMT helps array {text}.")


def test_what_is_not_decided_is_no_number_with_which_smt_does_not_help():
    def found(verdicts):
        by_streams = {count: types.SimpleNamespace(verdict=verdict, ratio=1) for count, verdict in verdicts.items()}
        return crossovers.text(streams.crossover(by_streams, 4, 8))

    on, open_one, same = "gain", "inconclusive", "equivalent"
    assert found({4: same, 6: open_one, 12: same}) == "not decided: the comparison with 6 streams is not"
    assert found({4: same, 6: on, 7: open_one, 12: same}).endswith(", and no longer with 12, not decided with 7")
    assert found({1: on, 2: same}) == "with 1 stream, and no longer with 2"


def test_the_cores_are_those_that_streams_could_use():
    document = studies.hp((2, 3), tests=["inner"])
    document["plan"]["placements"]["smt_off"]["free_2"]["workers"] = ["0,2"] * 2
    assert streams.cores(accepted(document)) == 2
    del document["plan"]["placements"]
    assert streams.cores(accepted(document)) == 4
    document["facts"]["cores"] = None
    assert crossovers.text(crossover(document, "inner")) == "not known: the number of cores is unknown"


def most_loads(document):
    return [one for one in compared(document) if one["metric"] == limits.MOST_LOAD]


def at(document, arm, load):
    """The samples of an arm at a load."""
    return [one for one in document["samples"] if (one["arm"], one["parameter"]) == (arm, load)]


def test_sap_serves_650_users_against_550():
    document = studies.sap()
    analysis = analysed(document)
    (one,) = [one.described() for one in analysis.comparisons if one.primary]
    assert (one["candidate"]["arm"], one["candidate_value"], one["baseline_value"]) == ("smt_on", 650, 550)
    assert one["change"] == pytest.approx(100 / 550) and (one["verdict"], one["unit"], one["n"]) == ("gain", "users", 6)
    assert (one["metric"], one["better"], one["response_limit"]) == ("most_load", "higher", 2.0)
    # Each block says the same: that is no interval.
    assert {one[key] for key in ("ci_low", "ci_high", "change_low", "minimum_detectable")} == {None}
    assert conclusion.conclude(analysis).basis.endswith(" SAP SD was measured with 550 and 650 users only.")
    # The load that fails is the result.
    assert cautions.failures(accepted(document)) == []
    reason = recommendation.recommend(analysis).reasons[0]
    assert reason.text == "SAP SD, most users within 2 s: +18 % (no interval) with SMT on, better"


def test_blocks_that_differ_have_an_interval_around_a_load_that_was_measured():
    document = studies.sap()
    at(document, "smt_on", 650)[2]["metrics"]["latency_mean"]["value"] = 2.01
    (one,) = most_loads(document)
    assert (one["candidate_value"], one["baseline_value"]) == (650, 550) and one["change"] == pytest.approx(100 / 550)
    assert one["change_low"] < one["change"] < one["change_high"]


def test_the_smaller_load_that_is_over_the_limit_ends_the_walk():
    document = studies.sap()
    for sample in at(document, "smt_on", 550):
        sample["metrics"]["latency_mean"]["value"] = 2.1
    # No load is served with SMT on, so that there is nothing to compare with.
    assert most_loads(document) == []
    found = conclusion.conclude(analysed(document))
    assert found.recommendation == "undecided"
    (caution,) = found.cautions
    assert "the smallest load is over the limit in 6 blocks, and larger ones are within it" in caution


def test_a_sample_that_fails_is_a_failure_where_no_arm_serves_a_load_and_none_above_one_that_is_over_the_limit():
    document = studies.sap()
    for sample in (*at(document, "smt_on", 550), *at(document, "smt_off", 550)):
        sample["metrics"]["latency_mean"]["value"] = 2.5
    assert cautions.failures(accepted(document)) == []
    for sample in document["samples"]:
        sample.update(ok=False, error="no such command", metrics={}, workers=[])
    found = cautions.failures(accepted(document))
    assert [(one.arm, one.samples) for one in found] == [("smt_on", 12), ("smt_off", 12)]


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
    (caution,) = conclusion.conclude(analysed(document)).cautions
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


def test_the_load_that_each_worker_is_offered_is_none_of_the_machine():
    document = studies.sap()
    document["plan"]["workloads"][0]["parameter"]["per_worker"] = True
    assert not [one for one in measures.levels(accepted(document)) if one.metric == limits.MOST_LOAD]
