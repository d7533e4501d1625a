# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placements are made from the topology: the same on every numbering, and absent with a reason where they cannot exist."""

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
def test_each_placement_has_its_meaning_on_both_numberings(cores):
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
def test_two_cores_are_taken_from_one_package(cores):
    packages = ((cores[0] + cores[3]), (cores[1] + cores[2]))
    first, second = (cpus[0] for cpus in on(cores, packages=packages).workers("cores")[0])
    assert {core_of(cores, first), core_of(cores, second)} == {0, 3}


def test_streams_fill_cores_before_siblings():
    assert on(SPLIT).workers("streams_4")[0] == [[0], [1], [2], [3]]
    assert on(ADJACENT).workers("streams_5")[0] == [[0], [2], [4], [6], [1]]
    assert on(ADJACENT).workers("streams_9") == (None, "9 streams on 8 CPUs")
    assert on(ADJACENT).workers("streams_0")[0] is None


def test_siblings_offline_leave_cores_of_one_thread():
    placements = on(ADJACENT, usable=(0, 2, 4, 6))
    assert placements.workers("siblings") == (None, "no core has two threads online")
    assert placements.workers("all_threads")[0] == placements.workers("one_per_core")[0] == [[0], [2], [4], [6]]


def test_hybrid_home_is_a_core_with_siblings_and_its_neighbour_of_the_same_kind():
    cores = ((0,), (1,), (2, 3), (4,), (5, 6))
    placements = on(cores, usable=range(7), packages=(tuple(range(7)),))
    assert placements.workers("siblings")[0] == [[2], [3]]
    assert placements.workers("cores")[0] == [[2], [5]]


def test_unknown_topology_says_so_and_still_measures_what_it_can():
    placements = on((), usable=(0, 1))
    for name in ("siblings", "cores", "one_per_core", "streams_2"):
        workers, reason = placements.workers(name)
        assert workers is None and "does not tell" in reason
    assert placements.workers("single")[0] == [[0]]
    assert placements.workers("all_threads")[0] == [[0], [1]]


def test_one_cpu_of_unknown_core_makes_no_statement_about_cores():
    assert on(((0, 1),), usable=(0, 1, 2), packages=()).workers("siblings")[0] is None


def test_no_usable_cpu_and_wrong_names():
    assert on(ADJACENT, usable=()).workers("single") == (None, "no CPU may be used")
    for name in ("nonsense", "", "streams_", "streams_x", "streams_-1", "__init__"):
        with pytest.raises(PlacementError, match="there is no placement"):
            on(ADJACENT).workers(name)


def test_what_is_the_same_cpus_is_named_once():
    placements = on(((0,), (1,)), usable=(0, 1))
    found = {name: placements.workers(name)[0] for name in ("single", "cores", "one_per_core", "all_threads")}
    assert same_as_earlier(found) == {"single": None, "cores": None, "one_per_core": "cores", "all_threads": "cores"}
