# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every case found on recorded machines, on synthetic trees, so that the repository alone covers them all."""

from __future__ import annotations

import dataclasses

import night
import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import topology
from hypothesis import given, settings, strategies as st
from sysfs_tree import CPU, NODE, Machine, files, without

LISTS = ("/core_cpus_list", "/thread_siblings_list")
MASKS = ("/core_cpus", "/thread_siblings")
PACKAGE_SETS = ("/package_cpus_list", "/core_siblings_list", "/package_cpus", "/core_siblings")
NEW_NAMES = tuple(f"/{name}" for kind in ("core", "die", "package") for name in (f"{kind}_cpus", f"{kind}_cpus_list"))
OLD_NAMES = (*NEW_NAMES, "/die_id")
SET_FILES = (CPU + "present", CPU + "possible", CPU + "online", CPU + "offline")


def read(root, tree, saved=None):
    """Return (Topology, problems) of a tree."""
    fs = host_files.HostFs(sysfs_tree.write(root, tree))
    return topology.read_topology(fs, saved), fs.problems


MACHINES = {
    "dies": Machine(packages=2, dies=2, cores=2),
    "hybrid": Machine(cores=4, small_cores=8, numbering="adjacent"),
    "d2.8xl": Machine(packages=2, cores=9),
    "qemu": Machine(packages=2, cores=2, numbering="adjacent"),
    "smt4 adjacent": Machine(cores=4, threads=4, numbering="adjacent"),
    "smt4 split": Machine(cores=4, threads=4),
    "no smt": Machine(packages=2, cores=4, threads=1),
    "one cpu": Machine(cores=1, threads=1),
    "hybrid split": Machine(cores=4, small_cores=8),
    "more than 256": Machine(packages=2, cores=65),
    "sparse numbers": Machine(packages=2, cores=2, threads=4, spacing=88, numbering="adjacent"),
    "slots": Machine(packages=1, cores=2, slots=12),
}
MISSING = {
    "nothing": (),
    "the newer names": OLD_NAMES,
    "lists": LISTS,
    "all but masks": LISTS + OLD_NAMES + ("/core_siblings_list",),
    "all but lists": MASKS + PACKAGE_SETS,
    "package ids": ("/physical_package_id",),
    "all about packages but cpuinfo": ("/physical_package_id", *PACKAGE_SETS),
    "core and die ids": ("/core_id", "/die_id"),
    "siblings: ids alone": LISTS + MASKS,
    "the possible file": (CPU + "possible",),
    "the present file": (CPU + "present",),
    "the online file": (CPU + "online",),
    "all set files": SET_FILES,
    "all set files and cpuN/online": (*SET_FILES, "/online"),
    "cpuinfo": ("proc/cpuinfo",),
    "all but cpuinfo and dies": LISTS + MASKS + PACKAGE_SETS + ("/physical_package_id", "/core_id"),
}


@pytest.mark.night(after=32)
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_is_read_whatever_is_missing(tmp_path, machine, missing):
    machine = MACHINES[machine]
    host, problems = read(tmp_path, without(files(machine), *MISSING[missing]))
    assert (host.cores, host.packages) == (machine.core_groups, machine.groups(1))
    assert host.present == host.online == machine.present and host.offline == ()
    assert host.possible[: len(host.present)] == host.present
    assert host.source == ("cpuinfo" if missing == "all but cpuinfo and dies" else "sysfs")
    assert (host.complete, host.nodes, problems) == (True, dict(enumerate(machine.groups(1))), [])


OFFLINE = {
    "siblings": (2, 3, 6, 7),
    "cpu 0": (0,),
    "a whole core": (1, 5),
    "one sibling": (5,),
    "a primary": (1,),
    "all but one": tuple(range(1, 8)),
}
OF_OFFLINE = ("nothing", "the newer names", "all but masks", "siblings: ids alone", "the online file", "all set files")


