# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of tools that read a processor's counters, each tried on ours."""

from __future__ import annotations

import json

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import perf_counters

WHOLE = {"topdown-retiring": 150.0, "topdown-bad-spec": 30.0, "topdown-fe-bound": 120.0, "topdown-be-bound": 300.0}
SHARES = {"retiring": 0.25, "bad_speculation": 0.05, "frontend_bound": 0.2, "backend_bound": 0.5}
WAITED = {"stalled-cycles-backend": 196.0, "stalled-cycles-frontend": 20.0}


@pytest.mark.parametrize(
    ("counts", "key", "expected"),
    [
        pytest.param({"slots": 600.0, **WHOLE}, "topdown", SHARES, id="the whole"),
        # Shares above one are no shares.
        *(
            pytest.param({"slots": slots, **WHOLE}, "topdown", None, id="pmu_tools_47")
            for slots in (6000.0, 306.0, 200.0)
        ),
        pytest.param(WAITED, "stalls", {"frontend_stalled": 0.2}, id="pmu_tools_47_stalls"),
        # Every share zero is an event that was not counted, and not a thread that did nothing.
        *(
            pytest.param({"slots": slots, **dict.fromkeys(WHOLE, 0.0)}, "topdown", None, id="intel_perfmon_318")
            for slots in (0.0, 600.0)
        ),
        *(
            pytest.param({"slots": 600.0, **WHOLE, one: "<not counted>"}, "topdown", None, id="pmu_tools_125")
            for one in WHOLE
        ),
    ],
)
def test_what_a_thread_did_by_what_perf_printed(counts, key, expected):
    printed = {"cycles": 100.0, "instructions": 50.0, **counts}
    lines = [json.dumps({"cpu": "0", "counter-value": str(value), "event": event}) for event, value in printed.items()]
    found = perf_counters.by_core(perf_counters.parse("\n".join(lines)), [(0, 1)])["cpus"]["0"]
    assert found["ipc"] == 0.5 and found.get(key) == expected


BEFORE_ICE_LAKE = ["topdown-total-slots", "topdown-slots-retired", "topdown-fetch-bubbles", "topdown-recovery-bubbles"]


@pytest.mark.parametrize("names", [BEFORE_ICE_LAKE, list(WHOLE)], ids=["before Ice Lake", "a core without slots"])
def test_intel_perfmon_78_shares_of_a_core_are_not_those_of_a_thread(tmp_path, names):
    root = sysfs_tree.write(
        tmp_path, {f"sys/bus/event_source/devices/cpu/events/{one}": "event=0x00\n" for one in names}
    )
    assert "topdown" not in perf_counters.events(perf_counters.HostFs(root))
