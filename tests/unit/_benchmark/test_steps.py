# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of an evaluation on this machine as an ordinary user:
two concurrent evaluations do not affect each other.
"""

from __future__ import annotations

import os
import re
import signal
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._arms import memory
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import plan, steps
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.run_directory import (
    RunDirectory,
    RunDirectoryError,
    base_directory,
)
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import Topology

SETTINGS = {
    "arms": ["as_found"],
    "workloads": [],
    "placements": ["single"],
    "streams": [],
    "cpus": [],
    "siblings": "kernel",
    "response_limit": {},
    "budget": 600,
    "shared_by": 1,
    "blocks": 3,
    "sample_seconds": 0.05,
    "settle_seconds": 0,
    "affinity_conflicts": "warn",
    "affinity_conflicts_of": ["services"],
    "overcommit_ratio": None,
    "goal": "precision",
    "margin": 0.01,
    "sources": {},
}


@pytest.fixture(name="user", autouse=True)
def an_ordinary_user(tmp_path, monkeypatch):
    """Run as a user who is not root, with a directory of runs for this test."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(steps, "END_SECONDS", 0)


@pytest.fixture(name="held")
def an_evaluation_that_is_held(tmp_path):
    """Run ``first`` in another process, whose samples wait for the file ``go``. Yields the pid."""
    line = (
        "echo x >> %s/begun; while [ $(wc -l < %s/begun) -gt 2 ] && [ ! -e %s/go ]; do sleep 0.05; done; echo rate 1"
        % ((tmp_path,) * 3)
    )
    metric = {"name": "rate", "unit": "1/s", "better": "higher", "pattern": "rate ([0-9.]+)"}
    settings = dict(SETTINGS, custom=[{"name": "own", "argv": ["sh", "-c", line], "metric": metric, "timeout": 600}])
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            status = 0 if steps.measure("first", settings)["outcome"] == "completed" else 2
        finally:
            os._exit(status)
    samples = os.path.join(base_directory(), "first", "samples.jsonl")
    while not os.path.exists(samples):
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        time.sleep(0.02)
    yield pid
    (tmp_path / "go").touch()


CUSTOM = [
    {
        "name": "own",
        "argv": ["echo", "rate 1"],
        "metric": {"name": "rate", "unit": "1/s", "better": "higher", "pattern": "rate ([0-9.]+)"},
    }
]


def test_a_host_that_shares_the_work_of_one_says_for_how_long_it_measures():
    settings = dict(SETTINGS, custom=CUSTOM, arms=["as_found"])
    alone, one_of_four = (steps.describe("one", dict(settings, shared_by=hosts))["announcement"] for hosts in (1, 4))
    sentence = (
        "4 hosts of this hardware class share the work of one: this one measures for about 2 min of about 10 min, and"
        " longer only until it has 6 blocks."
    )
    assert sentence in one_of_four and "for about 2 min, or less once enough is known." in one_of_four[-1]
    assert "share" not in " ".join(alone) and "for about 10 min, or less once enough is known." in alone[-1]


def test_numbers_of_streams_follow_the_cpus_that_workers_can_use(monkeypatch):
    """CPU 7 is isolated, CPUs 4 to 6 are siblings that are offline, CPU 8 is only in the mask."""
    cpus = tuple(range(8))
    topology = Topology(
        present=cpus, online=(0, 1, 2, 3, 7), isolated=(3, 7), cores=((0, 4), (1, 5), (2, 6), (3, 7)), source="sysfs"
    )
    monkeypatch.setattr(steps.sibling_source, "read", lambda *_host: topology)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3, 8})
    host = smt_facts.gather(HostFs("/"))
    outline = steps._outline(host, dict(SETTINGS, placements=[], streams=["auto"]), smt_state.read("/"))
    assert outline.names == [f"free_{count}" for count in range(1, 10)]


