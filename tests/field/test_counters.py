# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of tools that read a processor's counters, each tried on ours. A test is named after its source."""

from __future__ import annotations

import json

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import perf_counters

WHOLE = {"topdown-retiring": 150.0, "topdown-bad-spec": 30.0, "topdown-fe-bound": 120.0, "topdown-be-bound": 300.0}


def thread(**counts):
    """The rates of a CPU of which perf printed these counts beside its cycles and instructions."""
    printed = {"cycles": 100.0, "instructions": 50.0, **counts.pop("of", {}), **counts}
    lines = [json.dumps({"cpu": "0", "counter-value": str(value), "event": event}) for event, value in printed.items()]
    return perf_counters.by_core(perf_counters.parse("\n".join(lines)), [(0, 1)])["cpus"]["0"]


@pytest.mark.parametrize("scale", [0.1, 1.96, 3.0])
def test_pmu_tools_47_shares_above_one_are_no_shares(scale):
    found = thread(slots=600.0, of={event: value * scale for event, value in WHOLE.items()})
    assert "topdown" not in found and found["ipc"] == 0.5
    waited = thread(of={"stalled-cycles-backend": 196.0, "stalled-cycles-frontend": 20.0})
    assert waited["stalls"] == {"frontend_stalled": 0.2}


@pytest.mark.parametrize("slots", [0.0, 600.0])
def test_intel_perfmon_318_all_of_them_zero(slots):
    """Every share zero is an event that was not counted, and not a thread that did nothing."""
    assert "topdown" not in thread(slots=slots, of=dict.fromkeys(WHOLE, 0.0))


@pytest.mark.parametrize("missing", WHOLE)
def test_pmu_tools_125_some_of_the_four_are_missing(missing):
    assert thread(slots=600.0, of=WHOLE)["topdown"]["retiring"] == 0.25
    assert "topdown" not in thread(slots=600.0, of={**WHOLE, missing: "<not counted>"})


@pytest.mark.parametrize(
    "names",
    [
        ["topdown-total-slots", "topdown-slots-retired", "topdown-fetch-bubbles", "topdown-recovery-bubbles"],
        ["topdown-retiring", "topdown-bad-spec", "topdown-fe-bound", "topdown-be-bound"],
    ],
    ids=["before Ice Lake", "a core without slots"],
)
def test_intel_perfmon_78_shares_of_a_core_are_not_those_of_a_thread(tmp_path, names):
    place = tmp_path / "sys/bus/event_source/devices/cpu/events"
    place.mkdir(parents=True)
    for name in names:
        (place / name).write_text("event=0x00\n")
    assert "topdown" not in perf_counters.events(perf_counters.HostFs(str(tmp_path)))
