# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Telemetry of a sample: from this machine's files, and from trees of machines that report more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import perf_counters, telemetry

CORES = ((0, 4), (1, 5))
CPUINFO = (
    "processor\t: 0\nmodel name\t: x\ncpu MHz\t\t: 2300.5\n\nprocessor\t: 1\nmodel name\t: x\n\nprocessor\t: 5\ncpu"
    " MHz\t\t: 1800\n"
)


def tree(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return HostFs(str(root))


def cpu_file(cpu, name, value):
    return {f"sys/devices/system/cpu/cpu{cpu}/{name}": value}


@pytest.fixture(name="recorder")
def recorder_of_a_tree(tmp_path):
    """Return a recorder and the tree it reads: 4 CPUs with cpufreq and a throttle counter per core."""
    files = {}
    for cpu in (0, 1, 4, 5):
        files.update(cpu_file(cpu, "cpufreq/scaling_cur_freq", f"{2000 + cpu}000\n"))
        files.update(cpu_file(cpu, "thermal_throttle/core_throttle_count", f"{10 * (cpu % 4)}\n"))
    return telemetry.Recorder(CORES, tree(tmp_path, files)), tmp_path


def recorded(recorder, workers, during=lambda: None):
    record = {}
    with recorder.around(workers, record):
        during()
    return record


def test_frequency_is_the_mean_of_start_and_end_and_throttling_the_difference(recorder):
    one, root = recorder
    after = {**cpu_file(4, "cpufreq/scaling_cur_freq", "1004000\n")}
    for cpu, count in ((0, "7\n"), (4, "7\n"), (1, "99\n")):
        after.update(cpu_file(cpu, "thermal_throttle/core_throttle_count", count))
    record = recorded(one, [[0], [4]], lambda: tree(root, after))
    assert record["frequency"] == {"0": 2000.0, "4": 1504.0}
    # Siblings show one counter: seven, not fourteen; events of the other core do not count for this sample.
    assert record["throttled"] == 7


@pytest.mark.parametrize(
    "shown", [{}, {"cpufreq/scaling_cur_freq": "<unknown>\n", "thermal_throttle/core_throttle_count": ""}]
)
def test_a_host_that_reports_nothing_has_nothing_recorded(tmp_path, monkeypatch, shown):
    monkeypatch.setenv("PATH", str(tmp_path))
    files = tree(tmp_path, {path: text for name in shown for path, text in cpu_file(0, name, shown[name]).items()})
    record = recorded(telemetry.Recorder(CORES, files), [[0]])
    assert (record["frequency"], record["throttled"]) == ({}, None)
    assert record["perf"] == {"reason": "perf is not installed"}


def test_frequency_from_cpuinfo_where_there_is_no_cpufreq(tmp_path):
    filesystem = tree(tmp_path, {"proc/cpuinfo": CPUINFO})
    assert telemetry.frequencies(filesystem, [0, 1, 5]) == {"0": 2300.5, "5": 1800.0}
    assert telemetry.frequencies(filesystem, [5]) == {"5": 1800.0}


def test_usage_of_a_core_is_the_mean_of_its_online_threads(recorder):
    assert recorder[0].core_usage({"0": 1.0, "4": 0.5, "1": 0.25}) == {"0,4": 0.75, "1": 0.25}
    assert recorder[0].core_usage({}) == {}


def perf(folder, monkeypatch, script):
    (folder / "perf").write_text(f"#!/bin/sh\n{script}\nwhile :; do sleep 0.02; done\n")
    (folder / "perf").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def await_text(path):
    """The shell creates the file before it writes to it."""
    while not (path.exists() and path.read_text().strip()):
        pass


def test_counters_where_perf_counts(tmp_path, monkeypatch):
    """A stand-in for perf on a machine with a PMU; the real perf is in test_perf_counters."""
    events = [(cpu, *one) for cpu in (0, 4) for one in (("cycles", 1000), ("instructions", 500 + cpu))]
    line = '{"cpu" : "%d", "counter-value" : "%d.000000", "event" : "%s"}'
    printed = "\n".join(line % (cpu, count, event) for cpu, event, count in events)
    shown = f"shown() {{ cat >&2 <<'END'\n{printed}\nEND\nexit 0\n}}\n"
    begun = f'case "$*" in *true) shown;; esac\ntrap shown INT\necho "$*" > {tmp_path}/arguments'
    perf(tmp_path, monkeypatch, shown + begun)
    record = recorded(telemetry.Recorder(CORES), [[0], [4]], lambda: await_text(tmp_path / "arguments"))
    assert record["perf"]["cores"] == {"0,4": {"cycles": 1000.0, "instructions": 1004.0, "ipc": 1.004, "cpi": 0.996}}
    assert "-A -C 0,4 -e cycles,instructions" in (tmp_path / "arguments").read_text()


def test_perf_does_not_outlive_a_sample_that_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(perf_counters, "unavailable_reason", lambda: None)
    perf(tmp_path, monkeypatch, f"echo $$ > {tmp_path}/pid\ntrap 'exit 0' INT")
    with pytest.raises(ZeroDivisionError), telemetry.Recorder(CORES).around([[0]], {}):
        await_text(tmp_path / "pid")
        raise ZeroDivisionError
    assert not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}")


def test_load_of_other_processes_is_measured_and_reported():
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _cpu in os.sched_getaffinity(0)]
    try:
        others = telemetry.load_by_others()
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert others > 0.5
    assert telemetry.too_busy(others).startswith(
        f"others used {round(100 * others)} % of the CPU time before this block:"
    )
    assert telemetry.too_busy(0.05) is None
