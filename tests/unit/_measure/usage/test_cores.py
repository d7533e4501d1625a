# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What usages allow, and how much room that leaves: each bound is reached by a timeline, and none is passed by any."""

from __future__ import annotations

import random

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import cores, counters, room
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Span
from hypothesis import given, settings, strategies

YIELD = 1.25


class Files:
    def __init__(self, text):
        self.text = text

    def read(self, path):
        assert path == "proc/stat"
        return self.text


def test_ticks_of_proc_stat():
    lines = "cpu  1 2 3 4 5 6 7 8 9 10", "cpu0 10 1 5 80 4 1 2 3 6 0", "cpu3 0 0 0 100 0", "cpufreq 1", "cpu9 a b c d e"
    assert counters.read(Files("\n".join(lines))) == {0: (10, 1, 5, 80, 4, 1, 2, 3), 3: (0, 0, 0, 100, 0)}
    assert counters.read(Files(None)) == {}


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
        ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
        ((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
        ((1.0, 0.3), (1.0, 1.0), (0.3, 0.3)),
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


def test_what_is_not_known_makes_the_range_wider():
    found = [cores.bounded((0, 1), {0: 0.6, 1: 0.5})]
    guessed, measured = room.use(found), room.use(found, Span(1.2, 1.2))
    assert guessed.work.low < measured.work.low and guessed.work.high > measured.work.high
    assert guessed.room.low < measured.room.low < measured.room.high < guessed.room.high
    seen = room.use([cores.seen(found[0], Span(0.2, 0.3))], Span(1.2, 1.2))
    assert measured.work.low < seen.work.low < seen.work.high < measured.work.high


def test_an_idle_machine_one_without_cores_and_one_whose_siblings_are_offline():
    idle = room.use([cores.bounded((0, 1), {0: 0.0, 1: 0.0})])
    assert idle.work == (0.0, 0.0) and idle.room is None and idle.by_usage is None
    assert room.use([]) is None
    used = room.use([cores.bounded((core,), {core: 0.5}) for core in range(4)])
    assert used.usage == 0.5 and used.work == (0.5, 0.5) and used.room == pytest.approx((1.0, 1.0))


def test_no_core_is_shared_for_longer_than_there_is_time():
    """Nine tenths of four threads were once 1.8 of the time."""
    busy = cores.bounded((0, 1, 2, 3), dict.fromkeys(range(4), 0.9))
    assert busy.several == pytest.approx((2.6 / 3, 1.0))
    full = cores.bounded((0, 1, 2, 3), dict.fromkeys(range(4), 1.0))
    assert cores.seen(full, Span(1.004, 1.006)).several == (1.0, 1.0)
    # A core of four of which two are seen busy at once for half of the time: the rest of its threads took turns.
    few = cores.seen(cores.bounded((0, 1, 2, 3), dict.fromkeys(range(4), 0.3)), Span(0.4, 0.4))
    assert few.several == (0.4, 0.4) and few.busy == pytest.approx((0.3, 1.0))
    # Second threads that take work away: a full core does all that it can.
    assert room.use([full], Span(0.8, 0.9)).work == pytest.approx((1.0, 1.0))
    assert room.use([full]).bound >= 1 - 1 / 4
