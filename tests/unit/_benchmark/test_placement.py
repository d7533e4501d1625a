# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placements depend on the topology: they are the same for each CPU numbering, and have a reason where they do not exist."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.placement import NAMES, PlacementError, Placements, same_as_earlier

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
    where = {name: [core_of(cores, cpus[0]) for cpus in placements.workers(name)[0] if cpus] for name in NAMES}
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


def test_streams_fill_cores_before_siblings():
    assert on(SPLIT).workers("streams_4")[0] == [[0], [1], [2], [3]]
    assert on(ADJACENT).workers("streams_5")[0] == [[0], [2], [4], [6], [1]]
    assert on(ADJACENT).workers("streams_9") == (None, "9 streams need more than the 8 usable CPUs")
    assert on(ADJACENT).workers("streams_0")[0] is None


def test_cores_have_one_thread_when_siblings_are_offline():
    placements = on(ADJACENT, usable=(0, 2, 4, 6))
    assert placements.workers("siblings") == (None, "no core has two threads online")
    assert placements.workers("all_threads")[0] == placements.workers("one_per_core")[0] == [[0], [2], [4], [6]]


def test_on_a_hybrid_host_both_cores_have_siblings():
    cores = ((0,), (1,), (2, 3), (4,), (5, 6))
    placements = on(cores, usable=range(7), packages=(tuple(range(7)),))
    assert placements.workers("siblings")[0] == [[2], [3]]
    assert placements.workers("cores")[0] == [[2], [5]]


def test_with_an_unknown_topology_some_placements_still_exist():
    placements = on((), usable=(0, 1))
    for name in ("siblings", "cores", "one_per_core", "streams_2"):
        workers, reason = placements.workers(name)
        assert workers is None and "does not report" in reason
    assert placements.workers("single")[0] == [[0]]
    assert placements.workers("all_threads")[0] == [[0], [1]]


def test_with_one_cpu_of_an_unknown_core_there_are_no_siblings():
    assert on(((0, 1),), usable=(0, 1, 2), packages=()).workers("siblings")[0] is None


def test_no_usable_cpu_and_wrong_names():
    assert on(ADJACENT, usable=()).workers("single") == (None, "no CPU is usable: none is online, in the affinity mask of this process and not isolated")
    for name in ("nonsense", "", "streams_", "streams_x", "streams_-1", "__init__"):
        with pytest.raises(PlacementError, match="there is no placement"):
            on(ADJACENT).workers(name)


def test_placements_with_the_same_cpus_are_found():
    placements = on(((0,), (1,)), usable=(0, 1))
    found = {name: placements.workers(name)[0] for name in ("single", "cores", "one_per_core", "all_threads")}
    assert same_as_earlier(found) == {"single": None, "cores": None, "one_per_core": "cores", "all_threads": "cores"}
