# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tools print as the time of an operation, from machines of which it is known what SMT does there: the verdict has
the sign of the truth, or nothing is said. A test is named after the form that a tool prints.
"""

from __future__ import annotations

import math
import random

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import custom
from printed_numbers import YIELDS, concluded


def declared(name, unit, **workload):
    """The metric as our own code makes it of what a user writes."""
    entry = {
        "name": "own",
        "argv": ["true"],
        "metric": {"name": name, "unit": unit, "better": "lower", "pattern": "([0-9.]+)"},
        **workload,
    }
    (made,) = custom.declarations([entry])
    return made["metrics"][0]


@pytest.mark.parametrize("gain", YIELDS)
@pytest.mark.parametrize(
    ("name", "unit", "scale"),
    [
        ("go", "ns/op", 1e9),
        ("hyperfine_mean", "s", 1.0),
        ("jmh_avgt", "us/op", 1e6),
        ("pyperf", "ms", 1e3),
        ("google_benchmark", "ns", 1e9),
        ("criterion", "\u00b5s", 1e6),
        ("perf_bench", "usec/op", 1e6),
        ("kernel", "cycles/iter", 2e9),
    ],
)
def test_a_time_of_an_operation_has_the_sign_of_the_truth(name, unit, scale, gain):
    # Two threads of a core do `gain` of the work of one, so an operation of each takes 2 / gain as long.
    truth = {"smt_on": 2 / gain, "smt_off": 1.0}
    found = concluded(declared(name, unit), lambda arm, _count: scale * 1e-6 * truth[arm])
    assert found["recommendation"] == ("on" if gain > 1 else "off"), found["sentence"]


@pytest.mark.parametrize(
    ("name", "unit", "workload"),
    [
        ("latency", "ms", {}),
        ("p99", "us", {}),
        ("response_time", "s", {}),
        ("mean_wait", "ms", {}),
        ("ns_op", "ns/op", {"multithreaded": True}),
        ("errors", "1", {}),
        ("energy", "J", {}),
        ("misses", "1/s", {}),
    ],
)
def test_what_cannot_be_known_is_not_said(name, unit, workload):
    found = concluded(declared(name, unit, **workload), lambda arm, _count: 1.6 if arm == "smt_on" else 1.0)
    assert found["recommendation"] == "not_compared"
    assert any("it is not declared what it is of: set aggregate" in caution for caution in found["cautions"])


def test_where_nothing_was_to_be_compared_nothing_is_missed():
    found = concluded(declared("latency", "ms"), lambda _arm, _count: 1.0, compared=False)
    assert not any("declared" in caution for caution in found["cautions"])


@pytest.mark.parametrize(("aggregate", "choice"), [("max", "off"), ("per_job", "on"), ("per_operation", "on")])
def test_what_is_declared_is_compared(aggregate, choice):
    metric = {**declared("latency", "ms"), "aggregate": aggregate}
    found = concluded(metric, lambda arm, _count: 1.6 if arm == "smt_on" else 1.0)
    assert found["recommendation"] == choice and not any("declared" in caution for caution in found["cautions"])


def test_two_hundred_truths_never_have_the_wrong_sign():
    source = random.Random(7)
    said = 0
    for number in range(200):
        gain = math.exp(source.uniform(math.log(0.6), math.log(1.6)))
        metric = declared(source.choice(["ns_op", "mean", "avgt"]), source.choice(["ns/op", "s", "ms/op", "us"]))
        truth = {"smt_off": math.exp(source.uniform(-12, 6))}
        truth["smt_on"] = truth["smt_off"] * 2 / gain
        found = concluded(metric, lambda arm, _count, of_arm=truth: of_arm[arm], seed=number)
        if found["recommendation"] in ("on", "off"):
            said += 1
            assert found["recommendation"] == ("on" if gain > 1 else "off"), (gain, found["sentence"])
    assert said > 180
