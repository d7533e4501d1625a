# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Telemetry of a sample: from this machine's files, and from trees of machines that report more."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import energy, perf_counters, telemetry

CORES = ((0, 4), (1, 5))
CPUINFO = (
    "processor\t: 0\ncpu MHz\t\t: 2300.5\n\nprocessor\t: 1\nmodel name\t: x\n\nprocessor\t: 5\ncpu MHz\t\t: 1800\n"
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


def test_load_of_other_processes_is_measured_and_reported():
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _cpu in os.sched_getaffinity(0)]
    try:
        others = telemetry.load_by_others()
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert others > 0.5
    said = f"others used {round(100 * others)} % of the CPU time before this block:"
    assert telemetry.too_busy(others).startswith(said)
    assert telemetry.too_busy(0.05) is None


RANGE = 262_143_328_850
# Zone -> name and count, as a server shows them, and a laptop with psys and a second way to its package.
SERVER = {
    "intel-rapl": (None, None),
    "intel-rapl:0": ("package-0", 1_000_000),
    "intel-rapl:0:0": ("dram", 500_000),
    "intel-rapl:1": ("package-1", 2_000_000),
    "intel-rapl:1:0": ("dram", 500_000),
    "dtpm": (None, None),
}
LAPTOP = {
    "intel-rapl-mmio:0": ("package-0", 7_000_000),
    "intel-rapl:0": ("package-0", 3_000_000),
    "intel-rapl:0:0": ("core", 2_000_000),
    "intel-rapl:0:1": ("uncore", 1_000_000),
    "intel-rapl:1": ("psys", 9_000_000),
}
DIES = {f"intel-rapl:{number}": (f"package-0-die-{number}", 1_000_000) for number in range(2)}


def count(root, zone, microjoules):
    (root / energy.ZONES / zone / "energy_uj").write_text(f"{microjoules}\n")


def machine(root, zones):
    for zone, (name, microjoules) in zones.items():
        place = root / energy.ZONES / zone
        place.mkdir(parents=True)
        if name:
            (place / "name").write_text(f"{name}\n")
            (place / "max_energy_range_uj").write_text(f"{RANGE}\n")
            count(root, zone, microjoules)
    return energy.Energy(HostFs(str(root)))


@pytest.mark.parametrize(("zones", "packages"), [(SERVER, 2), (LAPTOP, 1), (DIES, 2)])
def test_packages_are_counted_once(tmp_path, zones, packages):
    found = machine(tmp_path, zones)
    before = found.read()
    assert len(before.counts) == packages
    for zone, (name, microjoules) in zones.items():
        if name:
            count(tmp_path, zone, microjoules + 1_500_000)
    assert found.joules(before, found.read()) == 1.5 * packages


def test_a_counter_begins_again_after_its_range(tmp_path):
    found = machine(tmp_path, SERVER)
    count(tmp_path, "intel-rapl:0", RANGE - 400_000)
    before = found.read()
    count(tmp_path, "intel-rapl:0", 600_000)
    assert found.joules(before, found.read()) == 1.0


def test_a_package_that_cannot_be_read_or_a_time_too_long_leaves_the_energy_unknown(tmp_path):
    found = machine(tmp_path, SERVER)
    before = found.read()
    # A counter may have gone through its whole range since.
    assert found.joules(before._replace(seconds=before.seconds - 300), found.read()) is None
    (tmp_path / energy.ZONES / "intel-rapl:1" / "energy_uj").unlink()
    assert found.read().counts == {} and found.joules(before, found.read()) is None
    (tmp_path / energy.ZONES / "intel-rapl:1" / "max_energy_range_uj").unlink()
    assert energy.Energy(HostFs(str(tmp_path))).read().counts == {}


@pytest.mark.parametrize(("zones", "joules"), [(LAPTOP, 5.25), ({}, None)])
def test_a_sample_has_its_energy_and_a_host_without_counters_none(tmp_path, zones, joules):
    machine(tmp_path, zones)
    recorder, record = telemetry.Recorder([(0, 1)], HostFs(str(tmp_path))), {}
    with recorder.around([[0]], record):
        if zones:
            count(tmp_path, "intel-rapl:0", 8_250_000)
    assert record["joules"] == joules


RECORDED = pathlib.Path(__file__).parent / "recorded_perf"
# What perf 6.1 printed with -j -A -C 0,1 on a virtual machine without a PMU.
NOT_SUPPORTED = (RECORDED / "no_pmu.jsonl").read_text(encoding="utf-8")
# The same format with Arm's published counts of two siblings at full load, and a CPU whose cycles were not counted.
COUNTED = (RECORDED / "siblings.jsonl").read_text(encoding="utf-8")


def test_counts_of_cpus_and_of_the_core_they_share():
    found = perf_counters.by_core(perf_counters.parse(COUNTED), ((0, 32), (1, 33), (5, 37)))
    assert set(found["cpus"]) == {"0", "32"} and set(found["cores"]) == {"0,32"}
    counts = {"cycles": 499711000190.0, "instructions": 702978039409.0}
    assert found["cpus"]["0"] == {**counts, "ipc": 1.4068, "cpi": 0.7108}
    # The core's cycles are those of its busiest thread, its instructions those of both.
    assert found["cores"]["0,32"]["cycles"] == 499711000190.0 and found["cores"]["0,32"]["ipc"] == 2.8135


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
        ("cpu_core", ["slots", *perf_counters.TOPDOWN], True),
        ("cpu", ["topdown-total-slots", "topdown-slots-retired", "topdown-fetch-bubbles"], False),
        ("cpu", ["cpu-cycles", "instructions"], False),
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


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'Access is limited.' >&2; exit 255", "perf stat failed: Access is limited."),
        (None, "perf is not installed"),
    ],
)
def test_a_perf_that_may_not_count_gives_the_reason(script, reason, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path)) if script is None else perf(tmp_path, monkeypatch, script)
    assert perf_counters.unavailable_reason() == reason


def test_a_perf_that_does_not_end_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(perf_counters, "TIME_LIMIT", 0.3)
    perf(tmp_path, monkeypatch, f"trap '' INT\ntouch {tmp_path}/ignores")
    with perf_counters.Counting([0], "cycles") as counting:
        while not (tmp_path / "ignores").exists():
            pass
    assert counting.text == "" and counting._perf.returncode == -9