@pytest.mark.night(after=24)
@pytest.mark.parametrize("missing", [*OF_OFFLINE, "cpuinfo", "all but cpuinfo and dies"])
@pytest.mark.parametrize("offline", OFFLINE.values(), ids=OFFLINE)
def test_the_core_of_an_offline_cpu_is_unknown(tmp_path, offline, missing):
    machine = Machine(packages=2, cores=2, offline=offline)
    host, problems = read(tmp_path, without(files(machine), *MISSING[missing]))
    assert (host.present, host.online, host.offline) == (machine.present, machine.online, machine.offline)
    assert (host.cores, host.complete, problems) == (machine.groups(3, machine.online), False, [])


FULL = Machine(packages=2, cores=2)
SMALL = Machine(cores=2)
FOUR = Machine(cores=4)


def replaced(machine, ending, text):
    """The tree of a machine whose files of this name have one text."""
    return {path: text if path.endswith(ending) else old for path, old in files(machine).items()}


NO_IDS = without(files(FOUR), *LISTS, *MASKS)
BOOKS = Machine(packages=4, cores=1, threads=1)
DIES = without(files(Machine(packages=2, dies=2, cores=2, threads=1)), *LISTS, *MASKS, "/die_id")
UNKNOWN = {"cores": (), "packages": (), "source": "unknown", "complete": False, "present": tuple(range(8))}
UNKNOWN.update(primaries=(), threads_per_core={"min": None, "max": None, "online_max": None})


def alone(keep):
    """The tree of a machine without cpuinfo and all of its topology but one file of each CPU."""
    tree = without(files(FULL), "proc/cpuinfo")
    return {path: text for path, text in tree.items() if "/topology/" not in path or path.endswith(keep)}


# Machine -> what it is read as, where that is a matter of one of its files.
TREES = {
    "a stale directory of an offline CPU": (
        {**files(SMALL), CPU + "online": "0-2\n", CPU + "cpu3/online": "0\n"},
        {"cores": ((0, 2), (1,)), "offline": (3,), "complete": False},
    ),
    "more CPUs present than directories": (
        {**files(SMALL), CPU + "present": "0-7\n", CPU + "possible": "0-15\n"},
        {"offline": (4, 5, 6, 7), "possible": tuple(range(16)), "complete": False},
    ),
    **{
        f"{wrong!r} as package ids": (
            replaced(FULL, "/physical_package_id", f"{wrong}\n"),
            {"packages": FULL.groups(1), "cores": FULL.core_groups},
        )
        for wrong in ("-1", "", "65535x", "none", "\0")
    },
    "s390: packages of one id in books and drawers": (
        {
            **replaced(BOOKS, "/physical_package_id", "1\n"),
            **{f"{CPU}cpu{cpu}/topology/book_id": f"{cpu % 2}\n" for cpu in range(4)},
            **{f"{CPU}cpu{cpu}/topology/drawer_id": f"{cpu // 2}\n" for cpu in range(4)},
        },
        {"packages": ((0,), (1,), (2,), (3,))},
    ),
    "ids that restart in each die, corrected by cpuinfo": (
        {**DIES, "proc/cpuinfo": DIES["proc/cpuinfo"].replace("cpu cores\t: 2", "cpu cores\t: 4")},
        {"cores": tuple((cpu,) for cpu in range(8)), "source": "sysfs", "complete": True},
    ),
    "a cpuinfo of another machine corrects nothing": (
        {**NO_IDS, "proc/cpuinfo": files(Machine(cores=16, threads=1))["proc/cpuinfo"]},
        {"cores": FOUR.core_groups},
    ),
    **{f"of topology {keep} alone": (alone(keep), UNKNOWN) for keep in ("package_id", "core_siblings", "nothing")},
    "NUL bytes at the ends of files": (
        {path: text + "\0" for path, text in files(MACHINES["d2.8xl"]).items() if path != "proc/cpuinfo"},
        {"cores": MACHINES["d2.8xl"].core_groups, "nodes": dict(enumerate(MACHINES["d2.8xl"].groups(1)))},
    ),
    "hot-plug slots in a node": ({**files(SMALL), NODE + "node0/cpulist": "0-140\n"}, {"nodes": {0: (0, 1, 2, 3)}}),
    **{
        f"nodes by {name}": (
            {
                **without(files(FULL), *{"cpulist", "cpumap"} - {name}),
                **({f"{NODE}node{cpu // 2 % 2}/cpu{cpu}/x": "" for cpu in range(8)} if name == "links" else {}),
                NODE + "node7/meminfo": "memory alone",
            },
            {"nodes": {0: (0, 1, 4, 5), 1: (2, 3, 6, 7), 7: ()}},
        )
        for name in ("cpulist", "cpumap", "links")
    },
    "hybrid": (
        files(MACHINES["hybrid"]),
        {"threads_per_core": {"min": 1, "max": 2, "online_max": 2}, "secondaries": (1, 3, 5, 7)},
    ),
}


