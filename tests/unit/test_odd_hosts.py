# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts that are rare: containers, no systemd, 1,024 CPUs, CPU 0 offline, nodes without memory. None is changed by
half.
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
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache, placement, topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import run_directory
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import verdicts
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    change as smt_change,
    scope as smt_scope,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import facts as border, results
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from fake_host import Host

SMALL = sysfs_tree.Machine(packages=2, cores=2, numbering="adjacent")
needs_namespaces = pytest.mark.skipif(
    containers.why_none() is not None, reason=f"this machine makes no namespaces: {containers.why_none()}"
)

# ---- containers ------------------------------------------------------------------------------------------------------

# What a change answers in check mode and then in earnest.
ASK = """
import os, sys
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import change as memory
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import change
for check in (True, False):
    try:
        print({asked}, lambda command: (0, "", ""), os.path.dirname(sys.argv[1])).run()["changed"])
    except (HostError, *memory.ERRORS) as error:
        print(type(error).__name__, error)
"""
OF_STATE = 'change.RuntimeChange(change.Request("disabled", check=check, {options})'
OF_MEMORY = 'memory.MemoryChange(memory.Request("present", {"overcommit": "always", "margin": 10}, None, check)'
READ_METHODS = """
import json, os, sys
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import files
class Root(files.HostFs):
    is_host = True
print(json.dumps(facts.gather(Root(os.path.dirname(sys.argv[1])))["methods"]["runtime"]))
"""


def tree(root, machine=SMALL, **more):
    """A machine's tree below root, which stays as it is for programs that cannot be fake kernels."""
    usual = {"proc/self/mounts": "", "proc/sys/kernel/random/boot_id": "first\n"}
    return sysfs_tree.write(root, {**sysfs_tree.files(machine), **usual, **more})


OF_PART = OF_STATE.format(options="cores={'package': 1}, affinity_conflicts='warn'")


@needs_namespaces
@pytest.mark.parametrize(
    ("asked", "file"),
    [
        (OF_STATE.format(options=""), "sys/devices/system/cpu/smt/control"),
        (OF_STATE.format(options="method='cpu_online'"), "sys/devices/system/cpu/cpu1/online"),
        (OF_PART, "sys/devices/system/cpu/cpu5/online"),
        (OF_MEMORY, "proc/sys/vm/overcommit_memory"),
    ],
)
def test_a_read_only_mount_is_refused_in_check_mode_too(tmp_path, asked, file):
    root = memory_tree.tree(tmp_path, overcommit_memory=0) if asked == OF_MEMORY else tree(tmp_path)
    program = ASK.format(asked=asked)
    said = containers.run(program, f"{root}/{file.partition('/')[0]}", read_only=True).splitlines()
    assert said[0] == said[1] and f"Error {root}/{file} is on a file system that is mounted read-only" in said[0]
    assert not any((tmp_path / path).exists() for path in ("var/lib/threadwise-smt/smt-snapshot.json", "etc/sysctl.d"))


@needs_namespaces
@pytest.mark.parametrize("read_only", [True, False])
def test_facts_in_a_container_name_the_file_that_cannot_be_written(tmp_path, read_only):
    root = tree(tmp_path)
    if not read_only:
        if os.geteuid() != 0:
            pytest.skip("only root gives files to other users")
        # To one whom the container does not know: its root may only read them, as under a security policy.
        for folder, _folders, names in os.walk(f"{root}/sys"):
            for name in names:
                os.chown(os.path.join(folder, name), 1, 1)
        asked = ASK.format(asked=OF_STATE.format(options=""))
        assert "smt/control cannot be written although this is root (EACCES)" in containers.run(asked, f"{root}/sys")
    methods = json.loads(containers.run(READ_METHODS, f"{root}/sys", read_only=read_only))
    assert methods["chosen"] is None
    for method, file in (("smt_control", "smt/control"), ("cpu_online", "cpu1/online")):
        reason = "mounted read-only" if read_only else "(EACCES)"
        assert file in methods["impossible"][method] and reason in methods["impossible"][method]


# ---- no systemd ------------------------------------------------------------------------------------------------------


