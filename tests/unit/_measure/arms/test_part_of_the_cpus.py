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
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import read_topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base, catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import plan, selection
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state
from fake_cgroups import CONTROL, DATABASE, DATABASE_GROUP, MOUNT, SESSION, CgroupHost
from fake_kernel import numbered_cores

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


def test_workers_that_nobody_pins_stay_within_the_arm(kernel):
    found, _saved = chosen(kernel, "as_found", "one_thread_per_core")
    names = ["unpinned", "free_3", "all_threads", "siblings"]
    outline = plan.Outline(found, found["as_found"].host.topology, range(8), names)
    placed = [outline.placements("one_thread_per_core")[name]["workers"] for name in names]
    assert placed == [[[0, 4]] * 2, [[0, 4]] * 3, [[0], [4]], None]
    assert outline.placements("as_found")["unpinned"]["workers"] == [[]] * 8
    # The thread of a core is one that the plan may use.
    outline = plan.Outline(found, found["as_found"].host.topology, {1, 2, 6}, ["all_threads"])
    assert outline.usable("one_thread_per_core") == [1, 6]


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


def test_what_another_unit_needs_of_the_controller_stays(kernel):
    found, saved = chosen(kernel, "as_found", UNIT)
    proved(found, UNIT)
    kernel.write(MOUNT + "/system.slice/ssh.service/cpuset.cpus", "0-3")
    assert found.restore(saved) == []
    assert (
        kernel.groups["/system.slice"]["down"] and kernel.read(MOUNT + "/system.slice/ssh.service/cpuset.cpus") == "0-3"
    )
    assert kernel.read(MOUNT + DATABASE_GROUP + "/cpuset.cpus") == ""


def test_a_partition_has_whole_cores_and_the_plan_in_it(kernel):
    found, saved = chosen(kernel, "as_found", "isolated")
    proved(found, "isolated")
    assert kernel.read(MOUNT + "/threadwise-smt-isolated/cpuset.cpus.partition") == "isolated"
    assert [kernel.processes[pid]["mask"] for pid in (20, 21, 30)] == [{0, 1, 2, 3}, {0, 1, 2, 3}, {1}]
    assert kernel.effective("/") == {0, 1, 2, 3} and kernel.group_of(os.getpid()) == "/threadwise-smt-isolated"
    assert found.restore(saved) == []
    assert kernel.group_of(os.getpid()) == SESSION and "/threadwise-smt-isolated" not in kernel.groups


def test_the_plan_gets_its_own_mask_back(kernel, monkeypatch):
    # On a host the plan itself is not among the tasks that are saved.
    capture = affinity.capture_tasks
    monkeypatch.setattr(
        affinity,
        "capture_tasks",
        lambda files, online: [task for task in capture(files, online) if task["pid"] != os.getpid()],
    )
    kernel.set_affinity(os.getpid(), {1, 6})
    found, saved = chosen(kernel, "as_found", "isolated")
    proved(found, "isolated")
    assert found.restore(saved) == [] and kernel.processes[os.getpid()]["mask"] == {1, 6}


def test_a_kernel_without_isolated_partitions_makes_a_root(tmp_path, monkeypatch):
    kernel = CgroupHost(tmp_path, old=True)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    found, saved = chosen(kernel, "as_found", "isolated")
    proved(found, "isolated")
    assert kernel.read(MOUNT + "/threadwise-smt-isolated/cpuset.cpus.partition") == "root"
    assert found.restore(saved) == []


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


def test_what_a_killed_plan_left_is_removed_before_the_next_partition(kernel):
    found, saved = chosen(kernel, "as_found", "isolated")
    kernel.make_directory(MOUNT + "/threadwise-smt-isolated")
    proved(found, "isolated")
    assert found.restore(saved) == [] and "/threadwise-smt-isolated" not in kernel.groups