@pytest.mark.parametrize(("tree", "expected"), TREES.values(), ids=TREES)
def test_what_a_machine_is_read_as(tmp_path, tree, expected):
    host, problems = read(tmp_path, tree)
    assert {name: getattr(host, name) for name in expected} == expected
    assert not any("contradicts" in one for one in problems)


CPUINFO = {
    "ppc": "processor\t: 0\ncpu\t\t: POWER7\n\nprocessor\t: 1\ncpu\t\t: POWER7\n\nplatform\t: pSeries\n",
    "riscv": "processor\t: 0\nhart\t\t: 1\nisa\t\t: rv64imafdc\n\nprocessor\t: 1\nhart\t\t: 2\nisa\t\t: rv64imafdc\n",
    "sparc": "cpu\t\t: UltraSparc T5\nCpu0ClkTck\t: d692\nState:\nCPU0:\t\tonline\nCPU1:\t\tonline\n",
}


@pytest.mark.parametrize("text", CPUINFO.values(), ids=CPUINFO)
def test_a_cpuinfo_without_core_ids_yields_cpus_but_no_cores(tmp_path, text):
    host, _dummy = read(tmp_path, {"proc/cpuinfo": text})
    assert host.present == host.online == (0, 1)
    assert (host.cores, host.source, host.complete) == ((), "unknown", False)


def blocks(fields, *values):
    lines = []
    for cpu, row in enumerate(values):
        lines += [f"processor : {cpu}", *(f"{name} : {value}" for name, value in zip(fields, row)), ""]
    return "\n".join(lines) + "\n"


COUNTS = ("physical id", "siblings", "core id", "cpu cores")
S390 = "vendor_id : IBM/S390\n" + "".join(f"processor {cpu}: version = 00,  machine = 3906\n" for cpu in range(8))
S390 += "".join(
    f"\ncpu number : {cpu}\nphysical id : 1\ncore id : {cpu // 2 % 2}\nbook id : {cpu // 4}\ndrawer id : 4\n"
    "siblings : 4\ncpu cores : 2\n"
    for cpu in range(8)
)


@pytest.mark.parametrize(
    ("text", "cores", "packages"),
    [
        (blocks(COUNTS, *((0, 4, core, 2) for core in (0, 9, 0, 9))), ((0, 2), (1, 3)), ((0, 1, 2, 3),)),
        # Equal counts mean no SMT, although ids collide.
        (blocks(COUNTS, (0, 1, 0, 1), (0, 1, 0, 1)), ((0,), (1,)), ((0, 1),)),
        # The field "cpu number" of Itanium is none.
        (blocks(("cpu number", *COUNTS[:3]), (0, 0, 2, 0), (0, 0, 2, 0)), ((0, 1),), ((0, 1),)),
        # s390, by drawer, book and package.
        (S390, ((0, 1), (2, 3), (4, 5), (6, 7)), ((0, 1, 2, 3), (4, 5, 6, 7))),
    ],
)
def test_cores_from_cpuinfo_alone(tmp_path, text, cores, packages):
    host, _dummy = read(tmp_path, {"proc/cpuinfo": text})
    assert (host.cores, host.packages, host.source, host.complete) == (cores, packages, "cpuinfo", True)


