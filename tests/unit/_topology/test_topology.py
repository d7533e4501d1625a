# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every case found on recorded machines, on synthetic trees, so that the repository alone covers them all."""

from __future__ import annotations

import dataclasses

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._topology import topology
from hypothesis import given, settings, strategies as st
from sysfs_tree import CPU, NODE, Machine

LISTS = ("/core_cpus_list", "/thread_siblings_list")
MASKS = ("/core_cpus", "/thread_siblings")
PACKAGE_SETS = ("/package_cpus_list", "/core_siblings_list", "/package_cpus", "/core_siblings")
OLD_NAMES = (
    "/core_cpus",
    "/core_cpus_list",
    "/die_cpus",
    "/die_cpus_list",
    "/die_id",
    "/package_cpus",
    "/package_cpus_list",
)
SET_FILES = (CPU + "present", CPU + "possible", CPU + "online", CPU + "offline")


def read(root, tree, saved=None):
    """Return (Topology, problems) of a tree."""
    fs = host_files.HostFs(sysfs_tree.write(root, tree))
    return topology.read_topology(fs, saved), fs.problems


MACHINES = {
    "d2.8xl": Machine(packages=2, cores=9),
    "qemu": Machine(packages=2, cores=2, numbering="adjacent"),
    "smt4 adjacent": Machine(cores=4, threads=4, numbering="adjacent"),
    "smt4 split": Machine(cores=4, threads=4),
    "no smt": Machine(packages=2, cores=4, threads=1),
    "one cpu": Machine(cores=1, threads=1),
    "dies": Machine(packages=2, dies=2, cores=2),
    "hybrid": Machine(cores=4, small_cores=8, numbering="adjacent"),
    "hybrid split": Machine(cores=4, small_cores=8),
    "more than 256": Machine(packages=2, cores=65),
    "sparse numbers": Machine(packages=2, cores=2, threads=4, spacing=88, numbering="adjacent"),
    "slots": Machine(packages=1, cores=2, slots=12),
}

