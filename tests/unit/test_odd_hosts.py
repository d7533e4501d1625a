# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that are rare: containers, no systemd, 1,024 CPUs, CPU 0 offline, nodes without memory.

Each gets a sentence, and none is changed by half.
"""

from __future__ import annotations

import dataclasses
import json
import os

import containers
import memory_tree
import pytest
import result_maker
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import run_directory
from ansible_collections.threadwise.smt.plugins.module_utils._bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._smt import (
    change as smt_change,
    scope as smt_scope,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._smt.at_boot import persistence
from ansible_collections.threadwise.smt.plugins.module_utils._statistics import verdicts
from ansible_collections.threadwise.smt.plugins.module_utils._topology import (
    cache as topology_cache,
    placement,
    topology,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts as border, results
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import build
from fake_host import Host
from fake_kernel import FakeKernel, numbered_cores

SMALL = sysfs_tree.Machine(packages=2, cores=2, numbering="adjacent")
READ_ONLY = (
    "is on a file system that is mounted read-only, as in a container: change the machine that runs the container, or"
    " mount it read-write"
)
needs_namespaces = pytest.mark.skipif(
    containers.why_none() is not None, reason=f"this machine makes no namespaces: {containers.why_none()}"
)

# ---- containers ------------------------------------------------------------------------------------------------------

ASK_FOR_STATE = """
import os, sys
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._smt import change
for check in (True, False):
    request = change.Request("disabled", check=check, {options})
    try:
        print(change.RuntimeChange(request, lambda command: (0, "", ""), os.path.dirname(sys.argv[1])).run()["changed"])
    except HostError as error:
        print(type(error).__name__, error)
"""
ASK_FOR_MEMORY = """
import os, sys
from ansible_collections.threadwise.smt.plugins.module_utils._memory import change
for check in (True, False):
    request = change.Request("present", {"overcommit": "always", "margin": 10}, None, check)
    try:
        print(change.MemoryChange(request, lambda command: (0, "", ""), os.path.dirname(sys.argv[1])).run()["changed"])
    except change.ERRORS as error:
        print(type(error).__name__, error)
"""
READ_METHODS = """
import json, os, sys
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import files
class Root(files.HostFs):
    is_host = True
print(json.dumps(facts.gather(Root(os.path.dirname(sys.argv[1])))["methods"]["runtime"]))
"""


def tree(root, machine=SMALL, **more):
    """A machine's tree below root, which stays as it is for programs that cannot be fake kernels."""
    return sysfs_tree.write(
        root, {**sysfs_tree.files(machine), "proc/self/mounts": "", "proc/sys/kernel/random/boot_id": "first\n", **more}
    )


def put_to_another_user(root):
    """Give the files of sys to a user whom a container does not know: its root may only read them."""
    for folder, _folders, names in os.walk(f"{root}/sys"):
        for name in names:
            os.chown(os.path.join(folder, name), 1, 1)


@needs_namespaces
@pytest.mark.parametrize(
    ("options", "file"),
    [
        ("", "smt/control"),
        ("method='cpu_online'", "cpu1/online"),
        ("cores={'package': 1}, affinity_conflicts='warn'", "cpu5/online"),
    ],
)
def test_read_only_sysfs_is_refused_in_check_mode_too(tmp_path, options, file):
    root = tree(tmp_path)
    checked, asked = containers.run(ASK_FOR_STATE.format(options=options), f"{root}/sys", read_only=True).splitlines()
    where = f"{root}/sys/devices/system/cpu/{file}"
    assert checked == asked == f"ChangeRefusedError {where} {READ_ONLY}. Nothing was changed"
    assert not (tmp_path / "var/lib/threadwise-smt/smt-snapshot.json").exists()


@needs_namespaces
def test_facts_in_a_container_name_the_file_that_is_mounted_read_only(tmp_path):
    root = tree(tmp_path)
    methods = json.loads(containers.run(READ_METHODS, f"{root}/sys", read_only=True))
    assert methods["chosen"] is None
    for method, file in (("smt_control", "smt/control"), ("cpu_online", "cpu1/online")):
        assert methods["impossible"][method] == f"{root}/sys/devices/system/cpu/{file} {READ_ONLY}"


@needs_namespaces
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
def test_root_that_may_not_write_is_a_container_or_a_security_policy(tmp_path):
    root = tree(tmp_path)
    put_to_another_user(root)
    checked, asked = containers.run(ASK_FOR_STATE.format(options=""), f"{root}/sys").splitlines()
    assert checked == asked
    assert (
        "smt/control cannot be written although this is root (EACCES): a container or a security policy (SELinux,"
        " AppArmor) forbids it" in asked
    )
    methods = json.loads(containers.run(READ_METHODS, f"{root}/sys"))
    assert methods["chosen"] is None and "although this is root (EACCES)" in methods["impossible"]["cpu_online"]


