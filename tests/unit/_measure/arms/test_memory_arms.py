# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Arms of memory: the overcommit policies, huge pages and transparent huge pages, on a tree with the kernel's rules."""

from __future__ import annotations

import json

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base, transparent_huge_pages
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import selection
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import facts as memory_facts
from fake_memory import VM, MemoryHost
from memory_tree import put

TOPOLOGY = Topology(present=(0, 1), online=(0, 1), cores=((0, 1),), packages=((0, 1),), source="sysfs", complete=True)
THP = transparent_huge_pages.TransparentHugePages.path
CPUS = "sys/devices/system/cpu/"


@pytest.fixture(name="memory")
def a_host_with_memory(tmp_path, monkeypatch):
    """A host with heuristic overcommit, 16 huge pages, and transparent huge pages for those who ask."""
    memory = MemoryHost(tmp_path, monkeypatch, overcommit_memory=0, overcommit_ratio=50, panic_on_oom=0)
    put(tmp_path, THP, "always [madvise] never\n")
    put(tmp_path, CPUS + "online", "0-1\n")
    put(tmp_path, CPUS + "present", "0-1\n")
    write = KernelFiles.write

    def written(files, path, text):
        write(files, path, text)
        if path == THP:
            put(tmp_path, THP, "always madvise never\n".replace(text, f"[{text}]"))

    monkeypatch.setattr(KernelFiles, "write", written)
    return memory


def host(memory):
    files = KernelFiles(str(memory.root))
    state = {"control": "absent", "active": None, "online": [0, 1], "present": [0, 1]}
    return base.ArmHost({}, TOPOLOGY, state, files=files)


def chosen(memory, *names):
    found = selection.Arms(names, host(memory))
    saved = json.loads(json.dumps(found.save()))
    found.begin(saved)
    return found, saved


ARMS = {
    "overcommit_always": (VM + "overcommit_memory", "1\n"),
    "overcommit_strict": (VM + "overcommit_memory", "2\n"),
    "panic_on_oom": (VM + "panic_on_oom", "1\n"),
    "hugepages_20": (VM + "nr_hugepages", "20\n"),
    "hugepages_0": (VM + "nr_hugepages", "0\n"),
    "thp_always": (THP, "[always] madvise never\n"),
    "thp_never": (THP, "always madvise [never]\n"),
}


def possible(memory, *names):
    found = selection.Arms(["as_found", *names], host(memory))
    return {arm["name"]: arm["reason"] for arm in found.left_out}


@pytest.mark.night(after=4)
@pytest.mark.parametrize("name", [name for name in ARMS if name != "overcommit_strict"])
def test_another_process_restores_each_arm_and_somebody_who_changes_it_is_found(memory, name):
    found, saved = chosen(memory, "as_found", name)
    before = memory.everything()
    found.switch(name)
    found.prove(name)
    others = {other for other, _text in ARMS.values()} - {ARMS[name][0]}
    assert memory.read(ARMS[name][0]) == ARMS[name][1]
    assert all(memory.read(other) == before[other].decode() for other in others)
    path = ARMS[name][0]
    put(memory.root, path, "always [madvise] never\n" if path == THP else "7\n")
    with pytest.raises(base.ArmError, match="the host is not in the arm"):
        found.prove(name)
    files = KernelFiles(str(memory.root))
    found.switch(name)
    assert len(selection.differences(saved, files=files)["differences"]) in (1, 2)
    assert selection.Arms(["as_found", name], host(memory)).restore(saved) == []
    assert memory.everything() == before and selection.differences(saved, files=files)["ok"]
    put(memory.root, path, "[always] madvise never\n" if path == THP else "3\n")
    with pytest.raises(base.ArmError, match="somebody has changed the host while as found was measured"):
        found.prove("as_found")


def test_an_arm_that_is_in_effect_is_left_out_beside_the_host_as_found_alone(memory):
    assert "already in effect" in possible(memory, "overcommit_heuristic", "thp_never")["overcommit_heuristic"]
    assert "already in effect" in possible(memory, "thp_madvise", "thp_never")["thp_madvise"]
    # A baseline that is in effect can be compared.
    found, saved = chosen(memory, "overcommit_heuristic", "overcommit_always", "hugepages_16")
    assert found.names == ["overcommit_heuristic", "overcommit_always", "hugepages_16"]
    for name in ("overcommit_always", "overcommit_heuristic"):
        found.switch(name)
        found.prove(name)
    assert memory.read(VM + "overcommit_memory") == "0\n" and found.restore(saved) == []


def test_what_the_host_does_not_have_is_left_out(memory):
    # Of this host more than half would be taken, not less.
    available = memory_facts.read_memory(HostFs(str(memory.root)))
    pages = 16 + available.available // available.hugepage
    assert "more than half" in possible(memory, f"hugepages_{pages * 6 // 10}")[f"hugepages_{pages * 6 // 10}"]
    assert possible(memory, f"hugepages_{pages * 4 // 10}") == {}
    (memory.root / THP).unlink()
    assert "no transparent huge pages" in possible(memory, "thp_never")["thp_never"]


def test_a_kernel_that_gives_fewer_pages_has_the_number_from_before_again(memory, monkeypatch):
    found, _saved = chosen(memory, "as_found", "hugepages_20")
    write = KernelFiles.write
    # The kernel takes what it finds, and reports success.
    fewer = {"20": "18"}
    monkeypatch.setattr(KernelFiles, "write", lambda files, path, text: write(files, path, fewer.get(text, text)))
    with pytest.raises(base.ArmError, match="nr_hugepages reads 18 after 20 was written to it"):
        found.switch("hugepages_20")
    assert memory.read(VM + "nr_hugepages") == "16\n"
