# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The raw figures of published studies give their authors' conclusions, in the first sentence."""

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion
from result_maker import analysed


def concluded(document):
    return conclusion.conclude(analysed(document))


def test_pythian_cpus_that_share_a_core_against_the_kernel():
    found = concluded(studies.pythian_pinned())
    assert found["sentence"].startswith("CPUs 0 and 1 share a core, and the kernel says otherwise. ")
    assert "Nothing could be measured" not in found["sentence"] and found["statements"][0] in found["sentence"]


def test_cpus_that_share_a_core_as_the_kernel_says():
    sentence = concluded(studies.pythian_pinned((1, 2, 2)))["sentence"]
    assert sentence.startswith("CPUs 0 and 1 share a core, as the kernel says. ")


def test_pythian_two_streams_that_the_scheduler_places_did_nearly_what_two_cores_do():
    """Its 40 rates are from 113 to 119 MB/s each, against 119 of one stream alone."""
    assert concluded(studies.pythian_free())["statements"] == [
        "gzip of a fixed stream, 2 streams: 233.7 MB/s (232.2 to 235.2).",
        "SMT on and off were not compared here: no core of this host has a second thread by the kernel's topology.",
        "There is no comparison to be sure of.",
    ]


@pytest.mark.parametrize(("rate", "words"), [(118.0, None), (59.5, "CPUs 0 and 1 are one CPU, ")])
def test_cpus_that_share_nothing_or_all(monkeypatch, rate, words):
    monkeypatch.setitem(studies.PYTHIAN, "cpus_0_1", rate)
    sentence = concluded(studies.pythian_pinned())["sentence"]
    assert sentence.startswith(words) if words else "CPUs 0 and 1" not in sentence


def test_2014_two_threads_on_a_core_take_half_as_long_again():
    sentence = concluded(studies.threads_2014())["sentence"]
    assert sentence.startswith("As it is now, two workers on one core took 1.52 times (1.52 to 1.52) as long as two on")
    costs = concluded(studies.threads_2014())["costs"]
    assert any("a worker's wall_time changes by +52.1 %" in words for words in costs)


def test_2014_the_cure_is_said_although_the_whole_machine_was_not_compared():
    found = concluded(studies.busy_2014())
    assert found["recommendation"] == "not_compared" and found["sentence"] == (
        "With one worker alone, turning SMT off changes busy loop beside others wall_time by −34.2 % (−34.3 to"
        " −34.1 %), better. The whole machine was not compared, so nothing is recommended."
    )
    assert not any("busy loop" in words for words in found["costs"]) and found["basis"].startswith("6 interleaved")


def test_2014_the_cure_is_said_before_what_the_cure_leaves_as_it_is():
    sentence = concluded(studies.both_2014())["sentence"]
    assert sentence.startswith("With SMT on, two workers on one core took 1.52 times ")
    shared, cure, same = map(sentence.index, ("took 1.52 times", "wall_time by −34.2 %", "stays within 1 % either way"))
    assert shared < cure < same


def test_arm_the_room_that_usage_promises_is_not_there():
    """The blog's sketch: 14 more requests by usage, 4 in truth."""
    at = "requests, load 0.3 of each CPU"
    sentence = concluded(studies.arm())["sentence"]
    assert sentence.startswith(
        f"{at}, every online thread busy: by CPU usage there is room for 14 MB/s more, in truth for 4. "
    )


@pytest.mark.parametrize(("with_smt", "said"), [(150.0, True), (250.0, False)])
def test_what_smt_off_does_to_a_half_idle_machine_is_said_where_it_is_the_opposite(with_smt, said):
    rates = {("smt_on", "all_threads"): 500.0, ("smt_off", "all_threads"): 400.0, ("smt_on", "cores"): with_smt}
    tasks = {
        "title": "tasks",
        "metrics": studies.RATES,
        "model": lambda arm, spot, placed: [rates.get((arm, spot), 200.0) / len(placed)] * len(placed),
    }
    document = result_maker.result(workloads={"tasks": tasks}, blocks=8, noise=0.002, names=["cores", "all_threads"])
    words = "With two workers on two cores turning SMT off changes tasks by +33."
    assert any(cost.startswith(words) for cost in concluded(document)["costs"]) == said


def test_co_runners_of_the_plan_are_no_background_load():
    document = result_maker.result()
    for sample in document["samples"]:
        for worker in sample["workers"]:
            worker["cpu_seconds"] = 0.5 * worker["wall_seconds"]
    assert any("too busy" in words for words in concluded(document)["cautions"])
    document["plan"]["workloads"][0]["co_runners"] = 6
    assert not any("too busy" in words for words in concluded(document)["cautions"])
