# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole look: planted timelines through the windows, what it says where there are none, and hosts that count."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import night
import own_counters
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import look, one_thread, tracing
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Span
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.switches import Switch

MILLI = 10**6
PLAN = look.Plan(600.0, 60, 0.5)


class Host:
    """A host whose two siblings are busy with a chance each, in slots of some milliseconds, and its clock."""

    def __init__(self, source, chances, joint, slot=7):
        self.now, self.source, self.slot = 0.0, source, slot
        self.ticks = {cpu: [0.0, 0.0] for cpu in range(2)}
        self.chances, self.joint = chances, joint

    def states(self):
        """Which of the two are busy in a slot: both with the chance `joint`, else one of them or none."""
        value = self.source.random()
        if value < self.joint:
            return True, True
        one, other = (chance - self.joint for chance in self.chances)
        if value < self.joint + one:
            return True, False
        return False, value < self.joint + one + other

    def pass_time(self, seconds):
        """Count ticks of so much time by the chances alone."""
        self.now += seconds
        for cpu, chance in enumerate(self.chances):
            self.ticks[cpu][0] += seconds * chance
            self.ticks[cpu][1] += seconds * (1 - chance)

    def read(self, path):
        if path == "proc/stat":
            return "".join(
                f"cpu{cpu} {round(1e6 * busy)} 0 0 {round(1e6 * idle)} 0 0 0 0 0 0\n"
                for cpu, (busy, idle) in self.ticks.items()
            )
        return f"0::/unit{path.split('/')[1]}\n"

    def names(self, _path):
        return []

    def window(self, seconds):
        begin = round(self.now * 1e9)
        length = round(seconds * 1e9)
        found, running = {0: [], 1: []}, [0, 0]
        for at in range(0, length, self.slot * MILLI):
            for cpu, busy in enumerate(self.states()):
                task = cpu + 1 if busy else 0
                if task != running[cpu]:
                    found[cpu].append(Switch(begin + at, running[cpu], task))
                    running[cpu] = task
        self.pass_time(seconds)
        return tracing.Window(begin, begin + length, found, {}, {}, False)


@pytest.fixture(name="looked")
def look_at_a_made_host(monkeypatch):
    def looked(host, plan=PLAN, gain=None, refusal=None, cores=((0, 1),)):
        class Instance:
            def __enter__(self):
                if refusal:
                    raise tracing.TracingError(refusal)
                return host

            def __exit__(self, *_raised):
                return None

        monkeypatch.setattr(look.tracing, "Instance", Instance)
        monkeypatch.setattr(look.time, "monotonic", lambda: host.now)
        monkeypatch.setattr(look.time, "sleep", host.pass_time)
        return look.take(host, cores, plan, gain)

    return looked


def test_intervals_hold_in_95_of_100_looks(looked):
    source, looks, held = random.Random(20261127), night.number(40, 120), 0
    for _turn in range(looks):
        a, b = source.uniform(0.1, 0.9), source.uniform(0.1, 0.9)
        joint = source.uniform(max(0, a + b - 1), min(a, b))
        host = Host(source, (a, b), joint, slot=source.choice((3, 20, 60)))
        low, high = looked(host, look.Plan(100.0, 20, 0.3))["cores"][0]["several"]
        # What the counters bound is rounded to ticks.
        held += low - 1e-6 <= joint <= high + 1e-6
    assert held >= 0.9 * looks


def test_work_and_room_of_a_measured_yield(looked):
    found = looked(Host(random.Random(2), (0.5, 0.5), 0.1), gain=Span(1.25, 1.25))
    assert (found["method"], found["windows"], found["reason"]) == ("switches", 60, None)
    assert {unit["unit"] for unit in found["units"]} == {"/unit1", "/unit2"}
    assert sum(pair["seconds"] for pair in found["pairs"]) == pytest.approx(360, abs=3600 * 0.03)
    low, high = found["use"]["work"]
    # Busy 0.9 of the time, with both 0.1 of it: (0.9 + 0.25 * 0.1) / 1.25.
    assert low - 0.01 <= 0.74 <= high + 0.01 and high - low < 0.04
    assert found["use"]["by_usage"] == pytest.approx(1.0, abs=0.02)
    assert found["shared_ratio"] == pytest.approx([0.1, 0.1], abs=0.03)
    assert found["busy_ratio"] == pytest.approx([0.9, 0.9], abs=0.03)


def test_without_switches_the_counters_bound_it_and_the_reason_is_said(looked):
    found = looked(Host(random.Random(3), (0.5, 0.4), 0.2), refusal="this kernel has no tracefs")
    assert (found["method"], found["reason"], found["windows"]) == ("counters", "this kernel has no tracefs", 0)
    assert found["cores"][0]["several"] == pytest.approx([0.0, 0.4], abs=0.01)
    assert found["units"] == found["pairs"] == [] and found["shared_ratio"] is None