MISSING = {
    "nothing": (),
    "the newer names": OLD_NAMES,
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


@pytest.mark.night(after=3)
@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_is_read_whatever_is_missing(tmp_path, machine, missing):
    machine = MACHINES[machine]
    host, problems = read(tmp_path, sysfs_tree.without(sysfs_tree.files(machine), *MISSING[missing]))
    assert host.cores == machine.core_groups
    assert host.packages == machine.groups(1)
    assert host.present == host.online == machine.present
    assert host.offline == ()
    assert host.possible[: len(host.present)] == host.present
    assert host.complete
    assert host.source == ("cpuinfo" if missing == "all but cpuinfo and dies" else "sysfs")
    assert host.nodes == dict(enumerate(machine.groups(1)))
    assert problems == []


OFFLINE = {
    "siblings": (2, 3, 6, 7),
    "one sibling": (5,),
    "a primary": (1,),
    "cpu 0": (0,),
    "a whole core": (1, 5),
    "all but one": tuple(range(1, 8)),
}


@pytest.mark.parametrize(
    "missing",
    [
        "nothing",
        "the newer names",
        "all but masks",
        "siblings: ids alone",
        "the online file",
        "all set files",
        "cpuinfo",
        "all but cpuinfo and dies",
    ],
)
@pytest.mark.parametrize("offline", OFFLINE)
def test_the_core_of_an_offline_cpu_is_unknown(tmp_path, offline, missing):
    machine = Machine(packages=2, cores=2, offline=OFFLINE[offline])
    host, problems = read(tmp_path, sysfs_tree.without(sysfs_tree.files(machine), *MISSING[missing]))
    assert (host.present, host.online, host.offline) == (machine.present, machine.online, machine.offline)
    assert host.cores == machine.groups(3, machine.online)
    assert not host.complete
    assert problems == []


def test_the_stale_directory_of_an_offline_cpu_is_ignored(tmp_path):
    machine = Machine(cores=2)
    tree = dict(sysfs_tree.files(machine), **{CPU + "online": "0-2\n", CPU + "cpu3/online": "0\n"})
    host, _dummy = read(tmp_path, tree)
    assert host.cores == ((0, 2), (1,))
    assert host.offline == (3,) and not host.complete


def test_a_present_file_that_lists_more_cpus_than_directories(tmp_path):
    tree = dict(sysfs_tree.files(Machine(cores=2)), **{CPU + "present": "0-7\n", CPU + "possible": "0-15\n"})
    host, _dummy = read(tmp_path, tree)
    assert host.offline == (4, 5, 6, 7)
    assert host.possible == tuple(range(16))
    assert not host.complete


def test_the_core_of_an_online_cpu_without_a_directory_is_unknown(tmp_path):
    tree = sysfs_tree.without(sysfs_tree.files(Machine(cores=2, threads=1)), "proc/cpuinfo")
    tree = {path: text for path, text in tree.items() if "cpu1/topology" not in path}
    host, _dummy = read(tmp_path, tree)
    assert host.cores == ((0,),)
    assert not host.complete


@pytest.mark.parametrize("wrong", ["-1", "", "65535x", "none", "\0"])
def test_without_valid_package_ids_packages_come_from_the_lists(tmp_path, wrong):
    machine = Machine(packages=2, cores=2)
    tree = {
        path: wrong + "\n" if path.endswith("/physical_package_id") else text
        for path, text in sysfs_tree.files(machine).items()
    }
    host, _dummy = read(tmp_path, tree)
    assert host.packages == machine.groups(1)
    assert host.cores == machine.core_groups


def test_books_and_drawers_distinguish_packages_with_the_same_id(tmp_path):
    machine = Machine(packages=4, cores=1, threads=1)
    tree = sysfs_tree.files(machine)
    for cpu in machine.present:
        folder = f"{CPU}cpu{cpu}/topology/"
        tree.update(
            {
                folder + "physical_package_id": "1\n",
                folder + "book_id": f"{cpu % 2}\n",
                folder + "drawer_id": f"{cpu // 2}\n",
            }
        )
    assert read(tmp_path, tree)[0].packages == ((0,), (1,), (2,), (3,))


def test_identical_core_ids_do_not_matter(tmp_path):
    machine = Machine(packages=2, cores=2)
    tree = {path: "0\n" if path.endswith("/core_id") else text for path, text in sysfs_tree.files(machine).items()}
    assert read(tmp_path, tree)[0].cores == machine.core_groups


def test_ids_that_restart_in_each_die_are_corrected_by_the_counts_of_cpuinfo(tmp_path):
    tree = sysfs_tree.without(
        sysfs_tree.files(Machine(packages=2, dies=2, cores=2, threads=1)), *LISTS, *MASKS, "/die_id"
    )
    tree["proc/cpuinfo"] = tree["proc/cpuinfo"].replace("cpu cores\t: 2", "cpu cores\t: 4")
    host, _dummy = read(tmp_path, tree)
    assert host.cores == tuple((cpu,) for cpu in range(8))
    assert host.source == "sysfs" and host.complete


@pytest.mark.parametrize("keep", ["physical_package_id", "core_siblings", "nothing"])
def test_without_any_source_of_cores_nothing_is_claimed(tmp_path, keep):
    tree = sysfs_tree.without(sysfs_tree.files(Machine(packages=2, cores=2)), "proc/cpuinfo")
    tree = {path: text for path, text in tree.items() if "/topology/" not in path or path.endswith(keep)}
    host, _dummy = read(tmp_path, tree)
    assert (host.cores, host.packages, host.source, host.complete) == ((), (), "unknown", False)
    assert host.primaries == host.secondaries == ()
    assert host.threads_per_core == {"min": None, "max": None, "online_max": None}
    assert host.present == tuple(range(8))


def test_an_empty_tree_is_unknown(tmp_path):
    assert read(tmp_path, {})[0] == topology.Topology()


CPUINFO = {
    "arm": (
        "processor\t: 0\nBogoMIPS\t: 48.00\nCPU part\t: 0xd03\n\nprocessor\t: 1\nBogoMIPS\t: 48.00\nCPU part\t: 0xd03\n"
    ),
    "old arm": (
        "Processor\t: ARMv7 Processor rev 3 (v7l)\nprocessor\t: 0\nBogoMIPS\t: 1594.16\n\nprocessor\t: 1\nBogoMIPS\t:"
        " 1594.16\n\nHardware\t: x\n"
    ),
    "ppc": (
        "processor\t: 0\ncpu\t\t: POWER7 (architected)\nclock\t\t: 3550.0MHz\n\nprocessor\t: 1\ncpu\t\t: POWER7\n\n"
        "timebase\t: 512000000\nplatform\t: pSeries\n"
    ),
    "riscv": "processor\t: 0\nhart\t\t: 1\nisa\t\t: rv64imafdc\n\nprocessor\t: 1\nhart\t\t: 2\nisa\t\t: rv64imafdc\n",
    "s390": (
        "vendor_id       : IBM/S390\n# processors    : 2\nprocessor 0: version = FF,  identification = FF,  machine ="
        " 2964\nprocessor 1: version = FF,  identification = FF,  machine = 2964\n"
    ),
    "sparc": (
        "cpu\t\t: UltraSparc T5\nncpus probed\t: 2\nncpus active\t: 2\nCpu0ClkTck\t:"
        " d692\nState:\nCPU0:\t\tonline\nCPU1:\t\tonline\n"
    ),
    "mips": (
        "system type\t: x\nprocessor\t: 0\ncpu model\t: y\ncore\t\t: 0\n\nprocessor\t: 1\ncpu model\t: y\ncore\t\t: 0\n"
    ),
    "loongarch": (
        "system type\t: generic\n\nprocessor\t: 0\npackage\t\t: 0\ncore\t\t: 0\n\nprocessor\t: 1\npackage\t\t:"
        " 0\ncore\t\t: 0\n"
    ),
    "half an x86": "processor\t: 0\nphysical id\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\n",
}


@pytest.mark.parametrize("architecture", CPUINFO)
def test_a_cpuinfo_without_core_ids_yields_cpus_but_no_cores(tmp_path, architecture):
    host, _dummy = read(tmp_path, {"proc/cpuinfo": CPUINFO[architecture]})
    assert host.present == host.online == (0, 1)
    assert (host.cores, host.source, host.complete) == ((), "unknown", False)


def blocks(fields, *values):
    lines = []
    for cpu, row in enumerate(values):
        lines += [f"processor : {cpu}", *(f"{name} : {value}" for name, value in zip(fields, row)), ""]
    return "\n".join(lines) + "\n"


def test_cores_from_cpuinfo_alone(tmp_path):
    fields = ("physical id", "siblings", "core id", "cpu cores")
    host, _dummy = read(
        tmp_path, {"proc/cpuinfo": blocks(fields, (0, 4, 0, 2), (0, 4, 9, 2), (0, 4, 0, 2), (0, 4, 9, 2))}
    )
    assert (host.cores, host.packages, host.source, host.complete) == (
        ((0, 2), (1, 3)),
        ((0, 1, 2, 3),),
        "cpuinfo",
        True,
    )


def test_equal_counts_in_cpuinfo_mean_no_smt_although_ids_collide(tmp_path):
    host, _dummy = read(
        tmp_path,
        {"proc/cpuinfo": blocks(("physical id", "siblings", "core id", "cpu cores"), (0, 1, 0, 1), (0, 1, 0, 1))},
    )
    assert host.cores == ((0,), (1,))


def test_the_cpu_number_field_of_itanium_is_not_a_cpu_number(tmp_path):
    host, _dummy = read(
        tmp_path,
        {
            "proc/cpuinfo": blocks(
                ("cpu number", "siblings", "physical id", "core id", "thread id"), (0, 2, 0, 0, 0), (0, 2, 0, 0, 1)
            )
        },
    )
    assert host.cores == ((0, 1),)


def test_s390_cores_from_cpuinfo_by_drawer_book_and_package(tmp_path):
    lines = ["vendor_id : IBM/S390"] + [
        f"processor {cpu}: version = 00,  identification = FF,  machine = 3906" for cpu in range(8)
    ]
    for cpu in range(8):
        lines += [
            "",
            f"cpu number : {cpu}",
            "physical id : 1",
            f"core id : {cpu // 2 % 2}",
            f"book id : {cpu // 4}",
            "drawer id : 4",
            "siblings : 4",
            "cpu cores : 2",
        ]
    host, _dummy = read(tmp_path, {"proc/cpuinfo": "\n".join(lines)})
    assert host.cores == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert host.packages == ((0, 1, 2, 3), (4, 5, 6, 7))


def test_nul_bytes_at_the_ends_of_files_do_no_harm(tmp_path):
    machine = Machine(packages=2, cores=9)
    tree = {path: text + "\0" for path, text in sysfs_tree.files(machine).items() if path != "proc/cpuinfo"}
    host, problems = read(tmp_path, tree)
    assert (host.cores, host.packages, host.nodes, problems) == (
        machine.core_groups,
        machine.groups(1),
        dict(enumerate(machine.groups(1))),
        [],
    )


def test_empty_online_files_of_recorded_trees_are_ignored(tmp_path):
    machine = Machine(packages=2, cores=2)
    tree = sysfs_tree.without(sysfs_tree.files(machine), *SET_FILES)
    host, _dummy = read(tmp_path, {path: "" if path.endswith("/online") else text for path, text in tree.items()})
    assert host.online == machine.present and host.complete


def test_a_cpuinfo_of_another_machine_does_not_correct_sysfs(tmp_path):
    machine = Machine(cores=4)
    tree = sysfs_tree.without(sysfs_tree.files(machine), *LISTS, *MASKS)
    tree["proc/cpuinfo"] = sysfs_tree.files(Machine(cores=16, threads=1))["proc/cpuinfo"]
    assert read(tmp_path, tree)[0].cores == machine.core_groups


def test_a_cpu_0_that_cannot_go_offline_has_no_online_file_and_is_online(tmp_path):
    machine = Machine(cores=2, offline=(3,))
    tree = sysfs_tree.without(sysfs_tree.files(machine), *SET_FILES, "cpu0/online")
    assert read(tmp_path, tree)[0].online == (0, 1, 2)


CONTRADICTIONS = {
    "a cpu is not in its own list": {"cpu1/topology/%s": "0\n"},
    "two lists overlap": {"cpu0/topology/%s": "0-1\n"},
    "a list is empty": {"cpu2/topology/%s": ""},
    "a list is invalid": {"cpu3/topology/%s": "3-1\n"},
    "a number is enormous": {"cpu3/topology/%s": "0-99999999999\n"},
}


@pytest.mark.parametrize("contradiction", CONTRADICTIONS)
def test_a_contradictory_list_is_ignored_and_the_next_source_is_used(tmp_path, contradiction):
    machine = Machine(packages=1, cores=4, threads=1)
    tree = sysfs_tree.files(machine)
    tree.update({CPU + path % "core_cpus_list": text for path, text in CONTRADICTIONS[contradiction].items()})
    host, problems = read(tmp_path, tree)
    assert host.cores == machine.core_groups and host.complete
    assert len(problems) == 1 and "core_cpus_list" in problems[0]


def test_without_a_consistent_source_the_cores_are_unknown(tmp_path):
    tree = sysfs_tree.without(sysfs_tree.files(Machine(cores=2)), "/core_id", "proc/cpuinfo")
    host, problems = read(
        tmp_path,
        {
            path: "0\n" if "topology/core_cpus" in path or "topology/thread" in path else text
            for path, text in tree.items()
        },
    )
    assert (host.cores, host.complete, host.source) == ((), False, "unknown")
    assert len(problems) == 4


@pytest.mark.parametrize(
    "text", ["", "\0", "0-", "3-1", "99999999999", "0-99999999", "abc", "-1", "0,,1", "x" * 5000, "\n" * 5000]
)
@pytest.mark.parametrize(
    "path",
    [
        "present",
        "online",
        "possible",
        "isolated",
        "cpu1/topology/core_cpus_list",
        "cpu1/topology/physical_package_id",
        "cpu0/online",
        "../node/node0/cpulist",
    ],
)
def test_a_damaged_file_is_ignored(tmp_path, path, text):
    machine = Machine(cores=2)
    host, _dummy = read(tmp_path, dict(sysfs_tree.files(machine), **{CPU + path: text}))
    assert host.cores == machine.core_groups
    assert host.present == machine.present


@pytest.mark.parametrize(
    "path", ["present", "online", "cpu1", "cpu1/topology", "cpu1/topology/core_cpus_list", "../node", "smt"]
)
def test_a_file_for_a_directory_or_a_directory_for_a_file_is_ignored(tmp_path, path):
    tree = {
        name: text
        for name, text in sysfs_tree.files(Machine(cores=2)).items()
        if not name.startswith((CPU + path, NODE if path == "../node" else "\0"))
    }
    root = sysfs_tree.write(tmp_path, tree)
    target = (tmp_path / CPU / path).resolve()
    if "." in target.name or ("/" not in path and path in ("present", "online")) or path.endswith("_list"):
        target.mkdir(parents=True)
    else:
        target.write_text("0")
    fs = host_files.HostFs(root)
    host = topology.read_topology(fs)
    assert 0 in host.online
    assert all(0 in core or 1 in core for core in host.cores)


@settings(max_examples=60, deadline=None)
@given(seed=st.randoms(use_true_random=False))
def test_damage_in_any_file_never_leads_to_an_inconsistent_topology(tmp_path_factory, seed):
    tree = sysfs_tree.files(Machine(packages=2, cores=2, offline=(7,)))
    for path in seed.sample(sorted(tree), 6):
        tree[path] = seed.choice(
            [
                "",
                "\0\0",
                "0-",
                "3-1",
                "99999999999",
                "ffffffff,ffffffff",
                "-1",
                "0-3",
                "1",
                b"\xff\xfe",
                "0\n1\n",
                "processor : 99999999999\n",
            ]
        )
    host, _dummy = read(tmp_path_factory.mktemp("damaged"), tree)
    placed = [cpu for core in host.cores for cpu in core]
    assert len(placed) == len(set(placed))
    assert set(placed) <= set(host.online) <= set(host.present)
    assert host.complete == (bool(placed) and set(placed) == set(host.present))
    in_packages = [cpu for package in host.packages for cpu in package]
    assert len(in_packages) == len(set(in_packages)) and set(in_packages) <= set(placed)


@pytest.mark.parametrize(
    ("machine", "numbering"),
    [
        ("d2.8xl", "split"),
        ("qemu", "adjacent"),
        ("smt4 adjacent", "adjacent"),
        ("smt4 split", "split"),
        ("no smt", "none"),
        ("hybrid", "adjacent"),
        ("hybrid split", "split"),
    ],
)
def test_numbering(tmp_path, machine, numbering):
    assert read(tmp_path, sysfs_tree.files(MACHINES[machine]))[0].numbering == numbering


@pytest.mark.parametrize(
    ("cores", "numbering"),
    [
        (((0, 1),), "adjacent"),
        (((0, 2), (1, 3), (4, 6), (5, 7)), "mixed"),
        (((0, 3), (1, 2)), "split"),
        (((0, 1), (2, 4), (3, 5)), "mixed"),
        ((), "none"),
    ],
)
def test_numbering_of_cores(cores, numbering):
    assert topology.Topology(cores=cores).numbering == numbering


def test_threads_per_core_are_a_range_on_hybrid_machines_and_follow_what_is_online(tmp_path):
    host, _dummy = read(tmp_path, sysfs_tree.files(MACHINES["hybrid"]))
    assert host.threads_per_core == {"min": 1, "max": 2, "online_max": 2}
    assert host.primaries == (0, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15)
    assert host.secondaries == (1, 3, 5, 7)
    offline = host._replace(online=host.primaries)
    assert offline.threads_per_core == {"min": 1, "max": 2, "online_max": 1}


@pytest.mark.parametrize("name", ["cpulist", "cpumap", "links"])
def test_nodes_from_each_source(tmp_path, name):
    tree = sysfs_tree.without(sysfs_tree.files(Machine(packages=2, cores=2)), *{"cpulist", "cpumap"} - {name})
    if name == "links":
        tree.update({f"{NODE}node{cpu // 2 % 2}/cpu{cpu}/x": "" for cpu in range(8)})
    tree[NODE + "node7/meminfo"] = "memory alone"
    host, _dummy = read(tmp_path, tree)
    assert host.nodes == {0: (0, 1, 4, 5), 1: (2, 3, 6, 7), 7: ()}


def test_hot_plug_slots_in_a_node_are_ignored(tmp_path):
    tree = dict(sysfs_tree.files(Machine(cores=2)), **{NODE + "node0/cpulist": "0-140\n"})
    assert read(tmp_path, tree)[0].nodes == {0: (0, 1, 2, 3)}


FULL = Machine(packages=2, cores=2)
FULL_CACHE = topology.Topology(
    present=FULL.present, cores=FULL.core_groups, packages=FULL.groups(1), source="saved", complete=True
)


@pytest.mark.parametrize("offline", OFFLINE)
def test_the_cache_supplies_the_cores_of_offline_cpus(tmp_path, offline):
    host, problems = read(tmp_path, sysfs_tree.files(dataclasses.replace(FULL, offline=OFFLINE[offline])), FULL_CACHE)
    assert (host.cores, host.packages, host.source, host.complete) == (FULL.core_groups, FULL.groups(1), "saved", True)
    assert host.online == tuple(cpu for cpu in FULL.present if cpu not in OFFLINE[offline])
    assert problems == []


def test_the_cache_is_not_used_when_the_kernel_shows_all_cores(tmp_path):
    other = FULL_CACHE._replace(cores=((0, 1), (2, 3), (4, 5), (6, 7)))
    host, problems = read(tmp_path, sysfs_tree.files(FULL), other)
    assert (host.cores, host.source, problems) == (FULL.core_groups, "sysfs", [])


@pytest.mark.parametrize("cores", [((0, 1), (2, 3), (4, 5), (6, 7)), tuple((cpu,) for cpu in range(8))])
def test_a_cache_that_contradicts_the_kernel_is_ignored(tmp_path, cores):
    host, problems = read(
        tmp_path, sysfs_tree.files(dataclasses.replace(FULL, offline=(7,))), FULL_CACHE._replace(cores=cores)
    )
    assert host.source == "sysfs" and not host.complete
    assert "topology cache was ignored" in problems[0]


def test_a_cache_of_other_cpus_is_ignored(tmp_path):
    host, problems = read(tmp_path, sysfs_tree.files(Machine(packages=2, cores=3, offline=(7,))), FULL_CACHE)
    assert host.source == "sysfs" and not host.complete
    assert problems == ["The topology cache was ignored: it describes CPUs 0-7, but CPUs 0-11 are present."]