CHANGES = {
    "isolated": lambda kernel: kernel.write(MOUNT + "/threadwise-smt-isolated/cpuset.cpus.partition", "member"),
    UNIT: lambda kernel: kernel.write(MOUNT + DATABASE_GROUP + "/cpuset.cpus", "0-7"),
    "threads_per_core_2": lambda kernel: kernel.write("sys/devices/system/cpu/cpu2/online", "1"),
    "smt_off_on_cpus_4-5": lambda kernel: kernel.write("sys/devices/system/cpu/cpu1/online", "0"),
    "smt_off": lambda kernel: kernel.write("sys/devices/system/cpu/smt/control", "on"),
    "one_thread_per_core": lambda kernel: kernel.write("sys/devices/system/cpu/cpu7/online", "0"),
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


def test_a_thread_that_leaves_the_units_cpus_is_found(kernel):
    found, _saved = chosen(kernel, "as_found", UNIT)
    proved(found, UNIT)
    kernel.processes[21]["mask"] = {0, 1}
    kernel.show_process(21, DATABASE_GROUP)
    with pytest.raises(base.ArmError, match=r"threads of .* may run elsewhere: thread 21 on 0-1"):
        found.prove(UNIT)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("threads_per_core_1", "is the arm smt_off"),
        ("threads_per_core_4", "is the arm smt_on"),
        ("threads_per_core_5", "have at most 4 threads"),
        ("one_thread_per_core_unit_nosuch.service", "this host has no unit nosuch.service"),
        ("smt_off_on_cpus_0_4", "is every core of this host, and so the arm smt_off"),
        ("smt_off_on_cpus_0-9", "there is no CPU 8 on this host"),
        ("smt_off_on_unit_nosuch.service", "has no cgroup on this host"),
    ],
)
def test_an_arm_that_this_host_cannot_have_is_left_out_with_its_reason(kernel, name, words):
    assert words in reason(kernel, name)


def test_a_partition_needs_two_cores_and_a_controller_and_a_unit_a_service_manager(tmp_path, kernel):
    one_core = CgroupHost(tmp_path / "one", cores=numbered_cores(1, 4, "adjacent"))
    assert "two cores" in reason(one_core, "isolated")
    assert "systemctl show failed" in reason(kernel, UNIT, run=lambda argv: (1, "", "Failed to connect to bus"))
    kernel.write(MOUNT + "/cgroup.subtree_control", "+cpuset")
    kernel.write(MOUNT + "/system.slice/cpuset.cpus", "4-5")
    assert "system.slice (4-5)" in reason(kernel, "isolated")
    kernel.put(MOUNT + "/cgroup.controllers", "cpu memory\n")
    assert "no cpuset controller" in reason(kernel, "isolated") and "no cpuset controller" in reason(kernel, UNIT)
    kernel.put("proc/self/mounts", "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n")
    assert reason(kernel, "isolated") == "this host has no cgroup v2"
    kernel.write("sys/devices/system/cpu/smt/control", "off")
    assert reason(kernel, "one_thread_per_core") is not None


@pytest.mark.parametrize("name", ["isolated", UNIT, "threads_per_core_2"])
def test_affinity_conflicts_are_said_and_can_prevent_it(kernel, name):
    kernel.set_affinity(20, {7})
    announced = selection.Arms(["as_found", name], host(kernel)).announcement(600)
    (group,) = [said for said in announced if "about 5 min in all" in said and "p20" in said]
    assert "7" in group and "p20" in reason(kernel, name, selected_conflicts=["services"])


def test_each_arm_has_a_group_of_sentences(kernel):
    said = selection.Arms(list(ARMS), host(kernel)).announcement(600)
    assert [line.partition(",")[0] for line in said[1:-1]] == [catalogue.title(name) for name in ARMS]
    assert all("about 86 s in all: " in line for line in said[1:-1])
    restored = "the CPUs of postgresql@15-main.service and the cpusets and SMT (smt/control on, CPUs 0-7 online)"
    assert restored in said[-1]


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
    """Nor where affinity conflicts prevent nothing: the host would be dead (runtime/test_first_state.py)."""
    folder = os.path.join(kernel.sysroot, "proc/500/task/500")
    os.makedirs(folder)
    with open(os.path.join(folder, "stat"), "w", encoding="ascii") as stat:
        stat.write("500 (cyclicdl) S 1 0 0 0 0 4194304" + " 0" * 12 + " 1000" + " 0" * 18 + " 6" + " 0" * 11)
    for name in ("smt_off", "threads_per_core_2", "smt_off_on_cpus_4-5"):
        assert "pid 500 cyclicdl" in reason(kernel, name, selected_conflicts=[])
    assert reason(kernel, "smt_on") is None
