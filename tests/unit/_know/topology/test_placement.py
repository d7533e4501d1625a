# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placements depend on the topology: they are the same for each CPU numbering, and have a reason where they do not
exist.
"""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import placement
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary.placements import NAMES

ADJACENT = ((0, 1), (2, 3), (4, 5), (6, 7))
SPLIT = ((0, 4), (1, 5), (2, 6), (3, 7))
PACKAGES = {ADJACENT: ((0, 1, 2, 3), (4, 5, 6, 7)), SPLIT: ((0, 1, 4, 5), (2, 3, 6, 7))}
HYBRID = ((0,), (1,), (2, 3), (4,), (5, 6))
D2_8XL = tuple((core, core + 18) for core in range(18))


def on(cores, usable=None, packages=None, *nodes):
    usable = [cpu for core in cores for cpu in core] if usable is None else usable
    return placement.Placements(cores, PACKAGES.get(cores, ()) if packages is None else packages, usable, *nodes)


def core_of(cores, cpu):
    return next(index for index, core in enumerate(cores) if cpu in core)


@pytest.mark.parametrize("cores", [ADJACENT, SPLIT])
def test_each_placement_is_correct_for_both_numberings(cores):
    placements = on(cores)
    where = {name: [core_of(cores, cpus[0]) for cpus in placements.workers(name)[0] or () if cpus] for name in NAMES}
    assert len(where["single"]) == 1 and where["siblings"] == [where["single"][0]] * 2
    assert placements.workers("same_cpu")[0] == [placements.workers("single")[0][0]] * 2
    assert placements.workers("siblings")[0][0] != placements.workers("siblings")[0][1]
    assert where["cores"][0] == where["single"][0] and where["cores"][1] != where["cores"][0]
    assert (sorted(where["one_per_core"]), sorted(where["all_threads"])) == ([0, 1, 2, 3], [0, 0, 1, 1, 2, 2, 3, 3])
    assert placements.workers("unpinned")[0] == [[]] * 8
    # Both cores are in one package.
    packages = ((cores[0] + cores[3]), (cores[1] + cores[2]))
    assert {core_of(cores, cpus[0]) for cpus in on(cores, packages=packages).workers("cores")[0]} == {0, 3}


ONE_THREAD = (0, 2, 4, 6)


@pytest.mark.parametrize(
    ("placements", "name", "cpus"),
    [
        (on(ADJACENT), "spread_5", [0, 2, 4, 6, 1]),
        (on(SPLIT), "packed_4", [0, 4, 1, 5]),
        (on(D2_8XL), "packed_4", [0, 18, 1, 19]),
        # Cores with siblings first, or the workers would not share a core.
        (on(HYBRID), "packed_3", [2, 3, 5]),
        (on(HYBRID), "spread_6", [0, 1, 2, 4, 5, 3]),
        (on(HYBRID, packages=(tuple(range(7)),)), "cores", [2, 5]),
        (on(ADJACENT), "cpus_3_0_3", [3, 0, 3]),
        (on(ADJACENT), "packages_2", [0, 4]),
        # The first core of the other package is of another kind.
        (on(((0, 1), (2,), (3, 4)), packages=((0, 1), (2, 3, 4))), "packages_2", [0, 3]),
        (on(ADJACENT, ONE_THREAD), "all_threads", [0, 2, 4, 6]),
        # The topology is not known.
        (on((), (0, 1)), "all_threads", [0, 1]),
    ],
)
def test_the_cpu_of_each_worker(placements, name, cpus):
    assert placements.workers(name) == ([[cpu] for cpu in cpus], None)


MASK, LEFT = "the affinity mask of this process", "leaves them to the scheduler"
NO_CPU = f"offline, isolated, not in {MASK}, or does not exist"
ALLOWED = "that are online, allowed to this process and not isolated"


@pytest.mark.parametrize(
    ("placements", "name", "reason"),
    [
        (on(ADJACENT), "spread_9", f"9 pinned workers need more than the 8 usable CPUs: free_9 {LEFT}"),
        (on(ADJACENT), "free_1025", "1025 workers are more than 1024, the most of a placement"),
        (on(ADJACENT, (0, 2)), "cpus_0_1", f"CPU 1 is not usable: it is {NO_CPU}"),
        (on(SPLIT, packages=(tuple(range(8)),)), "packages_2", "there is only one package"),
        (on(SPLIT, packages=()), "packages_2", "this host does not report its packages"),
        (on(ADJACENT, ONE_THREAD), "siblings", f"no core has two threads {ALLOWED}"),
        # With one CPU of an unknown core too.
        (on(((0, 1),), (0, 1, 2), ()), "siblings", placement.TOPOLOGY_UNKNOWN),
        *((on((), (0, 1)), name, placement.TOPOLOGY_UNKNOWN) for name in ("cores", "one_per_core", "packed_2")),
        (on(ADJACENT, ()), "single", f"no CPU is usable: none is online, in {MASK} and not isolated"),
    ],
)
def test_why_there_is_none(placements, name, reason):
    assert placements.workers(name) == (None, reason)


def test_free_workers_are_as_many_as_is_asked_and_need_no_topology():
    assert on(ADJACENT).workers("packed_9")[0] is None
    assert on(ADJACENT).workers("free_9") == ([list(range(8))] * 9, None)
    assert on(ADJACENT, ONE_THREAD).workers("free_3")[0] == [[0, 2, 4, 6]] * 3
    assert on((), (0, 1)).workers("free_3") == ([[0, 1]] * 3, None) and on(ADJACENT).workers("free_1024")[0]


NODES = {0: (0, 1, 4, 5), 1: (2, 3, 6, 7), 2: ()}


@pytest.mark.parametrize(
    ("memory_nodes", "node", "reason"),
    [
        ((0, 1, 2), 1, None),
        # A node without memory is passed over, one without CPUs is not.
        ((0, 2), 2, None),
        ((0,), None, "there is only one NUMA node with memory"),
        ((1, 2), None, "NUMA node 0 of CPU 0 has no memory of its own"),
    ],
)
def test_remote_memory_is_of_a_node_that_has_some_and_is_not_that_of_the_cpu(memory_nodes, node, reason):
    found = on(SPLIT, None, None, NODES, memory_nodes)
    workers, said = found.workers("remote_memory")
    assert (workers, found.memory_node("remote_memory")) == (None if reason else [[0]], node)
    assert (said or "").startswith(reason or "") and found.memory_node("single") is None


WRONG = """nonsense - free_ free_x free_-1 cpus cpus_ __init__ free_0 spread_01 packed_\u00b2 cpus_01 cpus_0_"""


def test_wrong_names():
    for name in [*WRONG.split(" "), "", "free_" + "9" * 30, "cpus" + 17 * "_1"]:
        with pytest.raises(placement.PlacementError):
            on(ADJACENT).workers(name)


def test_placements_with_the_same_cpus_are_found():
    placements = on(((0,), (1,)))
    found = {name: (placements.workers(name)[0], None) for name in ("single", "cores", "one_per_core", "all_threads")}
    # The same CPUs, and memory of another node.
    found["remote_memory"] = (found["single"][0], 1)
    same = {"single": None, "cores": None, "one_per_core": "cores", "all_threads": "cores", "remote_memory": None}
    assert placement.same_as_earlier(found) == same