class Bursts(Host):
    """Siblings that take turns or share a little by chance, but for bursts in which both are busy."""

    def __init__(self, source, number, length, share=0.0, busy=0.2):
        super().__init__(source, (busy, busy), share)
        begins = [source.uniform(0, 600 - length) for _burst in range(number)]
        self.bursts = [(begin, begin + length) for begin in begins]

    def within(self, begin, end):
        """The seconds of bursts in a time; two of them at once are one."""
        found, until = 0.0, begin
        for start, stop in sorted(self.bursts):
            low, high = max(start, until), min(stop, end)
            if high > low:
                found, until = found + high - low, high
        return found

    def pass_time(self, seconds):
        full = self.within(self.now, self.now + seconds)
        self.now += seconds
        for cpu, chance in enumerate(self.chances):
            # The work between bursts is not the same every time.
            rest = (seconds - full) * min(1.0, max(0.0, chance * self.source.gauss(1, 0.05)))
            self.ticks[cpu][0] += full + rest
            self.ticks[cpu][1] += seconds - full - rest

    def states(self):
        return (True, True) if self.within(self.at, self.at + 0.001) else super().states()

    def window(self, seconds):
        # Shorter than a burst, and each has one moment.
        self.at = self.now + seconds / 2
        return super().window(seconds)


@pytest.mark.night(after=1)
@pytest.mark.parametrize(("number", "length"), [(3, 4), (1, 12), (6, 2), (1, 5), (0, 1)])
@pytest.mark.parametrize("share", [0.04, 0.0])
def test_bursts_that_windows_can_miss_are_within_the_limit(number, length, share, looked):
    source, looks, held = random.Random(number), night.number(12, 60), 0
    for _turn in range(looks):
        host = Bursts(source, number, length, share)
        truth = host.within(0, 600) / 600
        truth += (1 - truth) * share
        low, high = looked(host)["cores"][0]["several"]
        # Half a window more or less, as it has one moment.
        held += low - 0.005 <= truth <= high + 0.005
    assert held >= 0.95 * looks, held


@pytest.mark.parametrize(("busy", "most"), [(0.02, 0.05), (0.05, 0.05), (0.2, 0.035)])
def test_a_little_work_that_shares_by_chance_alone_is_no_hundred_percent(busy, most, looked):
    """Windows that saw no burst, and usages without one, say that there was none."""
    host = Bursts(random.Random(7), 0, 1, busy * busy, busy)
    found = looked(host, gain=Span(1.15, 1.25))["use"]
    assert found["bound"] < most


@pytest.mark.parametrize(
    ("cores", "after", "reason"),
    [
        (
            [(0, 1)],
            "cpu0 60 0 0 400 0\ncpu1 60 0 0 40 0",
            "CPUs 1 went offline or came online while it was looked at: look again",
        ),
        ([(0, 1)], "cpu0 60 0 0 400 0\ncpu1 0 0 0 300 0", "no time of CPUs 1 was counted: look for longer"),
        ([(0, 1)], None, "it has no /proc/stat"),
    ],
)
def test_a_machine_that_changes_or_is_not_known_is_not_judged(cores, after, reason, looked):
    host = Host(random.Random(5), (0.5, 0.5), 0.0)
    texts = iter(["cpu0 0 0 0 0 0\ncpu1 0 0 0 300 0\n"] * 2 * bool(after))
    host.read = lambda path: next(texts, after) if path == "proc/stat" else None
    found = looked(host, refusal="no", cores=cores)
    assert (found["use"], found["cores"], found["use_reason"]) == (None, [], reason)


def test_what_processes_left_that_are_gone_is_removed_and_nothing_of_others(tmp_path):
    left, own, others = f"{tracing.PREFIX}999999999", f"{tracing.PREFIX}{os.getpid()}", ["999999999", "trace-cmd"]
    for name in (left, own, *others):
        (tmp_path / name).mkdir()
    tracing._sweep(str(tmp_path))
    assert set(os.listdir(tmp_path)) == {own, *others}


