# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From how many streams on SMT helps, from the samples that a plan takes: HP's five tests, and what cannot be known."""

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import streams
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion, recommendation
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_loads import crossovers
from result_maker import accepted, analysed


def curve(analysis, workload):
    return next(one for one in analysis.curves if one.workload == workload)


def crossover(document, workload):
    return curve(analysed(document), workload).crossover


@pytest.fixture(name="published", scope="module")
def of_all_tests():
    return analysed(studies.hp())


@pytest.mark.parametrize(
    ("workload", "streams_from", "text"),
    [
        ("none", 9, "from 9 streams on (8 to 10)"),
        ("inner", 8, "from 8 streams on"),
        ("outer", 8, "from 8 streams on"),
        ("inner_write", 6, "from 6 streams on (5 to 6)"),
        ("outer_write", None, "with 1 and 2 streams, and no longer with 3 to 12"),
    ],
)
def test_published_crossovers(published, workload, streams_from, text):
    found = curve(published, workload).crossover
    assert (found.streams, crossovers.text(found)) == (streams_from, text)
    assert found.cores == 4 and found.measured == tuple(range(1, 13))


@pytest.mark.parametrize(
    ("numbers", "blocks", "status", "streams_from", "text"),
    [
        # Both sides of the number of cores are needed.
        ((1, 2, 4), 6, "unknown", None, "not known: measure streams up to, and above, the 4 cores in both arms"),
        ((5, 8, 12), 6, "some", None, "with 8 and 12 streams, and not with 5"),
        ((4, 7, 8), 6, "found", 8, "from 8 streams on"),
        # Few blocks decide nothing.
        ((4, 5, 12), 1, "undecided", None, "not decided: the comparisons with 4 to 12 streams are not"),
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
    assert found["recommendation"] == recommendation.recommend(published)["choice"] == "by_workload"
    assert found["sentence"].startswith(
        "It depends on how much runs at once: SMT helps array, none from 9 streams on (8 to 10); array, inner and"
        " array, outer from 8 streams on; array, INNER from"
    )
    worst = "SMT costs most with 9 streams: turning it off changes array, OUTER stream_time by −56.0 % ("
    assert worst in found["sentence"] and found["sentence"].endswith("), better.")


@pytest.mark.parametrize(
    ("numbers", "options", "choice", "words"),
    [
        ((4, 7, 10, 12), {"tests": ["OUTER"]}, "off", ""),
        ((4, 9, 12), {}, "undecided", "is not decided: no number of streams between the 4 cores and the 8 threads"),
        ((4, 8, 12), {}, "undecided", "is not decided: no number of streams between the 4 cores and the 8 threads"),
        ((4, 7, 12), {"blocks": 3}, "undecided", "is not decided: the comparisons with 4 to 12 streams are not"),
        ((1, 4), {}, "not_compared", ""),
        # Published with 1 to 12 streams it depends; a play that leaves out those between must not say more.
        ((1, 2, 4, 8, 12), {"tests": ["inner", "outer"]}, "by_workload", "array, outer stream_time by −28"),
        (range(1, 13), {"tests": ["inner", "outer"]}, "by_workload", "array, inner stream_time by −31"),
    ],
)
def test_where_streams_decide_alone_or_nothing(numbers, options, choice, words):
    found = conclusion.conclude(analysed(studies.hp(numbers, **{"tests": ["inner"], **options})))
    assert found["recommendation"] == choice and words in found["sentence"], found["sentence"]


def factors(by_count, blocks=8):
    """A time of 100 ms with SMT on, and by how much it is longer with SMT off at each number of streams."""
    array = {
        "title": "array",
        "metrics": studies.STREAM_TIME,
        "model": lambda arm, _spot, placed: [100 if arm == "smt_on" else 100 * by_count[len(placed)]] * len(placed),
    }
    names = [f"free_{count}" for count in by_count]
    return result_maker.result(workloads={"a": array}, shape=(1, 4, 2), blocks=blocks, noise=0.002, names=names)


GAIN_IN_THE_MIDDLE = {5: 0.95, 6: 1.1, 7: 1.2, 8: 1.3, 9: 1.3, 10: 1.2, 11: 1.1, 12: 1.0}


@pytest.mark.parametrize(
    ("by_count", "opening", "text"),
    [
        (
            dict.fromkeys(range(1, 5), 1) | GAIN_IN_THE_MIDDLE,
            "It depends on how much runs at once",
            "with 6 to 11 streams, and no longer with 12",
        ),
        ({2: 2, 4: 1.2, 6: 1, 8: 1, 12: 1}, "Leave SMT on", "with 2 and 4 streams, and no longer with 6 to 12"),
        (dict.fromkeys((5, 6, 8, 12), 1.2), "Leave SMT on", "with each number of streams measured (5 to 12)"),
        (dict.fromkeys((5, 6, 12), 0.8), "Turn SMT off", "with none of the numbers of streams measured (5 to 12)"),
        ({4: 1, 5: 0.8, 6: 0.9, 12: 1}, "Turn SMT off", "with no number of streams up to 12"),
    ],
)
def test_the_numbers_of_streams_with_which_smt_helps_are_named(by_count, opening, text):
    analysis = analysed(factors(by_count))
    assert crossovers.text(curve(analysis, "a").crossover) == text
    assert conclusion.conclude(analysis)["sentence"].startswith(f"{opening}: SMT helps array {text}.")


def test_what_is_not_decided_is_no_number_with_which_smt_does_not_help():
    def found(verdicts):
        by_streams = {count: {"verdict": verdict, "ratio": 1} for count, verdict in verdicts.items()}
        return crossovers.text(streams.crossover(by_streams, 4, 8))

    on, open_one, same = "gain", "inconclusive", "equivalent"
    assert found({4: same, 6: open_one, 12: same}) == "not decided: the comparison with 6 streams is not"
    assert found({4: same, 6: on, 7: open_one, 12: same}) == (
        "with 6 streams, and no longer with 12, not decided with 7"
    )
    assert found({1: on, 2: same}) == "with 1 stream, and no longer with 2"


def test_the_cores_are_those_that_streams_could_use():
    document = studies.hp((2, 3, 8), tests=["inner"])
    for count in (2, 8):
        document["plan"]["placements"]["smt_off"][f"free_{count}"]["workers"] = ["0,2"] * count
    assert streams.cores(accepted(document)) == 2
    del document["plan"]["placements"]
    assert streams.cores(accepted(document)) == 4
    document["facts"]["cores"] = None
    assert crossovers.text(crossover(document, "inner")) == "with 8 streams, and not with 2 and 3"
    document["samples"] = [one for one in document["samples"] if one["placement"] != "free_8"]
    assert crossovers.text(crossover(document, "inner")) == "not known: the number of cores is unknown"