def test_without_systemd_nothing_is_said_to_be_kept_over_boots(tmp_path):
    for mode in (persistence.TMPFILES, persistence.SYSTEMD):
        host = Host(tmp_path / mode, systemd=False)
        for check in (True, False):
            with pytest.raises(smt_change.ChangeRefusedError, match=rf"persist: {mode} needs systemd.*smt_boot_args"):
                host.ask("disabled", persist=mode, check=check)
        assert (host.writes, host.saved()) == ([], None) and not any(map(host.exists, persistence.PATHS))
        assert host.ask("disabled")["after"]["online"] == "0,2,4,6"
        assert host.ask("restored", persist=mode)["after"]["online"] == "0-7"
        assert host.commands == []


@pytest.mark.night
def test_a_result_of_1024_cpus_passes_the_border_and_makes_a_report(tmp_path):
    document = result_maker.result(host="big", shape=(8, 64, 2), blocks=verdicts.MIN_BLOCKS)
    text = json.dumps(document)
    assert len(text) < run_directory.MAX_BYTES
    results.parse(text, "big")
    result_files.save(tmp_path, document)
    assert not build.build(result_files.result_paths(tmp_path), tmp_path).refused
    (row,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["hosts"]
    assert (row["host"], row["outcome"]) == ("big", "completed")


# ---- CPU 0 offline ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("modern", [False, True])
def test_cpu_0_that_is_offline_stays_so_and_its_sibling_keeps_the_core(tmp_path, modern):
    """The control would take CPU 1 offline, too: the kernel counts it as a sibling."""
    host = Host(tmp_path, offline=[0], modern=modern)
    assert host.ask("disabled")["after"] == {"control": "on", "active": False, "online": "1-2,4,6"}
    assert host.ask("disabled")["changed"] is False
    assert host.ask("enabled")["after"]["online"] == "1-7"
    host.ask("disabled")
    assert host.ask("restored")["after"]["online"] == "1-7"
    with pytest.raises(smt_state.StateError, match=r"\(CPUs 1\).*the previous state was restored"):
        host.ask("disabled", method="smt_control")


def test_facts_with_cpu_0_offline(tmp_path):
    without = dataclasses.replace(SMALL, offline=(0,))
    known = smt_facts.gather(host_files.HostFs(tree(tmp_path / "unknown", without)))
    assert (known["complete"], known["hardware_class"]) == (False, None)
    assert (known["cpus"]["offline"], known["active"]) == ("0", True)
    fs = host_files.HostFs(tree(tmp_path / "cached"))
    whole = smt_facts.gather(fs)
    cache.save(fs, topology.read_topology(fs))
    again = smt_facts.gather(host_files.HostFs(tree(tmp_path / "cached", without)))
    border.made(again)
    assert again["source"] == "saved"
    assert [again[name] == whole[name] for name in ("hardware_class", "primaries")] == [True, True]


# ---- nodes without memory, or without CPUs ---------------------------------------------------------------------------


def numa(root, with_memory):
    """A machine of two packages, each a node, and a node of memory alone."""
    return tree(root, **{sysfs_tree.NODE + "has_memory": f"{with_memory}\n", sysfs_tree.NODE + "node2/cpulist": "\n"})


def test_remote_memory_where_nodes_lack_memory(tmp_path):
    for with_memory, node, reason in (
        ("0-2", 1, None),
        ("0,2", 2, None),
        ("1-2", None, "NUMA node 0 of CPU 0 has no memory"),
        ("0", None, "only one NUMA node with memory"),
    ):
        fs = host_files.HostFs(numa(tmp_path / with_memory, with_memory))
        known, memory = topology.read_topology(fs), topology.read_memory_nodes(fs)
        found = placement.Placements(known.cores, known.packages, known.online, known.nodes, memory)
        why = found.workers("remote_memory")[1]
        assert found.memory_node("remote_memory") == node and (why == reason or reason in why)


def test_a_node_of_memory_alone_is_a_fact_and_no_affinity_conflict(tmp_path):
    fs = host_files.HostFs(numa(tmp_path, "0-2"))
    known = smt_facts.gather(fs)
    border.made(known)
    assert known["nodes"] == {"0": "0-3", "1": "4-7", "2": ""}
    kernel = kernel_files.KernelFiles(fs.sysroot)
    assert affinity.find(kernel, cpulist.parse("0-7"), {1, 3, 5, 7}) == []
    (conflict,) = affinity.find(kernel, cpulist.parse("0-7"), {4, 5, 6, 7})
    assert "node1" in conflict.text
    with pytest.raises(smt_scope.ScopeError, match=r"node 2 .* has no CPUs"):
        smt_scope.resolve(smt_scope.parse({"node": 2}), topology.read_topology(fs), fs)
