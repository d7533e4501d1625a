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
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import perf_counters

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
    counts = {"cycles": 499711000190.0, "instructions": 702978039409.0}
    assert found["cpus"]["0"] == {**counts, "ipc": 1.4068, "cpi": 0.7108}
    # The core's cycles are those of its busiest thread, its instructions those of both.
    assert found["cores"]["0,32"]["cycles"] == 499711000190.0 and found["cores"]["0,32"]["ipc"] == 2.8135


def test_hybrid_processors_name_an_event_once_for_each_kind_of_core():
    assert perf_counters.parse(HYBRID) == {"1": {"cycles": 200.0, "instructions": 500.0, "stalls": {}, "topdown": {}}}


def thread(name="{}", **values):
    """What is made of CPU 0, whose cycles and instructions were counted, and these events by names like this."""
    events = {"cycles": 1000.0, "instructions": 500.0}
    events.update({name.format(event.replace("_", "-")): value for event, value in values.items()})
    lines = [json.dumps({"cpu": "0", "counter-value": str(value), "event": event}) for event, value in events.items()]
    found = perf_counters.by_core(perf_counters.parse("\n".join(lines)), [(0, 1)])["cpus"]["0"]
    assert found["ipc"] == 0.5
    return found


def test_cycles_in_which_a_thread_waited_are_shares_and_those_that_cannot_be_are_left_out():
    found = thread(stalled_cycles_frontend=495.74, stalled_cycles_backend=137.9)
    assert found["stalls"] == {"frontend_stalled": 0.4957, "backend_stalled": 0.1379} and "topdown" not in found
    found = thread(stalled_cycles_frontend=1500.0, stalled_cycles_backend=0.0)
    assert found["stalls"] == {"backend_stalled": 0.0}


SLOTS = {"slots": 6000.0, "topdown_retiring": 1500.0, "topdown_bad_spec": 300.0, "topdown_fe_bound": 1200.0}


@pytest.mark.parametrize("name", ["{}", "cpu_core/{}/"])
def test_what_became_of_a_threads_slots(name):
    shares = {"retiring": 0.25, "bad_speculation": 0.05, "frontend_bound": 0.2, "backend_bound": 0.5}
    assert thread(name, **SLOTS, topdown_be_bound=3000.0)["topdown"] == shares


@pytest.mark.parametrize("of_back", [{}, *({"topdown_be_bound": value} for value in ("<not counted>", 0.0, 9000.0))])
def test_shares_that_are_none_of_one_whole_are_left_out(of_back):
    assert "topdown" not in thread(**SLOTS, **of_back)


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
    group = ",{slots,topdown-retiring,topdown-bad-spec,topdown-fe-bound,topdown-be-bound}" if grouped else ""
    plain = "cycles,instructions,stalled-cycles-frontend,stalled-cycles-backend"
    assert perf_counters.events(HostFs(str(tmp_path))) == plain + group


@pytest.mark.parametrize(
    "text",
    [
        *(NOT_SUPPORTED, "", "Error: no permission", "[1, 2]", "null", "[" * 100000),
        '{"cpu" : "x", "counter-value" : "1", "event" : "cycles"}',
        '{"cpu" : "0", "counter-value" : "1e999", "event" : "cycles"}',
        '{"cpu" : 0, "event" : 3, "counter-value" : []}',
    ],
)
def test_output_without_counts_gives_no_counts(text):
    assert perf_counters.parse(text) == {}


def test_the_perf_of_this_machine_is_believed():
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed here")
    tried = [*perf_counters.TEST_COMMAND, "-e", ",".join(perf_counters.EVENTS), "true"]
    output = subprocess.run(tried, stderr=subprocess.PIPE, text=True, check=False).stderr
    supported = "not supported" not in output and json.loads(output.splitlines()[0])["event"].startswith("cycles")
    assert (perf_counters.unavailable_reason() is None) == supported
    here = sorted(os.sched_getaffinity(0))
    for seconds in (0.1, 1, 10, 100):
        with perf_counters.Counting(here, perf_counters.events(HostFs("/"))) as counting:
            time.sleep(seconds)
        # On a busy machine perf may be interrupted before it is ready, and then it prints nothing.
        if counting.text:
            break
    assert bool(perf_counters.parse(counting.text)) == supported
    assert {json.loads(line)["cpu"] for line in counting.text.splitlines() if line} == set(map(str, here))


@pytest.fixture(name="perf")
def a_perf_first_in_the_search_path(tmp_path, monkeypatch):
    def make(script):
        (tmp_path / "perf").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "perf").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return make


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'Access is limited.' >&2; exit 255", "perf stat failed: Access is limited."),
        ("exit 1", "perf stat failed: it printed no error message"),
        (None, "perf is not installed"),
    ],
)
def test_a_perf_that_may_not_count_gives_the_reason(script, reason, perf, tmp_path, monkeypatch):
    if script is None:
        monkeypatch.setenv("PATH", str(tmp_path))
    else:
        perf(script)
    assert perf_counters.unavailable_reason() == reason


def test_a_perf_that_does_not_end_is_killed(perf, tmp_path, monkeypatch):
    monkeypatch.setattr(perf_counters, "TIME_LIMIT", 0.3)
    perf(f"trap '' INT\ntouch {tmp_path}/ignores\nwhile :; do sleep 0.1; done")
    with perf_counters.Counting([0], "cycles") as counting:
        while not (tmp_path / "ignores").exists():
            pass
    assert counting.text == "" and counting._perf.returncode == -9
