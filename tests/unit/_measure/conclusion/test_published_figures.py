# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The raw figures of published studies give their authors' conclusions, in the first sentence."""

import pytest
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from result_maker import analysed, result


def concluded(document):
    return conclusion.conclude(analysed(document))


@pytest.mark.parametrize(
    ("rate", "shape", "words"),
    [
        # Pythian: CPUs that share a core against the kernel.
        (None, (1, 4, 1), "CPUs 0 and 1 share a core, and the kernel says otherwise. "),
        (None, (1, 2, 2), "CPUs 0 and 1 share a core, as the kernel says. "),
        (118.0, (1, 4, 1), None),
        (59.5, (1, 4, 1), "CPUs 0 and 1 are one CPU, "),
    ],
)
def test_pythian_what_two_cpus_share(monkeypatch, rate, shape, words):
    if rate:
        monkeypatch.setitem(studies.PYTHIAN, "cpus_0_1", rate)
    sentence = concluded(studies.pythian_pinned(shape))["sentence"]
    assert sentence.startswith(words) if words else "CPUs 0 and 1" not in sentence


def test_pythian_two_streams_that_the_scheduler_places_did_nearly_what_two_cores_do():
    """Its 40 rates are from 113 to 119 MB/s each, against 119 of one stream alone."""
    found = concluded(studies.pythian_free())
    assert found["recommendation"] == "not_compared"
    assert found["statements"][0] == "gzip of a fixed stream, 2 streams: 233.7 MB/s (232.2 to 235.2)."


def test_2014_two_threads_on_a_core_take_half_as_long_again_and_the_cure_is_said_although_not_all_was_compared():
    found = concluded(studies.threads_2014())
    assert "took 1.52 times (1.52 to 1.52) as long as two on" in found["sentence"]
    assert any("a worker's wall_time changes by +52.1 %" in words for words in found["costs"])
    found = concluded(studies.busy_2014())
    assert found["recommendation"] == "not_compared"
    assert "busy loop beside others wall_time by −34.2 % (−34.3 to −34.1 %), better." in found["sentence"]
    assert not any("busy loop" in words for words in found["costs"]) and found["basis"].startswith("6 interleaved")
    # It is said before what the cure leaves as it is.
    sentence = concluded(studies.both_2014())["sentence"]
    shared, cure, same = map(sentence.index, ("took 1.52 times", "wall_time by −34.2 %", "stays within 1 % either"))
    assert shared < cure < same


def test_arm_the_room_that_usage_promises_is_not_there():
    """The blog's sketch: 14 more requests by usage, 4 in truth."""
    assert "room for 14 MB/s more, in truth for 4. " in concluded(studies.arm())["sentence"]


@pytest.mark.parametrize(("with_smt", "said"), [(150.0, True), (250.0, False)])
def test_what_smt_off_does_to_a_half_idle_machine_is_said_where_it_is_the_opposite(with_smt, said):
    rates = {("smt_on", "all_threads"): 500.0, ("smt_off", "all_threads"): 400.0, ("smt_on", "cores"): with_smt}
    tasks = {"title": "tasks", "metrics": studies.RATES}
    tasks["model"] = lambda arm, spot, placed: [rates.get((arm, spot), 200.0) / len(placed)] * len(placed)
    costs = concluded(result(workloads={"tasks": tasks}, blocks=8, noise=0.002, names=["cores", "all_threads"]))[
        "costs"
    ]
    words = "With two workers on two cores turning SMT off changes tasks by +33."
    assert any(cost.startswith(words) for cost in costs) == said