@needs_namespaces
def test_a_memory_policy_on_a_read_only_procfs_is_refused_in_check_mode_too(tmp_path):
    root = memory_tree.tree(tmp_path, overcommit_memory=0)
    checked, asked = containers.run(ASK_FOR_MEMORY, f"{root}/proc", read_only=True).splitlines()
    assert checked == asked
    assert asked == f"MemoryPolicyError {root}/proc/sys/vm/overcommit_memory {READ_ONLY}. Nothing was changed"
    assert not (tmp_path / "etc/sysctl.d").exists()


# ---- no systemd ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [persistence.TMPFILES, persistence.SYSTEMD])
@pytest.mark.parametrize("check", [True, False])
def test_without_systemd_nothing_is_said_to_be_kept_over_boots(tmp_path, mode, check):
    host = Host(tmp_path, systemd=False)
    with pytest.raises(
        smt_change.ChangeRefusedError,
        match=rf"persist: {mode} needs systemd, which does not run on this host.*smt_boot_args",
    ):
        host.ask("disabled", persist=mode, check=check)
    assert (host.writes, host.saved()) == ([], None) and not any(host.exists(path) for path in persistence.PATHS)


def test_without_systemd_a_change_and_its_restoration_work(tmp_path):
    host = Host(tmp_path, systemd=False)
    assert host.ask("disabled")["after"]["online"] == "0,2,4,6"
    with pytest.raises(smt_change.ChangeRefusedError, match=r"needs systemd"):
        host.ask("disabled", persist=persistence.TMPFILES)
    assert host.ask("restored", persist=persistence.TMPFILES)["after"]["online"] == "0-7"
    assert host.commands == []


# ---- 1,024 CPUs ------------------------------------------------------------------------------------------------------

LARGE = sysfs_tree.Machine(packages=8, cores=64)
CORES = 512


@pytest.fixture(scope="module", name="large")
def large_machine(tmp_path_factory):
    """The facts of a machine of 8 packages, 64 cores each, split numbering, and its tree."""
    root = sysfs_tree.write(tmp_path_factory.mktemp("large"), sysfs_tree.files(LARGE))
    return smt_facts.gather(host_files.HostFs(root)), root


def test_facts_of_1024_cpus(large):
    known, _root = large
    border.accept(known)
    assert (
        known["sockets"],
        known["cores"],
        known["threads_per_core"]["max"],
        known["numbering"],
        known["complete"],
    ) == (8, CORES, 2, "split", True)
    assert (known["cpus"]["online"], known["primaries"], known["secondaries"]) == ("0-1023", "0-511", "512-1023")
    assert known["hardware_class"].startswith("x86_64-8s512c1024t-split-") and known["problems"] == []


def test_placements_on_1024_cpus(large):
    known = topology.read_topology(host_files.HostFs(large[1]))
    found = placement.Placements(known.cores, known.packages, known.online, known.nodes)
    assert [
        len(found.workers(name)[0])
        for name in ("one_per_core", "all_threads", "spread_1024", "packed_512", "free_1024")
    ] == [512, 1024, 1024, 512, 1024]
    assert [cpus for (cpus,) in found.workers("packed_4")[0]] == [0, 512, 1, 513]
    assert found.workers("free_1025") == (None, "1025 workers are more than 1024, the most of a placement")


def test_1024_cpus_are_switched_with_one_write_and_described_in_a_few_words(tmp_path):
    host = Host(tmp_path, cores=numbered_cores(CORES, 2, "split"))
    done = host.ask("disabled", persist=persistence.TMPFILES)
    assert done["after"] == {"control": "off", "active": False, "online": "0-511"} and len(host.writes) == 1
    assert host.ask("restored")["after"]["online"] == "0-1023"


def test_a_state_that_512_cpus_differ_from_is_described_in_a_few_words(tmp_path):
    """A result that describes each CPU in a sentence of its own was too long for the border."""
    kernel = FakeKernel(tmp_path, numbered_cores(CORES, 2, "adjacent"))
    before = smt_state.read(files=kernel)
    kernel.write(smt_state.CONTROL, "off")
    text = "; ".join(smt_state.differences(before, smt_state.read(files=kernel)))
    assert (
        text.startswith("smt/control was on, is off; CPUs 1,3,5,7,")
        and text.endswith(",1021,1023 were online, are offline")
        and len(text) < 4000
    )


