# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's look at a plan that says nothing: one that is late is waited for, one that was lost is not."""

from __future__ import annotations

import itertools

import pytest
from ansible_collections.threadwise.smt.plugins.action import smt_benchmark
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import progress


class Watched(smt_benchmark.ActionModule):
    """An action whose host answers what a test says: (progress, whether the plan's process is there),
    and "it goes on" for the job.
    """

    def __init__(self, looks):
        self.looks = iter(looks)
        self._task = type("Task", (), {"args": {}})()

    def _look(self, directory):
        return next(self.looks)

    def _status(self, task_vars, job_id):
        return {"started": 1, "finished": 0}


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that only the pauses between two looks move."""
    seconds = itertools.count(0, smt_benchmark.LOOK_SECONDS)
    now = [0]
    monkeypatch.setattr(smt_benchmark.time, "sleep", lambda _seconds: now.__setitem__(0, next(seconds)))
    monkeypatch.setattr(smt_benchmark.time, "monotonic", lambda: now[0])
    return now


def test_a_plan_that_never_says_a_word_is_lost(clock):
    """The host lost its power before the plan wrote anything:
    Ansible's record of the job says for ever that it goes on.
    """
    lost = Watched(itertools.repeat((None, False)))._watch({}, "h1", "/run", "1", progress.Shown(3))
    assert lost["failed"] and "restarted" in lost["msg"]
    assert smt_benchmark.STARTING_SECONDS < clock[0] < smt_benchmark.STARTING_SECONDS + 60


def test_a_plan_that_begins_late_is_waited_for(clock):
    late = [(None, False)] * (smt_benchmark.STARTING_SECONDS // smt_benchmark.LOOK_SECONDS) + [
        ({"phase": "ended"}, True)
    ] * 100
    watched = Watched(late)
    watched._status = lambda _vars, _job: {"finished": clock[0] > smt_benchmark.STARTING_SECONDS}
    assert watched._watch({}, "h1", "/run", "1", progress.Shown(3)) == {"finished": True}


def test_a_plan_whose_process_is_gone_is_given_up_soon(clock):
    lost = Watched([({"phase": "measuring"}, True)] + [({"phase": "measuring"}, False)] * 9)._watch(
        {}, "h1", "/run", "1", progress.Shown(3)
    )
    assert lost["failed"] and clock[0] < 60


def test_a_plan_whose_reader_is_gone_is_ended_once(clock, monkeypatch):
    monkeypatch.setattr(smt_benchmark.terminal, "is_read", lambda _descriptor: False)
    watched = Watched([({"phase": "measuring"}, True)] * 2 + [({"phase": "ended"}, False)])
    asked = []
    watched.ask = lambda kind, *_rest, **_how: asked.append(kind)
    watched._status = lambda _vars, _job: {"finished": True, "outcome": "interrupted"}
    ended = watched._watch({}, "h1", "/run", "1", progress.Shown(3))
    assert asked == ["smt_benchmark_stop"] and ended["outcome"] == "interrupted"
