# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arms in which work has a part of the CPUs: one thread of each core, a partition, fewer threads of each core;
on a tree with a kernel's rules.
"""

from __future__ import annotations

import json
import os

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import read_topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import plan, selection
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state
from fake_cgroups import CONTROL, DATABASE, DATABASE_GROUP, MOUNT, SESSION, CgroupHost

FACTS = {"control": "on", "supported": True, "complete": True, "source": "sysfs", "threads_per_core": {"max": 4}}
FACTS["methods"] = {"runtime": {"chosen": "smt_control", "possible": ["smt_control"], "impossible": {}}}
UNIT = f"one_thread_per_core_unit_{DATABASE}"
# With the CPUs that workers have in each of them.
ARMS = {
    "as_found": [0, 1, 2, 3, 4, 5, 6, 7],
    "threads_per_core_2": [0, 1, 4, 5],
    "one_thread_per_core": [0, 4],
    UNIT: [0, 1, 2, 3, 4, 5, 6, 7],
    "isolated": [4, 5, 6, 7],
    "smt_off": [0, 4],
    "smt_off_on_cpus_4-5": [0, 1, 2, 3, 4],
}


@pytest.fixture(name="kernel")
def a_host_with_cgroups(tmp_path, monkeypatch):
    kernel = CgroupHost(tmp_path)
    # The mask of this test process is the one that the tree shows.
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(kernel.processes[os.getpid()]["mask"]))
    return kernel


def host(kernel, **changed):
    topology = read_topology(HostFs(kernel.sysroot))
    return base.ArmHost(FACTS, topology, smt_state.read(files=kernel), files=kernel, run=kernel.run)._replace(**changed)


def chosen(kernel, *names, **changed):
    """Return the arms of an evaluation that is about to begin, and what was saved, as a file of the run keeps it."""
    found = selection.Arms(names, host(kernel, **changed))
    saved = json.loads(json.dumps(found.save()))
    found.begin(saved)
    return found, saved


def reason(kernel, name, **changed):
    found = selection.Arms(["as_found", name], host(kernel, **changed))
    return next((arm["reason"] for arm in found.left_out), None)


def proved(found, name):
    """Switch to an arm and prove it, as the plan does."""
    found.switch(name)
    found.prove(name)


def test_each_arm_is_proved_and_all_is_restored_to_the_letter(kernel):
    found, saved = chosen(kernel, *ARMS)
    before = kernel.everything()
    outline = plan.Outline(found, found["as_found"].host.topology, range(8), ["all_threads", "unpinned", "free_3"])
    assert {name: outline.usable(name) for name in found.names} == ARMS
    for name in [*ARMS, *[*reversed(ARMS)][:: night.number(7, 1)]]:
        proved(found, name)
    assert found.restore(saved) == [] and kernel.everything() == before
    assert selection.differences(saved, files=kernel)["ok"]


@pytest.mark.night(after=4)
@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("name", [name for name in ARMS if name not in ("as_found", "one_thread_per_core")])
def test_another_process_restores_each_arm(tmp_path, monkeypatch, name, remembers):
    """After SIGKILL of the plan: nothing is left in memory, the host is still in the arm,
    and only the file of the run says what was before.
    """
    kernel = CgroupHost(tmp_path, remembers=remembers)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(kernel.processes[os.getpid()]["mask"]))
    found, saved = chosen(kernel, "as_found", name)
    before = kernel.everything()
    proved(found, name)
    assert kernel.everything() != before and not selection.differences(saved, files=kernel)["ok"]
    del found
    assert selection.Arms(["as_found", name], host(kernel)).restore(saved) == []
    assert kernel.everything() == before and selection.differences(saved, files=kernel)["ok"]


def test_threads_of_a_unit_run_on_first_threads_only(kernel):
    found, saved = chosen(kernel, "as_found", UNIT)
    assert kernel.processes[20]["mask"] == {5}, "pinned by the database itself"
    proved(found, UNIT)
    assert [kernel.processes[pid]["mask"] for pid in (20, 21, 30)] == [{0, 4}, {0, 4}, {1}], "others stay pinned"
    assert kernel.exists(f"{CONTROL}/{DATABASE}.d/50-AllowedCPUs.conf")
    assert found.restore(saved) == []
    assert [kernel.processes[pid]["mask"] for pid in (20, 21, 30)] == [{5}, set(range(8)), {1}]
    assert not kernel.exists("run/systemd/system.control") and not kernel.groups["/"]["down"]


def test_the_cpus_that_an_administrator_gave_a_unit_come_back(kernel):
    kernel.run(["systemctl", "--no-pager", "set-property", "--runtime", "--", DATABASE, "AllowedCPUs=2-5"])
    found, saved = chosen(kernel, "as_found", UNIT)
    before = kernel.everything()
    proved(found, UNIT)
    assert kernel.read(MOUNT + DATABASE_GROUP + "/cpuset.cpus") == "2,4", "the first of its own threads on each core"
    assert found.restore(saved) == [] and kernel.everything() == before and kernel.allowed[DATABASE] == "2-5"


def test_a_partition_has_whole_cores_and_the_plan_in_it(kernel):
    found, saved = chosen(kernel, "as_found", "isolated")
    # What a killed plan left is removed first.
    kernel.make_directory(MOUNT + "/threadwise-smt-isolated")
    proved(found, "isolated")
    assert kernel.read(MOUNT + "/threadwise-smt-isolated/cpuset.cpus.partition") == "isolated"
    assert [kernel.processes[pid]["mask"] for pid in (20, 21, 30)] == [{0, 1, 2, 3}, {0, 1, 2, 3}, {1}]
    assert kernel.effective("/") == {0, 1, 2, 3} and kernel.group_of(os.getpid()) == "/threadwise-smt-isolated"
    assert found.restore(saved) == []
    assert kernel.group_of(os.getpid()) == SESSION and "/threadwise-smt-isolated" not in kernel.groups


def test_a_partition_that_the_kernel_makes_invalid_ends_the_evaluation(kernel):
    found, saved = chosen(kernel, "as_found", "isolated")
    before = kernel.everything()
    # A moment after the plan has looked.
    kernel.groups["/"]["down"] = True
    kernel.show()
    kernel.write(MOUNT + "/user.slice/cpuset.cpus", "4-7")
    with pytest.raises(base.ArmError, match=r"not exclusive"):
        found.switch("isolated")
    kernel.write(MOUNT + "/user.slice/cpuset.cpus", "")
    assert found.restore(saved) == [] and kernel.everything() == before


CHANGES = {
    "isolated": lambda kernel: kernel.write(MOUNT + "/threadwise-smt-isolated/cpuset.cpus.partition", "member"),
    UNIT: lambda kernel: kernel.write(MOUNT + DATABASE_GROUP + "/cpuset.cpus", "0-7"),
    "smt_off_on_cpus_4-5": lambda kernel: kernel.write("sys/devices/system/cpu/cpu1/online", "0"),
    "smt_off": lambda kernel: kernel.write("sys/devices/system/cpu/smt/control", "on"),
    "as_found": lambda kernel: kernel.run(
        ["systemctl", "--no-pager", "set-property", "--runtime", "--", DATABASE, "AllowedCPUs=1"]
    ),
}


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_somebody_who_changes_the_host_in_the_middle_is_found(kernel, name):
    found, _saved = chosen(kernel, *ARMS)
    proved(found, name)
    CHANGES[name](kernel)
    with pytest.raises(base.ArmError, match=r"the host is not in the arm|somebody has changed the host"):
        found.prove(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("threads_per_core_5", "have at most 4 threads"),
        ("one_thread_per_core_unit_nosuch.service", "this host has no unit nosuch.service"),
        ("smt_off_on_cpus_0-9", "there is no CPU 8 on this host"),
    ],
)
def test_an_arm_that_this_host_cannot_have_is_left_out_with_its_reason(kernel, name, words):
    assert words in reason(kernel, name)


def test_a_restoration_that_fails_is_reported_and_the_rest_is_restored(kernel):
    found, saved = chosen(kernel, "as_found", "isolated", UNIT)
    proved(found, UNIT)
    found["isolated"].host.files.refusals[0, True] = 1
    broken = host(kernel, run=lambda argv: (1, "", "the bus is gone"))
    left = selection.Arms(["as_found", "isolated", UNIT], broken).restore(saved)
    assert any("the bus is gone" in sentence for sentence in left)
    # The kernel has no cpuset any more, whatever systemd does.
    assert kernel.read(MOUNT + DATABASE_GROUP + "/cpuset.cpus") is None
    found = selection.differences(saved, files=kernel)["differences"]
    assert any("50-AllowedCPUs.conf was absent, is present" in sentence for sentence in found)


def test_no_siblings_are_taken_from_threads_of_sched_deadline(kernel):
    """Nor where affinity conflicts prevent nothing: the host would be dead (tests/unit/_set/runtime/test_change.py)."""
    folder = os.path.join(kernel.sysroot, "proc/500/task/500")
    os.makedirs(folder)
    with open(os.path.join(folder, "stat"), "w", encoding="ascii") as stat:
        stat.write("500 (cyclicdl) S 1 0 0 0 0 4194304" + " 0" * 12 + " 1000" + " 0" * 18 + " 6" + " 0" * 11)
    for name in ("smt_off", "threads_per_core_2", "smt_off_on_cpus_4-5"):
        assert "pid 500 cyclicdl" in reason(kernel, name, selected_conflicts=[])
    assert reason(kernel, "smt_on") is None