def test_a_second_evaluation_is_refused_with_the_name_of_the_first_and_does_not_affect_it(held, tmp_path):
    settings = dict(SETTINGS, custom=CUSTOM)
    described = steps.describe("second", settings)
    assert described["uncollected"] == []
    (obstacle,) = described["obstacles"]
    assert re.search(rf"an evaluation \(run first\), pid {held} .*: try again when it has finished", obstacle)
    with pytest.raises(
        locks.HostLockError, match=rf"an evaluation \(run first\), pid {held} .*: try again when it has finished"
    ):
        steps.measure("second", settings)
    for step in (steps.collect, steps.forget):
        with pytest.raises(
            RunDirectoryError, match=f"run first is still being measured on this host by process {held}"
        ):
            step("first", settings)
    (tmp_path / "go").touch()
    assert os.waitpid(held, 0)[1] == 0
    assert steps.describe("second", settings)["uncollected"] == ["first"]
    result = steps.collect("first", settings)["result"]
    assert result["outcome"] == "completed" and [sample["block"] for sample in result["samples"]] == [0, 1, 2]
    steps.forget("first", settings)
    assert steps.measure("second", settings)["outcome"] == "completed"
    third = steps.describe("third", settings)
    assert (third["uncollected"], third["obstacles"]) == (["second"], [])


def test_an_owner_of_conflicts_that_this_host_does_not_have_is_refused():
    with pytest.raises(HostError, match="affinity_conflicts_of names orcale"):
        steps.describe("one", dict(SETTINGS, custom=CUSTOM, affinity_conflicts_of=["services", "orcale"]))


def test_a_killed_evaluation_is_reported_as_interrupted(held):
    os.kill(held, signal.SIGKILL)
    os.waitpid(held, 0)
    until = time.monotonic() + 600
    while RunDirectory(base_directory(), "first").is_running() and time.monotonic() < until:
        time.sleep(0.02)
    assert steps.describe("second", dict(SETTINGS, custom=CUSTOM))["uncollected"] == ["first"]
    result = steps.collect("first", SETTINGS)["result"]
    assert result["outcome"] == "interrupted" and len(result["samples"]) >= 1


@pytest.mark.parametrize("name", ["../x", ".x", "a/b", "a\n", "", "x" * 101, "\x1b[2J"])
@pytest.mark.parametrize("step", sorted(steps.STEPS))
def test_a_name_that_leads_to_another_path_is_refused_by_each_step(step, name):
    with pytest.raises(RunDirectoryError, match="a run cannot be called"):
        steps.STEPS[step](name, dict(SETTINGS, custom=CUSTOM))


def test_a_user_who_is_not_root_hears_before_the_start_that_arms_need_root(monkeypatch):
    """This machine may have nothing to switch: what is asked of the arms is whether the host could be switched to
    them.
    """
    settings = dict(SETTINGS, custom=CUSTOM, arms=["as_found", "panic_on_oom"])
    monkeypatch.setattr(memory._MemoryPolicy, "_why_not", lambda self: None)
    (obstacle,) = steps.describe("one", settings)["obstacles"]
    assert obstacle.startswith(
        "root is needed to switch this host to panic when out of memory: use become: true, or ansible-playbook -b"
    )
    with pytest.raises(plan.PlanError, match="root is needed to switch this host"):
        steps.measure("one", settings)
    assert steps.describe("two", dict(settings, arms=["as_found"]))["obstacles"] == []


def test_a_change_that_waits_to_be_confirmed_is_an_obstacle(monkeypatch):
    waiting = {"seconds": 60, "since": time.monotonic(), "by": "for user root"}
    monkeypatch.setattr(steps.pending_rollback, "load", lambda fs: waiting)
    (obstacle,) = steps.describe("one", dict(SETTINGS, custom=CUSTOM))["obstacles"]
    assert obstacle.startswith("a change on this host waits to be confirmed")


def test_workloads_whose_commands_are_missing_are_named_before_the_start(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "gzip").write_text("#!/bin/sh\n", encoding="ascii")
    (tmp_path / "gzip").chmod(0o755)
    custom = [dict(CUSTOM[0], argv=["frobnicate"])]
    described = steps.describe("one", dict(SETTINGS, workloads=["gzip", "sysbench_cpu", "stream"], custom=custom))
    assert described["workloads"] == ["gzip"]
    assert described["missing_packages"] == ["gcc", "sysbench"]
    assert [one["name"] for one in described["workloads_left_out"]] == ["sysbench_cpu", "stream", "own"]
    assert described["announcement"][-3:] == [
        (
            "The workload sysbench_cpu is left out: sysbench is not installed (package sysbench); smt_eval_install=true"
            " installs what is missing."
        ),
        (
            "The workload stream is left out: no C compiler is installed: none of cc, gcc, clang (package gcc);"
            " smt_eval_install=true installs what is missing."
        ),
        "The workload own is left out: frobnicate is not installed.",
    ]
