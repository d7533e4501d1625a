# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of an evaluation on this machine as an ordinary user, and what is recorded of the machine."""

from __future__ import annotations

import os
import signal
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import memory
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import environment, plan, steps
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation.run_directory import (
    RunDirectory,
    RunDirectoryError,
    base_directory,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import quotas
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state
from plans import SETTINGS, own


@pytest.fixture(name="user", autouse=True)
def an_ordinary_user(tmp_path, monkeypatch):
    """Run as a user who is not root, with a directory of runs for this test."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(steps, "END_SECONDS", 0)
    monkeypatch.setattr(steps.environment, "PAUSE", 0)


def described(**changed):
    return steps.describe("one", {**SETTINGS, **changed})


@pytest.fixture(name="held")
def an_evaluation_that_is_held(tmp_path):
    """Run ``first`` in another process, whose samples wait for the file ``go``. Yields the pid."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    line = f"echo x >> {begun}; while [ $(wc -l < {begun}) -gt 2 ] && [ ! -e {go} ]; do sleep 0.05; done; echo rate 1"
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            settings = {**SETTINGS, "blocks": 3, "custom": [own("own", line, timeout=600)]}
            status = 0 if steps.measure("first", settings)["outcome"] == "completed" else 2
        finally:
            os._exit(status)
    samples = os.path.join(base_directory(), "first", "samples.jsonl")
    while not os.path.exists(samples):
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        time.sleep(0.02)
    yield pid
    go.touch()


def test_numbers_of_streams_follow_the_cpus_that_workers_can_use(monkeypatch):
    """CPU 7 is isolated, CPUs 4 to 6 are siblings that are offline, CPU 8 is only in the mask."""
    cores = ((0, 4), (1, 5), (2, 6), (3, 7))
    online, isolated = (0, 1, 2, 3, 7), (3, 7)
    topology = Topology(present=tuple(range(8)), online=online, isolated=isolated, cores=cores, source="sysfs")
    monkeypatch.setattr(steps.sibling_source, "read", lambda *_host: topology)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3, 8})
    settings = {**SETTINGS, "placements": [], "streams": ["auto"]}
    outline = steps._outline(smt_facts.gather(HostFs("/")), settings, smt_state.read("/"))
    assert outline.names == [f"free_{count}" for count in range(1, 10)]


def test_a_second_evaluation_is_refused_with_the_name_of_the_first_and_does_not_affect_it(held, tmp_path):
    second = steps.describe("second", SETTINGS)
    (obstacle,) = second["obstacles"]
    assert second["uncollected"] == [] and f"(run first), pid {held} " in obstacle
    with pytest.raises(locks.HostLockError, match=rf"\(run first\), pid {held} "):
        steps.measure("second", SETTINGS)
    for step in (steps.collect, steps.forget):
        with pytest.raises(RunDirectoryError, match=f"by process {held}"):
            step("first", SETTINGS)
    (tmp_path / "go").touch()
    assert os.waitpid(held, 0)[1] == 0
    assert steps.describe("second", SETTINGS)["uncollected"] == ["first"]
    result = steps.collect("first", SETTINGS)["result"]
    assert result["outcome"] == "completed" and [sample["block"] for sample in result["samples"]] == [0, 1, 2]
    steps.forget("first", SETTINGS)
    assert steps.measure("second", SETTINGS)["outcome"] == "completed"
    third = steps.describe("third", SETTINGS)
    assert (third["uncollected"], third["obstacles"]) == (["second"], [])


def test_a_killed_evaluation_is_reported_as_interrupted(held):
    os.kill(held, signal.SIGKILL)
    os.waitpid(held, 0)
    RunDirectory(base_directory(), "first").wait_for_end(600)
    assert steps.describe("second", SETTINGS)["uncollected"] == ["first"]
    result = steps.collect("first", SETTINGS)["result"]
    assert result["outcome"] == "interrupted" and len(result["samples"]) >= 1


def test_a_user_who_is_not_root_hears_before_the_start_that_arms_need_root(monkeypatch):
    """This machine may have nothing to switch: what is asked is whether the host could be switched."""
    arms = ["as_found", "panic_on_oom"]
    monkeypatch.setattr(memory._MemoryPolicy, "_why_not", lambda self: None)
    (obstacle,) = described(arms=arms)["obstacles"]
    assert obstacle.startswith("root is needed to switch this host to panic when out of memory: use become: true")
    with pytest.raises(plan.PlanError, match="root is needed"):
        steps.measure("one", {**SETTINGS, "arms": arms})
    assert described()["obstacles"] == []


def test_a_change_that_waits_to_be_confirmed_is_an_obstacle_and_so_is_an_owner_that_is_nobody(monkeypatch):
    with pytest.raises(HostError, match="affinity_conflicts_of names orcale"):
        described(affinity_conflicts_of=["services", "orcale"])
    waiting = {"seconds": 60, "since": time.monotonic(), "by": "for user root"}
    monkeypatch.setattr(steps.pending_rollback, "load", lambda fs: waiting)
    (obstacle,) = described()["obstacles"]
    assert obstacle.startswith("a change on this host waits to be confirmed")
    with pytest.raises(locks.HostLockError, match="waits to be confirmed"):
        steps.measure("one", SETTINGS)


def test_workloads_whose_commands_are_missing_are_named_before_the_start(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "gzip").write_text("#!/bin/sh\n", encoding="ascii")
    (tmp_path / "gzip").chmod(0o755)
    found = described(workloads=["gzip", "sysbench_cpu", "stream"], custom=[{**own("own"), "argv": ["frobnicate"]}])
    assert (found["workloads"], found["missing_packages"]) == (["gzip"], ["gcc", "sysbench"])
    assert [one["name"] for one in found["workloads_left_out"]] == ["sysbench_cpu", "stream", "own"]
    installs = "; smt_eval_install=true installs what is missing."
    assert found["announcement"][-3:] == [
        f"The workload sysbench_cpu is left out: sysbench is not installed (package sysbench){installs}",
        f"The workload stream is left out: no C compiler is installed: none of cc, gcc, clang (package gcc){installs}",
        "The workload own is left out: frobnicate is not installed.",
    ]


def test_what_the_kernel_says_of_the_processor(monkeypatch):
    found = {"CPU implementer": "0x41", "CPU part": "0xd49", "microcode": ""}
    monkeypatch.setattr(cpuinfo, "read_first", lambda _fs: found)
    found = environment.read("kvm")
    assert (found["cpu_model"], found["microcode"], found["hypervisor"]) == ("Arm Neoverse-N2", None, "kvm")


def test_the_smallest_quota_is_what_the_run_may_use(monkeypatch):
    assert environment.read()["cpu_quota"] is None or environment.read()["cpu_quota"] > 0
    found = [quotas.Quota("/pod", 4.0, 0.0), quotas.Quota("/pod/one", 2.5, 0.0)]
    monkeypatch.setattr(quotas, "read", lambda _files: found)
    assert environment.read()["cpu_quota"] == 2.5


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [("intel_pstate/no_turbo", "0", True), ("intel_pstate/no_turbo", "1", False), ("cpufreq/boost", "1", True)],
)
def test_the_boost_is_read(tmp_path, path, text, expected):
    place = tmp_path / "sys/devices/system/cpu" / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text + "\n")
    assert environment.boost(files.HostFs(str(tmp_path))) is expected
