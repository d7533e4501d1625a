# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What processors count themselves: the PURR of POWER, and the time in which one of two threads runs alone."""

from __future__ import annotations

import json

import own_counters
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import look, one_thread, purr
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Span

PLAN = look.Plan(10.0, 0, 0.5)


@pytest.fixture(name="looked")
def look_while_time_passes(monkeypatch):
    """Take a look at a made partition, whose counters go on while it waits."""

    def looked(partition, gain=None):
        now = [0.0]

        def sleep(seconds):
            now[0] += seconds
            partition.pass_time(seconds)

        monkeypatch.setattr(look.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(look.time, "sleep", sleep)
        return look.take(partition.fs, partition.cores, PLAN, gain)

    return looked


HALF = [(0.5, 0.0, 1.0), (0.0, 0.5, 0.0)]
FULL, SINGLE = [(0.25, 0.0, 1.0)] * 4, [(0.62, 0.0, 1.0), *[(0.0, 0.38 / 3, 0.0)] * 3]


@pytest.mark.parametrize(
    ("cores", "gain", "usage", "work"),
    [
        # All threads of one core busy, one of four on the other, which is given more than a quarter of it.
        ([FULL, SINGLE], None, 5 / 8, 0.81),
        # What was measured of second threads limits it.
        ([SINGLE], Span(1.25, 1.5), 1 / 4, 1 / 1.5),
    ],
)
def test_a_partition_says_itself_what_it_uses_of_its_cores(tmp_path, looked, cores, gain, usage, work):
    found = looked(own_counters.Partition(tmp_path, cores), gain)
    assert (found["source"], found["source_reason"], found["method"]) == ("purr", None, "counters")
    assert found["use"]["usage"] == pytest.approx(usage) and found["use"]["work"] == pytest.approx([work, work])
    assert found["use"]["room"] == pytest.approx([1 / work - 1] * 2)


def test_without_root_the_kernels_busy_times_count_and_the_reason_is_said(tmp_path, looked):
    partition = own_counters.Partition(tmp_path, [HALF])
    # As for an ordinary user, whom this test may not be.
    partition.fs.read = lambda path: None if path.endswith("purr") else HostFs.read(partition.fs, path)
    found = looked(partition)
    assert found["source"] == "proc_stat" and "only root can" in found["source_reason"]
    assert found["use"]["work"] == pytest.approx([1 / 1.3, 1.0])
    # A kernel before 5.8, and bare machines, have no idle part.
    partition.fs.names = lambda path: ["purr", "spurr"] if path.endswith("cpu0") else []
    found = looked(partition)
    assert (found["source"], found["source_reason"]) == ("proc_stat", None)


def test_an_emulator_gives_each_thread_the_whole_time(tmp_path, looked):
    """So does QEMU: its PURR is the time base."""
    found = looked(own_counters.Partition(tmp_path, [[(1.0, 0.0, 1.0), (0.0, 1.0, 0.0)]]))
    assert found["source"] == "proc_stat" and "counted 2.00 of its time" in found["source_reason"]


def test_a_cpu_that_goes_in_the_middle_and_a_host_without_a_time_base(tmp_path):
    partition = own_counters.Partition(tmp_path, [HALF])
    ticks = purr.read(partition.fs, [0, 1])
    assert purr.used(partition.fs, [(0, 1)], ticks, ticks, 1.0) == 0.0
    with pytest.raises(purr.PurrError, match="core of CPU 0 went offline"):
        purr.used(partition.fs, [(0, 1)], ticks, {0: ticks[0]}, 1.0)
    (tmp_path / "proc/cpuinfo").write_text("processor: 0\n")
    with pytest.raises(purr.PurrError, match="no time base"):
        purr.used(partition.fs, [(0, 1)], ticks, ticks, 1.0)


@pytest.mark.parametrize("text", ["", "-1f", "ffffffffffffffff", "ffffffffffffffffffffffff", "7 8", "\0"])
def test_no_number_of_a_host_ends_a_look(tmp_path, looked, text):
    partition = own_counters.Partition(tmp_path, [HALF])
    partition.write = lambda: (tmp_path / "sys/devices/system/cpu/cpu1/idle_purr").write_text(text)
    found = looked(partition)
    assert found["source"] == "proc_stat" and found["source_reason"]


def printed(**by_cpu):
    """What perf 6.1 prints with -j of two CPUs: event -> the counts of both."""
    return "".join(
        json.dumps({"cpu": str(cpu), "counter-value": f"{count:.6f}", "event": event, "pcnt-running": 100.0}) + "\n"
        for event, counts in by_cpu.items()
        for cpu, count in enumerate(counts)
    )


NEW, OLD, OLDEST = one_thread.INTEL


@pytest.mark.parametrize(
    ("pair", "counts", "share"),
    [
        # One thread runs all the time, the other one a quarter of it.
        (NEW, ((75.0, 0.0), (75.0 + 12.5, 12.5)), 0.75),
        (OLD, ((75.0, 0.0), (100.0, 25.0)), 0.75),
        (OLDEST, ((75.0, 0.0), (100.0, 25.0)), 0.75),
        (one_thread.IBM_Z, ((75.0, 75.0), (25.0, 25.0)), 0.75),
        # One after the other, and always together.
        (NEW, ((50.0, 50.0), (50.0, 50.0)), 1.0),
        (OLD, ((0.0, 0.0), (80.0, 80.0)), 0.0),
        # Counters that end a little apart, and some that contradict each other or stood still.
        (OLD, ((101.0, 0.0), (100.0, 0.0)), 1.0),
        (NEW, ((120.0, 0.0), (100.0, 0.0)), None),
        (NEW, ((0.0, 0.0), (0.0, 0.0)), None),
    ],
)
def test_the_share_of_its_busy_time_in_which_one_thread_ran_alone(pair, counts, share):
    prefix = f"{pair.unit}/{{}}/" if pair.unit else "{}"
    text = printed(**{prefix.format(name): of_both for name, of_both in zip((pair.alone, pair.other), counts)})
    assert one_thread.shares(text, pair, [(0, 1)]) == ({} if share is None else {(0, 1): pytest.approx(share)})


def test_what_was_not_counted_of_one_thread_is_not_known_of_the_core():
    text = printed(**{NEW.alone: (75.0, 0.0), NEW.other: (87.5,)})
    assert one_thread.shares(text, NEW, [(0, 1), (2, 3)]) == {}
    assert one_thread.shares('{"cpu": "0", "counter-value": "<not counted>"}\nnonsense\n[]', NEW, [(0, 1)]) == {}


def machine(root, vendor="GenuineIntel", unit="cpu", flags="fpu ht"):
    (root / f"sys/bus/event_source/devices/{unit}").mkdir(parents=True)
    (root / "proc").mkdir()
    (root / "proc/cpuinfo").write_text(f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: {flags}\n")
    return HostFs(str(root))


def test_a_processor_that_counts_it_says_how_long_siblings_were_busy_together(tmp_path, monkeypatch):
    fs = machine(tmp_path)
    own_counters.perf(tmp_path, monkeypatch, printed(**{OLD.alone: (75.0, 0.0), OLD.other: (100.0, 25.0)}), OLD)
    after = "cpu0 1000 0 0 0 0\ncpu1 250 0 0 750 0\n"
    ticks = iter(["cpu0 0 0 0 0 0\ncpu1 0 0 0 0 0\n"] * 2)
    fs.read = lambda path: next(ticks, after) if path == "proc/stat" else HostFs.read(fs, path)
    found = look.take(fs, [(0, 1)], look.Plan(0.1, 0, 0.5), Span(1.25, 1.25))
    assert (found["source"], found["source_reason"], found["method"]) == ("one_thread_active", None, "counters")
    assert found["cores"][0]["several"] == pytest.approx([0.25, 0.25]) and found["shared_ratio"] == [0.2, 0.2]
    # 0.75 of the time with one thread, 0.25 with both: (0.75 + 0.25 * 1.25) / 1.25.
    assert found["use"]["work"] == pytest.approx([0.85, 0.85])


@pytest.mark.parametrize(
    ("of_machine", "reason"),
    [
        ({"vendor": "AuthenticAMD"}, None),
        ({"unit": "software"}, None),
        # The sibling of a guest's CPU can be another guest's.
        ({"flags": "fpu ht hypervisor"}, None),
        ({"unit": "cpu_core"}, "perf is not installed"),
        ({"vendor": "IBM/S390", "unit": "cpum_cf"}, "perf is not installed"),
    ],
)
def test_why_a_processor_did_not_count_it(of_machine, reason, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with one_thread.Counting(machine(tmp_path, **of_machine), [(0, 1)]) as counting:
        pass
    assert (counting.alone, counting.reason) == ({}, reason)


def test_a_host_whose_perf_does_not_know_its_events(tmp_path, monkeypatch):
    own_counters.perf(tmp_path, monkeypatch, "", None)
    with one_thread.Counting(machine(tmp_path), [(0, 1)]) as counting:
        pass
    assert counting.alone == {} and counting.reason.startswith("perf stat failed: event syntax error")
