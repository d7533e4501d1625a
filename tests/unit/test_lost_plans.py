# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's look at a plan that says nothing: one that is late is waited for, one that was lost is not."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.threadwise.smt.plugins.action import smt_benchmark
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import progress

MEASURING, LATE = ({"phase": "measuring"}, True), (None, False)


class Watched(smt_benchmark.ActionModule):
    """An action whose host gives these looks at the plan (progress, whether its process is there), and Ansible's record
    of a job that ends at a time, if at all.
    """

    def __init__(self, clock, looks, ends=float("inf")):
        self.clock, self.looks, self.ends, self.asked = clock, iter(looks), ends, []
        self._task = type("Task", (), {"args": {}})()

    def _look(self, directory):
        return next(self.looks)

    def _status(self, task_vars, job_id):
        return {"finished": int(self.clock[0] > self.ends)}

    def ask(self, kind, module, arguments, task_vars, **how):
        self.asked.append(kind)
        self.ends = self.clock[0]

    def watch(self):
        return self._watch({}, "h1", "/run", "1", progress.Shown(3))


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that only the pauses between two looks move."""
    seconds = itertools.count(0, smt_benchmark.LOOK_SECONDS)
    now = [0]
    monkeypatch.setattr(smt_benchmark.time, "sleep", lambda _seconds: now.__setitem__(0, next(seconds)))
    monkeypatch.setattr(smt_benchmark.time, "monotonic", lambda: now[0])
    return now


STARTING = smt_benchmark.STARTING_SECONDS


def test_a_plan_that_never_says_a_word_is_lost(clock):
    """The host lost its power before the plan wrote anything."""
    assert Watched(clock, itertools.repeat(LATE)).watch() == {"failed": True, "msg": smt_benchmark.LOST}
    assert STARTING < clock[0] < STARTING + 60


def test_a_plan_that_begins_late_is_waited_for(clock):
    late = [LATE] * (STARTING // smt_benchmark.LOOK_SECONDS) + [({"phase": "ended"}, True)] * 100
    assert Watched(clock, late, ends=STARTING).watch() == {"finished": 1}
    assert clock[0] > STARTING


def test_a_plan_whose_process_is_gone_is_given_up_soon(clock):
    lost = Watched(clock, [MEASURING] + [({"phase": "measuring"}, False)] * 9).watch()
    assert lost["failed"] and clock[0] < 60


def test_a_plan_whose_reader_is_gone_is_ended_once(clock, monkeypatch):
    monkeypatch.setattr(smt_benchmark.terminal, "is_read", lambda _descriptor: False)
    watched = Watched(clock, [MEASURING] * 9)
    assert watched.watch() == {"finished": 1} and watched.asked == ["smt_benchmark_stop"]
