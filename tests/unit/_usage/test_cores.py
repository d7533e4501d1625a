# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What usages allow, and how much room that leaves: each bound is reached by a timeline, and none is passed by any."""

from __future__ import annotations

import itertools
import random

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._usage import cores, counters, room
from ansible_collections.threadwise.smt.plugins.module_utils._usage.cores import Span
from hypothesis import given, settings, strategies

YIELD = 1.25


class Files:
    def __init__(self, text):
        self.text = text

    def read(self, path):
        assert path == "proc/stat"
        return self.text


def test_ticks_of_proc_stat():
    text = (
        "cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 10 1 5 80 4 1 2 3 6 0\ncpu3 0 0 0 100 0\ncpufreq 1\nintr 5 0\ncpu9 a b c d e\n"
    )
    assert counters.read(Files(text)) == {0: (10, 1, 5, 80, 4, 1, 2, 3), 3: (0, 0, 0, 100, 0)}
    assert counters.read(Files(None)) == {}


def test_shares_between_two_reads():
    before = {0: (10, 0, 0, 90, 0), 1: (50, 0, 0, 50, 0), 2: (0, 0, 0, 5, 0), 4: (5, 0, 0, 4, 0), 5: (0, 0, 0, 9, 500)}
    after = {
        0: (60, 0, 0, 140, 0),
        1: (40, 0, 0, 160, 0),
        2: (0, 0, 0, 5, 0),
        3: (1, 0, 0, 0, 0),
        5: (1, 0, 0, 14, 100),
    }
    # A sum that went back is none; a CPU that came, went or did not tick is not known.
    assert counters.shares(before, after) == pytest.approx({0: 0.5, 1: 0.0, 5: 1 / 6})


@pytest.mark.parametrize(
    ("usage", "busy", "several"),
    [
        ((0.5, 0.5), (0.5, 1.0), (0.0, 0.5)),
        ((0.9, 0.8), (0.9, 1.0), (0.7, 0.8)),
        ((1.0, 1.0), (1.0, 1.0), (1.0, 1.0)),
        ((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)),
        ((1.0, 0.3), (1.0, 1.0), (0.3, 0.3)),
        ((0.4,), (0.4, 0.4), (0.0, 0.0)),
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


@settings(max_examples=300, deadline=None)
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


def test_half_of_the_usage_can_be_four_fifths_of_the_work():
    """Each core has one busy thread: usage says 50 %, and with a yield of 1.25 80 % of the work is done."""
    found = [cores.bounded((core, core + 4), {core: 1.0, core + 4: 0.0}) for core in range(4)]
    used = room.use(found, Span(1.25, 1.25))
    assert used.usage == 0.5 and used.work == pytest.approx((0.8, 0.8))
    assert used.room == pytest.approx((0.25, 0.25)) and used.by_usage == pytest.approx(1.0)


def test_the_arm_study_says_room_for_four_more_instead_of_14():
    """Six requests at 30 % usage, at most ten: six cores' worth of work of ten."""
    found = [cores.bounded((core, core + 10), {core: 0.6, core + 10: 0.0}) for core in range(10)]
    used = room.use(found, Span(1.0, 1.0))
    assert used.usage == pytest.approx(0.3) and used.by_usage == pytest.approx(14 / 6)
    assert used.room == pytest.approx((4 / 6, 4 / 6))


def test_what_is_not_known_makes_the_range_wider():
    found = [cores.bounded((0, 1), {0: 0.6, 1: 0.5})]
    guessed, measured = room.use(found), room.use(found, Span(1.2, 1.2))
    assert guessed.work.low < measured.work.low and guessed.work.high > measured.work.high
    seen = room.use([cores.seen(found[0], Span(0.2, 0.3))], Span(1.2, 1.2))
    assert measured.work.low < seen.work.low < seen.work.high < measured.work.high


def test_an_idle_machine_and_one_without_cores():
    idle = room.use([cores.bounded((0, 1), {0: 0.0, 1: 0.0})])
    assert idle.work == (0.0, 0.0) and idle.room is None and idle.by_usage is None
    assert room.use([]) is None


def test_siblings_that_are_offline_are_no_room():
    used = room.use([cores.bounded((core,), {core: 0.5}) for core in range(4)])
    assert used.usage == 0.5 and used.work == (0.5, 0.5) and used.room == pytest.approx((1.0, 1.0))


@pytest.mark.parametrize(("one", "other"), list(itertools.product([Span(0.2, 0.4), Span(0.0, 1.0)], repeat=2)))
def test_a_span_within_another_one_is_in_it(one, other):
    found = one.within(other)
    assert other.low <= found.low <= found.high <= other.high
    assert Span(0.5, 0.6).within(Span(0.1, 0.2)) == (0.2, 0.2)


def test_no_core_is_shared_for_longer_than_there_is_time():
    """Nine tenths of four threads were once 1.8 of the time."""
    busy = cores.bounded((0, 1, 2, 3), dict.fromkeys(range(4), 0.9))
    assert busy.several == pytest.approx((2.6 / 3, 1.0))
    full = cores.bounded((0, 1, 2, 3), dict.fromkeys(range(4), 1.0))
    assert cores.seen(full, Span(1.004, 1.006)).several == (1.0, 1.0)
    # Second threads that take work away: a full core does all that it can.
    assert room.use([full], Span(0.8, 0.9)).work == pytest.approx((1.0, 1.0))
    assert room.use([full]).bound >= 1 - 1 / 4
