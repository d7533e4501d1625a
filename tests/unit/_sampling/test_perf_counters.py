# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters: recorded output of perf is parsed, and the perf of this machine is run."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import perf_counters

RECORDED = pathlib.Path(__file__).parent / "recorded_perf"
# What perf 6.1 printed with -j -A -C 0,1 on a virtual machine without a PMU.
NOT_SUPPORTED = (RECORDED / "no_pmu.jsonl").read_text(encoding="utf-8")
# The same format with Arm's published counts of two siblings at full load, and a CPU whose cycles were not counted.
COUNTED = (RECORDED / "siblings.jsonl").read_text(encoding="utf-8")
HYBRID = """
{"cpu" : "1", "counter-value" : "200.0", "event" : "cpu_core/cycles/"}
{"cpu" : "1", "counter-value" : "<not supported>", "event" : "cpu_atom/cycles/"}
{"cpu" : "1", "counter-value" : "500.0", "event" : "cpu_core/instructions/"}
"""


def test_counts_of_cpus_and_of_the_core_they_share():
    found = perf_counters.by_core(perf_counters.parse(COUNTED), ((0, 32), (1, 33), (5, 37)))
    assert set(found["cpus"]) == {"0", "32"} and set(found["cores"]) == {"0,32"}
    assert found["cpus"]["0"] == {
        "cycles": 499711000190.0,
        "instructions": 702978039409.0,
        "ipc": 1.4068,
        "cpi": 0.7108,
    }
    # The core's cycles are those of its busiest thread, its instructions those of both.
    assert found["cores"]["0,32"]["cycles"] == 499711000190.0
    assert found["cores"]["0,32"]["ipc"] == 2.8135


def test_hybrid_processors_name_an_event_once_for_each_kind_of_core():
    assert perf_counters.parse(HYBRID) == {"1": {"cycles": 200.0, "instructions": 500.0, "stalls": {}, "topdown": {}}}


def counted(**values):
    """What perf prints of CPU 0, whose cycles and instructions were counted, and of these events."""
    known = {
        "cycles": 1000.0,
        "instructions": 500.0,
        **{name.replace("_", "-"): value for name, value in values.items()},
    }
    return "\n".join(
        json.dumps({"cpu": "0", "counter-value": str(value), "event": event}) for event, value in known.items()
    )


def thread(text):
    return perf_counters.by_core(perf_counters.parse(text), [(0, 1)])["cpus"]["0"]


def test_2016_cycles_in_which_a_thread_waited():
    """On cores of their own, and on shared ones: shares of the cycles of all four threads together."""
    cycles = 1_424_306_903_878
    of_front, of_back = 0.4957 * cycles, 0.1379 * cycles
    found = thread(
        counted(
            cycles=cycles,
            instructions=550_084_970_527,
            stalled_cycles_frontend=of_front,
            stalled_cycles_backend=of_back,
        )
    )
    assert found["stalls"] == {"frontend_stalled": 0.4957, "backend_stalled": 0.1379} and found["ipc"] == 0.3862
    assert "topdown" not in found


def test_what_became_of_a_threads_slots():
    slots = {"slots": 6000.0, "topdown_retiring": 1500.0, "topdown_bad_spec": 300.0, "topdown_fe_bound": 1200.0}
    shares = {"retiring": 0.25, "bad_speculation": 0.05, "frontend_bound": 0.2, "backend_bound": 0.5}
    assert thread(counted(**slots, topdown_be_bound=3000.0))["topdown"] == shares
    named = counted(**slots, topdown_be_bound=3000.0).replace('"topdown-', '"cpu_core/topdown-').replace('d"}', 'd/"}')
    assert thread(named.replace('ing"}', 'ing/"}').replace('spec"}', 'spec/"}'))["topdown"] == shares


@pytest.mark.parametrize("of_back", [None, "<not counted>", 0.0, 9000.0])
def test_shares_that_are_none_of_one_whole_are_left_out(of_back):
    slots = {"slots": 6000.0, "topdown_retiring": 1500.0, "topdown_bad_spec": 300.0, "topdown_fe_bound": 1200.0}
    found = thread(counted(**slots, **({} if of_back is None else {"topdown_be_bound": of_back})))
    assert "topdown" not in found and found["ipc"] == 0.5


