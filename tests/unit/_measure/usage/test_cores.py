# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What usages allow, and how much room that leaves: each bound is reached by a timeline, and none is passed by any."""

from __future__ import annotations

import random
import types

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import cores, counters, room, shared, units
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Span
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.switches import Switch
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.tracing import Window
from hypothesis import given, settings, strategies

YIELD = 1.25


def test_shares_between_two_reads():
    before = {0: (10, 0, 0, 90, 0), 1: (50, 0, 0, 50, 0), 2: (0, 0, 0, 5, 0), 4: (5, 0, 0, 4, 0), 5: (0, 0, 0, 9, 500)}
    after = {
        0: (60, 0, 0, 140, 50),
        1: (40, 0, 0, 160, 0),
        2: (0, 0, 0, 5, 0),
        3: (1, 0, 0, 0, 0),
        5: (1, 0, 0, 14, 100),
    }
    # A sum that went back is none, a wait for a disk is idle; a CPU that came, went or did not tick is not known.
    assert counters.shares(before, after) == pytest.approx({0: 1 / 3, 1: 0.0, 5: 1 / 6})


@pytest.mark.parametrize(
    ("usage", "busy", "several"),
    [
        ((0.5, 0.5), (0.5, 1.0), (0.0, 0.5)),
        ((0.9, 0.8), (0.9, 1.0), (0.7, 0.8)),
        ((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
        ((0.4,), (0.4, 0.4), (0.0, 0.0)),
        ((0.4,) * 4, (0.4, 1.0), (0.2, 0.8)),
    ],
)
def test_bounds_of_two_threads(usage, busy, several):
    core = cores.bounded(range(len(usage)), dict(enumerate(usage)))
    assert (tuple(core.busy), tuple(core.several)) == (pytest.approx(busy), pytest.approx(several))


def test_a_core_of_which_a_cpu_is_not_known_is_not_judged():
    assert cores.bounded((0, 1), {0: 0.5}) is None and cores.bounded((), {}) is None


def work(count, threads):
    """The work of a core with so many busy threads, somewhere between the two limits that `room` names."""
    if count == 0:
        return 0.0
    even = 1 + (YIELD - 1) * (count - 1) / max(1, threads - 1)
    return (even + (YIELD if count > 1 else 1.0)) / 2


@settings(max_examples=night.number(50, 300), deadline=None)
@given(strategies.integers(1, 4), strategies.integers(1, 3), strategies.integers(0, 10**6))
def test_no_timeline_passes_the_bounds(threads, number, seed):
    source = random.Random(seed)
    slots = 40
    found, done = [], 0.0
    for core in range(number):
        chance = source.random()
        busy = [[source.random() < chance for _thread in range(threads)] for _slot in range(slots)]
        cpus = [core * threads + thread for thread in range(threads)]
        usage = {cpu: sum(slot[thread] for slot in busy) / slots for thread, cpu in enumerate(cpus)}
        found.append(cores.bounded(cpus, usage))
        true_busy = sum(any(slot) for slot in busy) / slots
        true_several = sum(sum(slot) > 1 for slot in busy) / slots
        for truth, span in ((true_busy, found[-1].busy), (true_several, found[-1].several)):
            assert span.low - 1e-9 <= truth <= span.high + 1e-9
        # Seeing it makes it exact, and keeps the truth.
        seen = cores.seen(found[-1], Span(true_several, true_several))
        assert seen.several == pytest.approx((true_several, true_several))
        assert seen.busy.low - 1e-9 <= true_busy <= seen.busy.high + 1e-9
        assert threads != 2 or seen.busy == pytest.approx((true_busy, true_busy))
        done += sum(work(sum(slot), threads) for slot in busy) / slots
    used = room.use(found, Span(YIELD, YIELD))
    truth = done / (number * (YIELD if threads > 1 else 1.0))
    assert used.work.low - 1e-9 <= truth <= used.work.high + 1e-9
    assert used.usage == pytest.approx(sum(core.threads for core in found) / (number * threads))


@pytest.mark.parametrize(
    ("count", "usage", "gain", "work", "by_usage", "more"),
    [
        # Each core has one busy thread: usage says 50 %, and with a yield of 1.25 80 % of the work is done.
        (4, 1.0, 1.25, 0.8, 1.0, 0.25),
        # The Arm study: six requests at 30 % usage, at most ten, are room for four more instead of 14.
        (10, 0.6, 1.0, 0.6, 14 / 6, 4 / 6),
    ],
)
def test_usage_hides_work(count, usage, gain, work, by_usage, more):
    found = [cores.bounded((core, core + count), {core: usage, core + count: 0.0}) for core in range(count)]
    used = room.use(found, Span(gain, gain))
    assert (used.usage, used.by_usage) == pytest.approx((usage / 2, by_usage))
    assert used.work == pytest.approx((work, work)) and used.room == pytest.approx((more, more))


def test_an_idle_machine_one_without_cores_and_one_whose_siblings_are_offline():
    idle = room.use([cores.bounded((0, 1), {0: 0.0, 1: 0.0})])
    assert idle.work == (0.0, 0.0) and idle.room is None and idle.by_usage is None
    assert room.use([]) is None
    used = room.use([cores.bounded((core,), {core: 0.5}) for core in range(4)])
    assert used.usage == 0.5 and used.work == (0.5, 0.5) and used.room == pytest.approx((1.0, 1.0))


SECOND = 10**9
UNITS = {1: "/a", 2: "/b", 3: "/a"}


def window(by_cpu, end=SECOND, parents=None, running=None):
    found = {cpu: [Switch(*one) for one in of_cpu] for cpu, of_cpu in by_cpu.items()}
    return Window(0, end, found, parents or {}, running or {}, False)


def judged(by_cpu, usage=None, cpus=(0, 1), unit_of=UNITS.get, running=None):
    spent = shared.Spent()
    return shared.of_core(window(by_cpu, running=running), cpus, usage or {}, unit_of, spent), spent


@pytest.mark.parametrize(("usage", "busy"), [(0.98, 1.0), (0.0, 0.0)])
def test_a_cpu_without_a_switch_is_what_its_counters_say(usage, busy):
    shares, spent = judged({0: [(0, 0, 1)]}, {1: usage})
    assert shares == pytest.approx((1 + busy, 1.0, busy))
    # It has no name, so what it shares is with somebody who is not known.
    assert spent.pairs == (pytest.approx({(None, "/a"): 1.0}) if busy else {})


def test_a_task_that_ran_all_the_time_has_the_name_of_whose_run_time_was_counted():
    _shares, spent = judged({0: [(0, 0, 1)]}, {1: 1.0}, running={1: 2})
    assert spent.pairs == pytest.approx({("/a", "/b"): 1.0})
    # One that is idle by its counters was not busy, whoever was counted.
    _shares, spent = judged({0: [(0, 0, 1)]}, {1: 0.0}, running={1: 2})
    assert not spent.pairs
    assert shared.tasks(window({}, running={0: 1, 1: 2}), (0, 1)) == {1: SECOND, 2: SECOND}


def test_the_sum_over_random_timelines_is_what_a_clock_would_count():
    source = random.Random(3)
    for _turn in range(5):
        steps, by_cpu, states = 200, {0: [], 1: [], 2: []}, {0: 0, 1: 0, 2: 0}
        table = []
        for step in range(steps):
            for cpu, state in states.items():
                new = source.choice((0, 1, 2, 3))
                if new != state:
                    by_cpu[cpu].append((step * 1000, state, new))
                    states[cpu] = new
            table.append(tuple(states.values()))
        spent = shared.Spent()
        shares = shared.of_core(window(by_cpu, end=steps * 1000), (0, 1, 2), {}, UNITS.get, spent)
        busy = [[pid for pid in row if pid] for row in table]
        assert shares.threads == pytest.approx(sum(map(len, busy)) / steps)
        assert shares.busy == pytest.approx(sum(map(bool, busy)) / steps)
        assert shares.several == pytest.approx(sum(len(row) > 1 for row in busy) / steps)
        together = sum({UNITS[pid] for pid in row} == {"/a", "/b"} for row in busy)
        assert spent.pairs.get(("/a", "/b"), 0.0) == pytest.approx(together * 1000 * shared.NANO)


def test_a_task_that_has_ended_has_the_unit_of_the_one_that_began_it_and_parents_in_a_circle_end():
    made = window({0: [(0, 0, 30), (500, 30, 31)]}, parents={31: 30, 30: 20})
    files = types.SimpleNamespace(read=lambda path: "0::/system.slice/many.service\n" if "/20/" in path else None)
    found = units.Units(files, made, [(0,)])
    assert found(31) == found(30) == "/system.slice/many.service" and found(99) is None
    made = window({0: [(0, 0, 30)]}, parents={30: 31, 31: 30})
    assert units.Units(files, made, [(0,)])(30) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/user.slice/user-0.slice\n", "/user.slice/user-0.slice"),
        ("12:cpu,cpuacct:/docker/abc\n1:name=systemd:/system.slice/x.service\n0::/\n", "/system.slice/x.service"),
        ("", None),
        ("0::/" + "x" * 5000, "/" + "x" * (units.MAX_CHARACTERS - 1)),
    ],
)
def test_the_unit_of_a_task(text, expected):
    assert units.unit(text) == expected
