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
    assert perf_counters.parse(HYBRID) == {"1": {"cycles": 200.0, "instructions": 500.0}}


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
    output = subprocess.run(perf_counters.TEST_COMMAND, stderr=subprocess.PIPE, text=True, check=False).stderr
    supported = "not supported" not in output and json.loads(output.splitlines()[0])["event"].startswith("cycles")
    assert (perf_counters.unavailable_reason() is None) == supported
    for seconds in (0.1, 1, 10, 100):
        with perf_counters.Counting(sorted(os.sched_getaffinity(0))) as counting:
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
    with perf_counters.Counting([0]) as counting:
        pass
    assert counting.text == ""
