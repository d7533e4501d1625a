# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Typical values, means and tails that say opposite things."""

from __future__ import annotations

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion.of_cautions import spread
from result_maker import analysed, compared

ANSWERS = {
    "title": "answers of my service",
    "metrics": {
        "latency_median": {"unit": "ms", "better": "lower", "aggregate": "mean"},
        "latency_p99": {"unit": "ms", "better": "lower", "aggregate": "max"},
    },
}


def answers(typical, tail=(9.0, 9.0), slow=0, slowest=3.2, blocks=12):
    """Answers with SMT on and off: their typical values, their tails, and how many blocks of SMT off are slow."""
    workload = {
        **ANSWERS,
        "model": lambda arm, _spot, placed: [typical[arm == "smt_off"]] * len(placed),
        "further": lambda arm, _spot: {"latency_p99": tail[arm == "smt_off"]},
    }
    document = result_maker.result(
        workloads={"service": workload}, shape=(1, 2, 2), blocks=blocks, noise=0.002, names=["all_threads"]
    )
    for sample in [one for one in document["samples"] if one["arm"] == "smt_off"][:slow]:
        sample["metrics"]["latency_median"]["value"] = slowest
    return document


def test_a_typical_value_that_falls_while_the_mean_rises():
    document = answers((1.205, 1.170), slow=2)
    (found,) = spread.found(compared(document))
    assert found["against"] == "mean" and found["change"] == pytest.approx(-0.028, abs=0.004)
    assert found["against_change"] == pytest.approx(0.252, abs=0.005)
    _of_each, caution = conclusion.conclude(analysed(document))["cautions"]
    assert "the typical latency_median falls by 2.8 %, the mean rises by 25 %." in caution


def test_a_typical_value_that_falls_while_the_tail_rises():
    (found,) = spread.found(compared(answers((1.2, 1.1), tail=(3.0, 3.3))))
    assert (found["metric"], found["against"]) == ("latency_median", "latency_p99")
    assert found["change"] < 0 < found["against_change"] == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    "document",
    [
        answers((1.2, 1.1)),
        # The tail and the mean rise with the typical value, or by less than the margin.
        answers((1.1, 1.2), tail=(3.0, 3.3), slow=2),
        answers((1.2, 1.1), tail=(3.0, 3.01)),
        answers((1.2, 1.14), slow=2, slowest=1.45),
        # One slow block leaves the typical value undecided, or the mean on its side.
        answers((1.2, 1.1), slow=1, blocks=40),
    ],
)
def test_what_agrees_is_not_named(document):
    assert spread.found(compared(document)) == []
