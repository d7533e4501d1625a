# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who shared a core with whom in a window: planted timelines."""

from __future__ import annotations

import random

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import shared, units
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.switches import Switch
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.tracing import Window

SECOND = 10**9
UNITS = {1: "/a", 2: "/b", 3: "/a"}


def window(by_cpu, end=SECOND, parents=None, running=None):
    found = {cpu: [Switch(*one) for one in of_cpu] for cpu, of_cpu in by_cpu.items()}
    return Window(0, end, found, parents or {}, running or {}, False)


def judged(by_cpu, usage=None, cpus=(0, 1), unit_of=UNITS.get, running=None):
    spent = shared.Spent()
    return shared.of_core(window(by_cpu, running=running), cpus, usage or {}, unit_of, spent), spent


def test_two_that_overlap_a_quarter():
    shares, spent = judged({0: [(0, 0, 1), (SECOND // 2, 1, 0)], 1: [(SECOND // 4, 0, 2), (3 * SECOND // 4, 2, 0)]})
    assert shares == pytest.approx((1.0, 0.75, 0.25))
    assert spent.ran == pytest.approx({"/a": 0.5, "/b": 0.5})
    assert spent.beside == pytest.approx({"/a": 0.25, "/b": 0.25}) == spent.apart
    assert spent.pairs == pytest.approx({("/a", "/b"): 0.25})


def test_siblings_of_one_unit_are_beside_each_other_and_not_apart():
    _shares, spent = judged({0: [(0, 0, 1)], 1: [(0, 0, 3)]})
    assert spent.ran == pytest.approx({"/a": 2.0}) == spent.beside and not spent.apart and not spent.pairs


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


def test_a_window_without_time_says_nothing_and_switches_outside_of_it_do_not_count():
    assert shared.of_core(window({}, end=0), (0, 1), {}, UNITS.get, shared.Spent()) is None
    shares, spent = judged({0: [(-SECOND, 0, 1), (2 * SECOND, 1, 0)], 1: [(SECOND + 1, 0, 2)]})
    assert shares == pytest.approx((1.0, 1.0, 0.0)) and spent.ran == pytest.approx({"/a": 1.0})


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


class Files:
    def __init__(self, cgroups):
        self.cgroups = cgroups

    def read(self, path):
        return self.cgroups.get(int(path.split("/")[1]))


def test_a_task_that_has_ended_has_the_unit_of_the_one_that_began_it_and_parents_in_a_circle_end():
    made = window({0: [(0, 0, 30), (500, 30, 31)]}, parents={31: 30, 30: 20})
    found = units.Units(Files({20: "0::/system.slice/many.service\n"}), made, [(0,)])
    assert found(31) == found(30) == "/system.slice/many.service" and found(99) is None
    made = window({0: [(0, 0, 30)]}, parents={30: 31, 31: 30})
    assert units.Units(Files({}), made, [(0,)])(30) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0::/user.slice/user-0.slice\n", "/user.slice/user-0.slice"),
        ("12:cpu,cpuacct:/docker/abc\n1:name=systemd:/system.slice/x.service\n0::/\n", "/system.slice/x.service"),
        ("4:cpuset:/\n3:cpu,cpuacct:/lxc/one\n", "/lxc/one"),
        ("0::/a:b\n", "/a:b"),
        ("", None),
        ("nonsense\n", None),
        ("0::/" + "x" * 5000, "/" + "x" * (units.MAX_CHARACTERS - 1)),
    ],
)
def test_the_unit_of_a_task(text, expected):
    assert units.unit(text) == expected
