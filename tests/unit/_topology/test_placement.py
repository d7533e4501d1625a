# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placements depend on the topology: they are the same for each CPU numbering,
and have a reason where they do not exist.
"""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._topology.placement import (
    PlacementError,
    Placements,
    same_as_earlier,
)
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary.placements import NAMES

ADJACENT = ((0, 1), (2, 3), (4, 5), (6, 7))
SPLIT = ((0, 4), (1, 5), (2, 6), (3, 7))
PACKAGES = {ADJACENT: ((0, 1, 2, 3), (4, 5, 6, 7)), SPLIT: ((0, 1, 4, 5), (2, 3, 6, 7))}


def on(cores, usable=range(8), packages=None):
    return Placements(cores, PACKAGES.get(cores, ()) if packages is None else packages, usable)


def core_of(cores, cpu):
    return next(index for index, core in enumerate(cores) if cpu in core)


@pytest.mark.parametrize("cores", [ADJACENT, SPLIT])
def test_each_placement_is_correct_for_both_numberings(cores):
    placements = on(cores)
    where = {name: [core_of(cores, cpus[0]) for cpus in placements.workers(name)[0] or () if cpus] for name in NAMES}
    assert len(where["single"]) == 1
    assert placements.workers("same_cpu")[0] == [placements.workers("single")[0][0]] * 2
    assert where["siblings"] == [where["single"][0]] * 2
    assert placements.workers("siblings")[0][0] != placements.workers("siblings")[0][1]
    assert where["cores"][0] == where["single"][0] and where["cores"][1] != where["cores"][0]
    assert sorted(where["one_per_core"]) == [0, 1, 2, 3]
    assert sorted(where["all_threads"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert placements.workers("unpinned")[0] == [[]] * 8


@pytest.mark.parametrize("cores", [ADJACENT, SPLIT])
def test_both_cores_are_in_one_package(cores):
    packages = ((cores[0] + cores[3]), (cores[1] + cores[2]))
    first, second = (cpus[0] for cpus in on(cores, packages=packages).workers("cores")[0])
    assert {core_of(cores, first), core_of(cores, second)} == {0, 3}


D2_8XL = tuple((core, core + 18) for core in range(18))


@pytest.mark.parametrize(
    ("cores", "name", "cpus"),
    [
        (SPLIT, "spread_4", [0, 1, 2, 3]),
        (ADJACENT, "spread_5", [0, 2, 4, 6, 1]),
        (SPLIT, "packed_4", [0, 4, 1, 5]),
        (ADJACENT, "packed_5", [0, 1, 2, 3, 4]),
        (D2_8XL, "packed_4", [0, 18, 1, 19]),
        (D2_8XL, "spread_4", [0, 1, 2, 3]),
        # A hybrid host: cores with siblings first, or the workers would not share a core.
        (((0,), (1,), (2, 3), (4,), (5, 6)), "packed_3", [2, 3, 5]),
        (((0,), (1,), (2, 3), (4,), (5, 6)), "spread_6", [0, 1, 2, 4, 5, 3]),
    ],
)
def test_workers_are_pinned_on_cores_first_or_on_siblings_first(cores, name, cpus):
    usable = [cpu for core in cores for cpu in core]
    assert on(cores, usable).workers(name) == ([[cpu] for cpu in cpus], None)


def test_pinned_workers_are_at_most_the_cpus_and_free_ones_are_not():
    assert on(ADJACENT).workers("spread_9") == (
        None,
        "9 pinned workers need more than the 8 usable CPUs: free_9 leaves them to the scheduler",
    )
    assert on(ADJACENT).workers("packed_9")[0] is None
    assert on(ADJACENT).workers("free_9") == ([list(range(8))] * 9, None)
    assert on(ADJACENT, usable=(0, 2, 4, 6)).workers("free_3")[0] == [[0, 2, 4, 6]] * 3
    assert on(ADJACENT).workers("free_1024")[0] and on(ADJACENT).workers("free_1025")[0] is None


def test_streams_need_no_topology():
    assert on((), usable=(0, 1)).workers("free_3") == ([[0, 1]] * 3, None)


def test_explicit_cpus():
    assert on(ADJACENT).workers("cpus_3_0_3") == ([[3], [0], [3]], None)
    workers, reason = on(ADJACENT, usable=(0, 2)).workers("cpus_0_1")
    assert workers is None and reason.startswith("CPU 1 is not usable: it is offline")


def test_two_packages():
    assert on(SPLIT).workers("packages_2") == ([[0], [2]], None)
    assert on(ADJACENT).workers("packages_2") == ([[0], [4]], None)
    assert on(SPLIT, packages=(tuple(range(8)),)).workers("packages_2") == (None, "there is only one package")
    assert on(SPLIT, packages=()).workers("packages_2") == (None, "this host does not report its packages")
    # The first core of the other package is of another kind.
    assert on(((0, 1), (2,), (3, 4)), usable=range(5), packages=((0, 1), (2, 3, 4))).workers("packages_2")[0] == [
        [0],
        [3],
    ]


def test_remote_memory_is_of_a_node_that_has_some_and_is_not_that_of_the_cpu():
    def placed(nodes, memory_nodes):
        found = Placements(SPLIT, PACKAGES[SPLIT], range(8), nodes, memory_nodes)
        return found.workers("remote_memory"), found.memory_node("remote_memory")

    nodes = {0: (0, 1, 4, 5), 1: (2, 3, 6, 7), 2: ()}
    assert placed(nodes, (0, 1, 2)) == (([[0]], None), 1)
    # A node without memory is passed over, one without CPUs is not.
    assert placed(nodes, (0, 2)) == (([[0]], None), 2)
    assert placed(nodes, (0,)) == ((None, "there is only one NUMA node with memory"), None)
    assert placed({}, ()) == ((None, "this host does not report NUMA nodes"), None)
    assert on(SPLIT).memory_node("single") is None


def test_cores_have_one_thread_when_siblings_are_offline():
    placements = on(ADJACENT, usable=(0, 2, 4, 6))
    reason = "no core has two threads that are online, allowed to this process and not isolated"
    assert placements.workers("siblings") == (None, reason)
    assert placements.workers("all_threads")[0] == placements.workers("one_per_core")[0] == [[0], [2], [4], [6]]


def test_on_a_hybrid_host_both_cores_have_siblings():
    cores = ((0,), (1,), (2, 3), (4,), (5, 6))
    placements = on(cores, usable=range(7), packages=(tuple(range(7)),))
    assert placements.workers("siblings")[0] == [[2], [3]]
    assert placements.workers("cores")[0] == [[2], [5]]


def test_with_an_unknown_topology_some_placements_still_exist():
    placements = on((), usable=(0, 1))
    for name in ("siblings", "cores", "one_per_core", "spread_2", "packed_2", "packages_2"):
        workers, reason = placements.workers(name)
        assert workers is None and "does not report" in reason
    assert placements.workers("single")[0] == [[0]]
    assert placements.workers("all_threads")[0] == [[0], [1]]


def test_with_one_cpu_of_an_unknown_core_there_are_no_siblings():
    assert on(((0, 1),), usable=(0, 1, 2), packages=()).workers("siblings")[0] is None


def test_no_usable_cpu_and_wrong_names():
    assert on(ADJACENT, usable=()).workers("single") == (
        None,
        "no CPU is usable: none is online, in the affinity mask of this process and not isolated",
    )
    wrong_numbers = (
        "free_0",
        "spread_01",
        "packed_\u00b2",
        "free_" + "9" * 30,
        "cpus_01",
        "cpus_0_",
        "cpus" + 17 * "_1",
    )
    for name in ("nonsense", "", "free_", "free_x", "free_-1", "cpus", "cpus_", "__init__", *wrong_numbers):
        with pytest.raises(PlacementError, match="there is no placement"):
            on(ADJACENT).workers(name)


def test_placements_with_the_same_cpus_are_found():
    placements = on(((0,), (1,)), usable=(0, 1))
    found = {name: (placements.workers(name)[0], None) for name in ("single", "cores", "one_per_core", "all_threads")}
    # The same CPUs, and memory of another node.
    found["remote_memory"] = (found["single"][0], 1)
    same = {"single": None, "cores": None, "one_per_core": "cores", "all_threads": "cores", "remote_memory": None}
    assert same_as_earlier(found) == same