# It is not in its own list; two lists overlap; empty; invalid; enormous.
@pytest.mark.parametrize(("cpu", "text"), [(1, "0\n"), (0, "0-1\n"), (2, ""), (3, "3-1\n"), (3, "0-99999999999\n")])
def test_a_contradictory_list_is_ignored_and_the_next_source_is_used(tmp_path, cpu, text):
    machine = Machine(packages=1, cores=4, threads=1)
    host, problems = read(tmp_path, {**files(machine), f"{CPU}cpu{cpu}/topology/core_cpus_list": text})
    assert host.cores == machine.core_groups and host.complete
    assert len(problems) == 1 and "core_cpus_list" in problems[0]


DAMAGE = ["", "\0\0", "0-", "3-1", "99999999999", "ffffffff,ffffffff", "-1", "0-3", "1", b"\xff\xfe", "0\n1\n"]


@settings(max_examples=night.number(15, 60), deadline=None)
@given(seed=st.randoms(use_true_random=False))
def test_damage_in_any_file_never_leads_to_an_inconsistent_topology(tmp_path_factory, seed):
    tree = files(Machine(packages=2, cores=2, offline=(7,)))
    for path in seed.sample(sorted(tree), 6):
        tree[path] = seed.choice([*DAMAGE, "processor : 99999999999\n"])
    host, _dummy = read(tmp_path_factory.mktemp("damaged"), tree)
    placed = [cpu for core in host.cores for cpu in core]
    assert len(placed) == len(set(placed)) and set(placed) <= set(host.online) <= set(host.present)
    assert host.complete == (bool(placed) and set(placed) == set(host.present))
    in_packages = [cpu for package in host.packages for cpu in package]
    assert len(in_packages) == len(set(in_packages)) and set(in_packages) <= set(placed)


@pytest.mark.parametrize(
    ("cores", "numbering"),
    [
        (MACHINES["smt4 split"].core_groups, "split"),
        (MACHINES["hybrid"].core_groups, "adjacent"),
        (MACHINES["hybrid split"].core_groups, "split"),
        (((0, 1), (2, 4), (3, 5)), "mixed"),
    ],
)
def test_numbering_of_cores(cores, numbering):
    assert topology.Topology(cores=cores).numbering == numbering


SAVED = topology.Topology(FULL.present)._replace(
    cores=FULL.core_groups, packages=FULL.groups(1), source="saved", complete=True
)


@pytest.mark.parametrize("offline", OFFLINE.values(), ids=OFFLINE)
def test_the_cache_supplies_the_cores_of_offline_cpus(tmp_path, offline):
    host, problems = read(tmp_path, files(dataclasses.replace(FULL, offline=offline)), SAVED)
    assert (host.cores, host.packages, host.source, host.complete) == (FULL.core_groups, FULL.groups(1), "saved", True)
    assert (host.online, problems) == (tuple(cpu for cpu in FULL.present if cpu not in offline), [])
    in_use = max(sum(cpu not in offline for cpu in core) for core in FULL.core_groups)
    assert host.threads_per_core == {"min": 2, "max": 2, "online_max": in_use}


ADJACENT = ((0, 1), (2, 3), (4, 5), (6, 7))


@pytest.mark.parametrize(
    ("machine", "cores", "problem"),
    [
        # The kernel shows all cores; it contradicts the cache; and that is of other CPUs.
        (FULL, ADJACENT, None),
        (dataclasses.replace(FULL, offline=(7,)), tuple((cpu,) for cpu in range(8)), "as one core"),
        (Machine(packages=2, cores=3, offline=(7,)), SAVED.cores, "it describes CPUs 0-7, but CPUs 0-11 are present"),
    ],
)
def test_a_cache_that_contradicts_the_kernel_is_not_used(tmp_path, machine, cores, problem):
    host, problems = read(tmp_path, files(machine), SAVED._replace(cores=cores))
    assert (host.source, host.complete) == ("sysfs", machine == FULL)
    assert [problem in one for one in problems] == ([True] if problem else [])