def test_cycles_that_a_thread_cannot_have_waited_are_left_out():
    found = thread(counted(stalled_cycles_frontend=1500.0, stalled_cycles_backend=0.0))
    assert found["stalls"] == {"backend_stalled": 0.0}


@pytest.mark.parametrize(
    ("unit", "names", "grouped"),
    [
        ("cpu", ["slots", *perf_counters.TOPDOWN], True),
        ("cpu_core", ["slots", *perf_counters.TOPDOWN], True),
        # Before Ice Lake, and AMD.
        ("cpu", ["topdown-total-slots", "topdown-slots-retired", "topdown-fetch-bubbles"], False),
        ("cpu", ["cpu-cycles", "instructions"], False),
        ("cpu", perf_counters.TOPDOWN, False),
    ],
)
def test_slots_are_counted_where_the_processor_has_them_for_each_thread(tmp_path, unit, names, grouped):
    place = tmp_path / "sys/bus/event_source/devices" / unit / "events"
    place.mkdir(parents=True)
    for name in names:
        (place / name).write_text("event=0x00,umask=0x80\n")
    wanted = perf_counters.events(HostFs(str(tmp_path)))
    plain = "cycles,instructions,stalled-cycles-frontend,stalled-cycles-backend"
    assert wanted == plain + (
        ",{slots,topdown-retiring,topdown-bad-spec,topdown-fe-bound,topdown-be-bound}" if grouped else ""
    )


@pytest.mark.parametrize(
    "text",
    [
        NOT_SUPPORTED,
        "",
        "Error: no permission",
        "[1, 2]",
        "null",
        '{"cpu" : "x", "counter-value" : "1", "event" : "cycles"}',
        "[" * 100000,
        '{"cpu" : "0", "counter-value" : "1e999", "event" : "cycles"}',
        '{"cpu" : 0, "event" : 3, "counter-value" : []}',
    ],
)
def test_output_without_counts_gives_no_counts(text):
    assert perf_counters.parse(text) == {}


def test_missing_perf_is_a_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert perf_counters.unavailable_reason() == "perf is not installed"


def test_the_perf_of_this_machine_is_believed():
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed here")
    output = subprocess.run(
        [*perf_counters.TEST_COMMAND, "-e", ",".join(perf_counters.EVENTS), "true"],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    ).stderr
    supported = "not supported" not in output and json.loads(output.splitlines()[0])["event"].startswith("cycles")
    assert (perf_counters.unavailable_reason() is None) == supported
    for seconds in (0.1, 1, 10, 100):
        with perf_counters.Counting(sorted(os.sched_getaffinity(0)), perf_counters.events(HostFs("/"))) as counting:
            time.sleep(seconds)
        # On a busy machine perf may be interrupted before it is ready, and then it prints nothing.
        if counting.text:
            break
    assert bool(perf_counters.parse(counting.text)) == supported
    assert {json.loads(line)["cpu"] for line in counting.text.splitlines() if line} == {
        str(cpu) for cpu in os.sched_getaffinity(0)
    }


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo 'Access to performance monitoring is limited.' >&2; exit 255",
            "perf stat failed: Access to performance monitoring is limited.",
        ),
        ("exit 1", "perf stat failed: it printed no error message"),
    ],
)
def test_a_perf_that_may_not_count_gives_the_reason(script, reason, tmp_path, monkeypatch):
    (tmp_path / "perf").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert perf_counters.unavailable_reason() == reason


def test_a_perf_that_does_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(perf_counters, "TIME_LIMIT", 0.3)
    (tmp_path / "perf").write_text("#!/bin/sh\ntrap '' INT\nwhile :; do sleep 0.1; done\n")
    (tmp_path / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with perf_counters.Counting([0], "cycles") as counting:
        pass
    assert counting.text == ""
