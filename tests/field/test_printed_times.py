# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tools print as the time of an operation, from machines of which it is known what SMT does there: the verdict has
the sign of the truth, or nothing is said.
"""

from __future__ import annotations

import math
import random

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import custom
from printed_numbers import YIELDS, concluded

FORMS = {"go": "ns/op", "hyperfine_mean": "s", "jmh_avgt": "us/op", "pyperf": "ms", "google_benchmark": "ns"}
FORMS |= {"criterion": "\u00b5s", "perf_bench": "usec/op", "kernel": "cycles/iter", "mean": "s", "avgt": "ms/op"}


def declared(name, unit, **workload):
    """The metric as our own code makes it of what a user writes."""
    metric = {"name": name, "unit": unit, "better": "lower", "pattern": "([0-9.]+)"}
    (made,) = custom.declarations([{"name": "own", "argv": ["true"], "metric": metric, **workload}])
    return made["metrics"][0]


@pytest.mark.parametrize(("name", "unit"), FORMS.items())
def test_a_time_of_an_operation_has_the_sign_of_the_truth(name, unit):
    source = random.Random(name)
    gains = [math.exp(source.uniform(math.log(0.6), math.log(1.6))) for _case in range(night.number(1, 20))]
    said = []
    for seed, gain in enumerate([*YIELDS, *gains]):
        # Two threads of a core do `gain` of the work of one, so an operation of each takes 2 / gain as long.
        alone = math.exp(source.uniform(-12, 6))
        truth = {"smt_off": alone, "smt_on": alone * 2 / gain}
        found = concluded(declared(name, unit), lambda arm, _count, of=truth: of[arm], seed=seed)["recommendation"]
        said.append(found in ("on", "off"))
        assert found == ("on" if gain > 1 else "off") or (gain not in YIELDS and not said[-1]), (gain, found)
    assert sum(said) > 0.8 * len(gains)


def slower(arm, _count):
    return 1.6 if arm == "smt_on" else 1.0


@pytest.mark.parametrize(
    ("name", "unit", "workload"),
    [
        *(("latency", "ms", {}), ("p99", "us", {}), ("response_time", "s", {}), ("mean_wait", "ms", {})),
        *(("errors", "1", {}), ("energy", "J", {}), ("misses", "1/s", {}), ("ns_op", "ns/op", {"multithreaded": True})),
    ],
)
def test_what_cannot_be_known_is_not_said(name, unit, workload):
    metric = declared(name, unit, **workload)
    found = concluded(metric, slower)
    assert found["recommendation"] == "not_compared" and any("set aggregate" in one for one in found["cautions"])
    # Where nothing was to be compared nothing is missed.
    assert not any("set aggregate" in one for one in concluded(metric, slower, compared=False)["cautions"])


@pytest.mark.parametrize(("aggregate", "choice"), [("max", "off"), ("per_job", "on"), ("per_operation", "on")])
def test_what_is_declared_is_compared(aggregate, choice):
    found = concluded({**declared("latency", "ms"), "aggregate": aggregate}, slower)
    assert found["recommendation"] == choice and not any("set aggregate" in one for one in found["cautions"])