def test_a_result_of_1024_cpus_passes_the_border_and_makes_a_report(tmp_path):
    document = result_maker.result(host="big", shape=(8, 64, 2), blocks=verdicts.MIN_BLOCKS)
    text = json.dumps(document)
    assert len(text) < run_directory.MAX_BYTES
    results.parse(text, "big")
    result_files.save(tmp_path, document)
    made = build.build(result_files.result_paths(tmp_path), tmp_path)
    assert not made.refused
    assert "SMT off" in (tmp_path / "summary.md").read_text(encoding="utf-8")
    (row,) = [
        row
        for row in json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["hosts"]
        if row["host"] == "big"
    ]
    assert row["outcome"] == "completed"


# ---- CPU 0 offline ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modern", [False, True])
def test_cpu_0_that_is_offline_stays_so_and_its_sibling_keeps_the_core(tmp_path, modern):
    """The control would take CPU 1 offline, too: the kernel counts it as a sibling."""
    host = Host(tmp_path, offline=[0], modern=modern)
    done = host.ask("disabled")
    assert done["after"] == {"control": "on", "active": False, "online": "1-2,4,6"}
    assert host.ask("disabled")["changed"] is False
    assert host.ask("enabled")["after"]["online"] == "1-7"
    host.ask("disabled")
    assert host.ask("restored")["after"]["online"] == "1-7"
    with pytest.raises(
        smt_state.StateError,
        match=r"also takes the only threads of some cores offline \(CPUs 1\).*the previous state was restored",
    ):
        host.ask("disabled", method="smt_control")


def test_facts_with_cpu_0_offline(tmp_path):
    without = dataclasses.replace(SMALL, offline=(0,))
    known = smt_facts.gather(host_files.HostFs(tree(tmp_path / "unknown", without)))
    assert (known["complete"], known["hardware_class"], known["cpus"]["offline"], known["active"]) == (
        False,
        None,
        "0",
        True,
    )
    fs = host_files.HostFs(tree(tmp_path / "cached"))
    whole = smt_facts.gather(fs)
    topology_cache.save(fs, topology.read_topology(fs))
    again = smt_facts.gather(host_files.HostFs(tree(tmp_path / "cached", without)))
    border.accept(again)
    assert (again["source"], again["hardware_class"], again["primaries"]) == (
        "saved",
        whole["hardware_class"],
        whole["primaries"],
    )


# ---- nodes without memory, or without CPUs ---------------------------------------------------------------------------


def numa(root, with_memory):
    """A machine of two packages, each a node, and a node of memory alone."""
    return tree(root, **{sysfs_tree.NODE + "has_memory": f"{with_memory}\n", sysfs_tree.NODE + "node2/cpulist": "\n"})


@pytest.mark.parametrize(
    ("with_memory", "node", "reason"),
    [
        ("0-2", 1, None),
        ("0,2", 2, None),
        ("1-2", None, "NUMA node 0 of CPU 0 has no memory of its own, so there is no local memory to compare with"),
        ("1", None, "NUMA node 0 of CPU 0 has no memory of its own, so there is no local memory to compare with"),
        ("0", None, "there is only one NUMA node with memory"),
    ],
)
def test_remote_memory_where_nodes_lack_memory(tmp_path, with_memory, node, reason):
    fs = host_files.HostFs(numa(tmp_path, with_memory))
    known = topology.read_topology(fs)
    found = placement.Placements(known.cores, known.packages, known.online, known.nodes, topology.read_memory_nodes(fs))
    assert (found.memory_node("remote_memory"), found.workers("remote_memory")[1]) == (node, reason)


def test_a_node_of_memory_alone_is_a_fact_and_no_affinity_conflict(tmp_path):
    fs = host_files.HostFs(numa(tmp_path, "0-2"))
    known = smt_facts.gather(fs)
    border.accept(known)
    assert known["nodes"] == {"0": "0-3", "1": "4-7", "2": ""}
    kernel = kernel_files.KernelFiles(fs.sysroot)
    assert affinity.find(kernel, cpulist.parse("0-7"), {1, 3, 5, 7}) == []
    (conflict,) = affinity.find(kernel, cpulist.parse("0-7"), {4, 5, 6, 7})
    assert "NUMA node1 would be left without a CPU" in conflict.text
    with pytest.raises(smt_scope.ScopeError, match=r"node 2 of this host has no CPUs, only memory: name one with CPUs"):
        smt_scope.resolve(smt_scope.parse({"node": 2}), topology.read_topology(fs), fs)