def test_a_look_ends_when_its_reader_has_gone():
    """The module itself, in a process of its own: its look would take a day."""
    begin, end = os.pipe()
    code = (
        "from ansible_collections.threadwise.smt.plugins.modules import smt_usage\n"
        "from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import look\n"
        "look.READ_SECONDS = 0.2\n"
        "look.take(look.HostFs('/'), [(0,)], look.Plan(86400.0, 0, 0.5), None, smt_usage._go_on)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=end) as process:
        os.close(end)
        os.close(begin)
        try:
            assert process.wait(60) == 143
        finally:
            process.kill()


@pytest.fixture(name="looked_at")
def look_at_a_partition(monkeypatch):
    """Take a look at a made partition, whose counters go on while it waits."""

    def looked_at(partition, gain=None):
        now = [0.0]

        def sleep(seconds):
            now[0] += seconds
            partition.pass_time(seconds)

        monkeypatch.setattr(look.time, "monotonic", lambda: now[0])
        monkeypatch.setattr(look.time, "sleep", sleep)
        return look.take(partition.fs, partition.cores, look.Plan(10.0, 0, 0.5), gain)

    return looked_at


HALF = [(0.5, 0.0, 1.0), (0.0, 0.5, 0.0)]
FULL, SINGLE = [(0.25, 0.0, 1.0)] * 4, [(0.62, 0.0, 1.0), *[(0.0, 0.38 / 3, 0.0)] * 3]


@pytest.mark.parametrize(
    ("cores", "gain", "usage", "work"),
    [
        # All threads of one core busy, one of four on the other, which is given more than a quarter of it.
        ([FULL, SINGLE], None, 5 / 8, 0.81),
        ([SINGLE], Span(1.25, 1.5), 1 / 4, 1 / 1.5),
    ],
)
def test_a_partition_says_itself_what_it_uses_of_its_cores(tmp_path, looked_at, cores, gain, usage, work):
    found = looked_at(own_counters.Partition(tmp_path, cores), gain)
    assert (found["source"], found["source_reason"], found["method"]) == ("purr", None, "counters")
    assert found["use"]["usage"] == pytest.approx(usage) and found["use"]["work"] == pytest.approx([work, work])
    assert found["use"]["room"] == pytest.approx([1 / work - 1] * 2)


def test_without_root_the_kernels_busy_times_count_and_the_reason_is_said(tmp_path, looked_at):
    partition = own_counters.Partition(tmp_path, [HALF])
    # As for an ordinary user, whom this test may not be.
    partition.fs.read = lambda path: None if path.endswith("purr") else HostFs.read(partition.fs, path)
    found = looked_at(partition)
    assert found["source"] == "proc_stat" and "only root can" in found["source_reason"]
    assert found["use"]["work"] == pytest.approx([1 / 1.3, 1.0])


def test_an_emulator_gives_each_thread_the_whole_time(tmp_path, looked_at):
    """So does QEMU: its PURR is the time base."""
    found = looked_at(own_counters.Partition(tmp_path, [[(1.0, 0.0, 1.0), (0.0, 1.0, 0.0)]]))
    assert found["source"] == "proc_stat" and "counted 2.00 of its time" in found["source_reason"]


@pytest.mark.parametrize("text", ["", "-1f", "ffffffffffffffff", "ffffffffffffffffffffffff", "7 8", "\0"])
def test_no_number_of_a_host_ends_a_look(tmp_path, looked_at, text):
    partition = own_counters.Partition(tmp_path, [HALF])
    partition.write = lambda: (tmp_path / "sys/devices/system/cpu/cpu1/idle_purr").write_text(text)
    found = looked_at(partition)
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
        (one_thread.IBM_Z, ((75.0, 75.0), (25.0, 25.0)), 0.75),
        # One after the other, and always together.
        (NEW, ((50.0, 50.0), (50.0, 50.0)), 1.0),
        # Some that contradict each other or stood still.
        (NEW, ((120.0, 0.0), (100.0, 0.0)), None),
        (NEW, ((0.0, 0.0), (0.0, 0.0)), None),
    ],
)
def test_the_share_of_its_busy_time_in_which_one_thread_ran_alone(pair, counts, share):
    prefix = f"{pair.unit}/{{}}/" if pair.unit else "{}"
    text = printed(**{prefix.format(name): of_both for name, of_both in zip((pair.alone, pair.other), counts)})
    assert one_thread.shares(text, pair, [(0, 1)]) == ({} if share is None else {(0, 1): pytest.approx(share)})


def test_a_processor_that_counts_it_says_how_long_siblings_were_busy_together(tmp_path, monkeypatch):
    (tmp_path / "sys/bus/event_source/devices/cpu").mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu ht\n")
    fs = HostFs(str(tmp_path))
    own_counters.perf(tmp_path, monkeypatch, printed(**{OLD.alone: (75.0, 0.0), OLD.other: (100.0, 25.0)}), OLD)
    after = "cpu0 1000 0 0 0 0\ncpu1 250 0 0 750 0\n"
    ticks = iter(["cpu0 0 0 0 0 0\ncpu1 0 0 0 0 0\n"] * 2)
    fs.read = lambda path: next(ticks, after) if path == "proc/stat" else HostFs.read(fs, path)
    found = look.take(fs, [(0, 1)], look.Plan(0.1, 0, 0.5), Span(1.25, 1.25))
    assert (found["source"], found["source_reason"], found["method"]) == ("one_thread_active", None, "counters")
    assert found["cores"][0]["several"] == pytest.approx([0.25, 0.25]) and found["shared_ratio"] == [0.2, 0.2]
    # 0.75 of the time with one thread, 0.25 with both: (0.75 + 0.25 * 1.25) / 1.25.
    assert found["use"]["work"] == pytest.approx([0.85, 0.85])
