# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A whole look: planted timelines through the windows, and what it says where there are none."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import look, tracing
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


@pytest.mark.night(after=2)
@pytest.mark.parametrize(
    ("chances", "joint"),
    [((0.9, 0.3), 0.25), ((0.5, 0.5), 0.0), ((0.5, 0.5), 0.25), ((0.5, 0.5), 0.5), ((0.2, 0.1), 0.0)],
)
def test_the_time_together_is_found(chances, joint, looked):
    found = looked(Host(random.Random(1), chances, joint))
    assert (found["method"], found["windows"], found["reason"]) == ("switches", 60, None)
    (core,) = found["cores"]
    low, high = core["several"]
    # A plan of ten minutes; intervals hold in 95 of 100 looks (below), and are narrow.
    assert low - 0.01 <= joint <= high + 0.01 and high - low < 0.04
    assert core["usage"] == pytest.approx(sum(chances) / 2, abs=0.01)
    assert core["busy"] == pytest.approx([sum(chances) - high, sum(chances) - low], abs=0.01)
    assert {unit["unit"] for unit in found["units"]} == {"/unit1", "/unit2"}
    together = sum(pair["seconds"] for pair in found["pairs"])
    assert together == pytest.approx(3600 * joint, abs=3600 * 0.03)


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
    found = looked(Host(random.Random(3), (0.5, 0.4), 0.2), plan=look.Plan(10.0, 0, 0.5))
    assert (found["method"], found["reason"]) == ("counters", None) and found["seconds"] == pytest.approx(10.0)


def test_windows_become_shorter_where_there_are_too_many_switches(looked, monkeypatch):
    monkeypatch.setattr(look, "MAX_SWITCHES", 50)
    found = looked(Host(random.Random(4), (0.5, 0.5), 0.25, slot=1))
    assert found["windows"] == 60 and found["watched_seconds"] < 6
    assert found["cores"][0]["several"] == pytest.approx([0.25, 0.25], abs=0.06)


def test_an_idle_host(looked):
    found = looked(Host(random.Random(5), (0.0, 0.0), 0.0))
    assert found["use"]["room"] is None and found["use"]["bound"] == 0.0 and found["shared_ratio"] is None


class Bursts(Host):
    """Siblings that take turns or share a little by chance, but for bursts in which both are busy."""

    def __init__(self, source, number, length, share=0.0, busy=0.2):
        super().__init__(source, (busy, busy), share)
        self.bursts = [
            (begin, begin + length) for begin in (source.uniform(0, 600 - length) for _burst in range(number))
        ]

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


def test_work_that_comes_at_regular_times_is_seen_by_windows_that_take_half_of_the_time(looked):
    """Of windows that ended within their part the ends of parts were seen too seldom."""
    source, held, looks = random.Random(3), 0, night.number(10, 60)
    for _turn in range(looks):
        host, offset = Bursts(source, 0, 1, 0.0, 0.05), source.uniform(0, 2)
        host.bursts = [(2 * number + offset, 2 * number + offset + 0.2) for number in range(40)]
        host.window = lambda seconds, host=host: watched(host, seconds)
        low, high = looked(host, look.Plan(60.0, 30, 1.0))["cores"][0]["several"]
        held += low - 0.005 <= 0.1 <= high + 0.005
    assert held >= 0.9 * looks, held


def watched(host, seconds):
    """A window whose slots are each at their own moment."""
    begin, found, running = host.now, {0: [], 1: []}, [0, 0]
    for slot in range(round(seconds * 100)):
        host.at = begin + slot / 100
        for cpu, busy in enumerate(host.states()):
            task = cpu + 1 if busy else 0
            if task != running[cpu]:
                found[cpu].append(Switch(round(host.at * 1e9), running[cpu], task))
                running[cpu] = task
    host.pass_time(seconds)
    return tracing.Window(round(begin * 1e9), round((begin + seconds) * 1e9), found, {}, {}, False)


@pytest.mark.parametrize(("busy", "most"), [(0.02, 0.05), (0.05, 0.05), (0.2, 0.035)])
def test_a_little_work_that_shares_by_chance_alone_is_no_hundred_percent(busy, most, looked):
    """Windows that saw no burst, and usages without one, say that there was none."""
    host = Bursts(random.Random(7), 0, 1, busy * busy, busy)
    found = looked(host, gain=Span(1.15, 1.25))["use"]
    assert found["bound"] < most


CHANGED = "CPUs {} went offline or came online while it was looked at: look again"


@pytest.mark.parametrize(
    ("cores", "after", "reason"),
    [
        ([(0, 1)], "cpu0 60 0 0 40 0", CHANGED.format(1)),
        ([(0, 1)], "cpu0 60 0 0 40 0\ncpu1 9 0 0 309 0\ncpu7 1 0 0 9 0", CHANGED.format(7)),
        ([(0, 1)], "cpu0 60 0 0 400 0\ncpu1 60 0 0 40 0", CHANGED.format(1)),
        ([(0, 1)], "cpu0 60 0 0 400 0\ncpu1 0 0 0 300 0", "no time of CPUs 1 was counted: look for longer"),
        ([], "cpu0 60 0 0 40 0\ncpu1 9 0 0 309 0", "it does not show which CPUs share a core"),
        ([(0,)], "cpu0 60 0 0 40 0\ncpu1 9 0 0 309 0", "it does not show to which cores CPUs 1 belong"),
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
