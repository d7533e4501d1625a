# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which cores a change is about: what may be written, its name, and the CPUs on machines of many shapes."""

from __future__ import annotations

import pathlib
import tarfile

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache, topology
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    scope,
    state as smt_state,
    transition as smt_transition,
)

TOPOLOGIES = pathlib.Path(__file__).resolve().parents[4].parent / "shared" / "topologies"
ARCHIVE = TOPOLOGIES / "open.tar.xz"


@pytest.mark.parametrize(
    ("given", "name", "title"),
    [
        (None, "all", "all"),
        ({"cpus": "0-3,2,7"}, "cpus_0-3,7", "CPUs 0-3,7"),
        ({"cpus": 3}, "cpus_3", "CPUs 3"),
        ({"node": " 12 "}, "node_12", "node 12"),
        ({"package": "01"}, "package_1", "package 1"),
        ({"unit": "db@14-main.service"}, "unit_db@14-main.service", "unit db@14-main.service"),
        ({"unit": r"m\x2d1_b.scope"}, r"unit_m\x2d1_b.scope", r"unit m\x2d1_b.scope"),
    ],
)
def test_names(given, name, title):
    parsed = scope.parse(given)
    assert (parsed.name, parsed.title, scope.parse(parsed.given)) == (name, title, parsed)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        *((given, "give one of cpus, node, package and unit") for given in ({}, "node_0", {"node": 0, "package": 0})),
        ({"cpus": [0, 1]}, "name at least one CPU"),
        ({"cpus": "0-99999"}, "above 65535"),
        ({"node": "9" * 5000}, "node is '99999"),
        *(
            ({"unit": unit}, "give the full name of a service")
            for unit in ("../../x.service", "a\nb.service", "a" * 300)
        ),
    ],
)
def test_what_is_not_a_scope(given, reason):
    with pytest.raises(scope.ScopeError) as refused:
        scope.parse(given)
    assert reason in str(refused.value) and len(str(refused.value)) < 250 and str(refused.value).isprintable()


def resolved(tree, given):
    """The topology of a tree, and the CPUs of a scope on it."""
    fs = host_files.HostFs(str(tree))
    known = topology.read_topology(fs, topology_cache.load(fs))
    return known, scope.resolve(scope.parse(given), known, fs)


MACHINE = sysfs_tree.Machine(packages=2, cores=2, threads=2, numbering="adjacent")


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, None), ({"cpus": "1,6"}, "1,6"), ({"node": 1}, "4-7"), ({"package": 1}, "4-7"), ({"package": 0}, "0-3")],
)
def test_on_2x2x2(tmp_path, given, expected):
    _dummy, cpus = resolved(sysfs_tree.write(tmp_path, sysfs_tree.files(MACHINE)), given)
    assert cpus == (None if expected is None else set(cpulist.parse(expected)))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"cpus": "2,8-9"}, "there is no CPU 8 on this host: it has CPUs 0-7"),
        ({"node": 2}, "there is no node 2 on this host: it has nodes 0-1"),
        ({"package": 2}, "there is no package 2 on this host: it has packages 0-1"),
        ({"unit": "db.service"}, "unit db.service has no cgroup on this host"),
    ],
)
def test_what_the_host_does_not_have(tmp_path, given, reason):
    with pytest.raises(scope.ScopeError, match=reason):
        resolved(sysfs_tree.write(tmp_path, sysfs_tree.files(MACHINE)), given)


def test_siblings_that_only_the_cache_knows(tmp_path):
    """Siblings of package 1 are offline, so that its node and its package directories do not list them."""
    fs = host_files.HostFs(sysfs_tree.write(tmp_path, sysfs_tree.files(MACHINE)))
    assert topology_cache.save(fs, topology.read_topology(fs))
    (tmp_path / sysfs_tree.CPU / "cpu5/topology").rename(tmp_path / "gone5")
    (tmp_path / sysfs_tree.CPU / "cpu7/topology").rename(tmp_path / "gone7")
    offline = sysfs_tree.Machine(packages=2, cores=2, threads=2, numbering="adjacent", offline=(5, 7))
    sysfs_tree.write(tmp_path, sysfs_tree.files(offline))
    known, by_node = resolved(tmp_path, {"node": 1})
    assert (known.source, by_node) == ("saved", {4, 6})
    assert resolved(tmp_path, {"package": 1})[1] == {4, 5, 6, 7}
    state = smt_state.of_cpus("on", True, [0, 1, 2, 3, 4, 6], range(8))
    before = smt_state.of_cpus("on", True, range(8), range(8))
    assert smt_transition.predict(state, known.cores, 1, origin=before, only=by_node) == state


UNIT = "sys/fs/cgroup/system.slice/db.service"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({UNIT + "/cpuset.cpus": "6-7", UNIT + "/cpuset.cpus.effective": "6-7"}, {6, 7}),
        ({UNIT + "/cpuset.cpus.effective": "0-7", "proc/10/task/10/status": "Cpus_allowed_list:\t2\n"}, {2}),
        (
            {"proc/10/task/10/status": "Cpus_allowed_list:\t2\n", "proc/10/task/11/status": "Cpus_allowed_list:\t3\n"},
            {2, 3},
        ),
        ({UNIT + "/cpuset.cpus.effective": "0-7", "proc/10/task/10/status": "Cpus_allowed_list:\t0-7\n"}, None),
        # One thread of each core: a change of its cores is one of all cores, also when the siblings are offline.
        ({UNIT + "/cpuset.cpus": "0,2,4,6", UNIT + "/cpuset.cpus.effective": "0,2,4,6"}, None),
    ],
)
def test_a_unit(tmp_path, files, expected):
    mounts = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n"
    tree = sysfs_tree.write(
        tmp_path, {**sysfs_tree.files(MACHINE), "proc/self/mounts": mounts, UNIT + "/cgroup.procs": "10\n", **files}
    )
    if expected is None:
        with pytest.raises(scope.ScopeError, match=r"unit db\.service may run on every core of this host"):
            resolved(tree, {"unit": "db.service"})
    else:
        assert resolved(tree, {"unit": "db.service"})[1] == expected


RECORDED = [
    # Four threads a core, and node numbers that are not 0 to 7.
    ("hw-256ppc-8n8s4t", {"node": 4}, "65-67,69-71,73-75,77-79,81-83,85-87,89-91,93-95"),
    # Two nodes in each package.
    ("hw-64amd64-4s2n4ca2co", {"package": 3}, "49,51,53,55,57,59,61,63"),
    # Split numbering.
    ("lvc-x86_64-resctrl-amd", {"node": 1}, "48-63"),
    # Packages and nodes have different numbers for the same CPUs: package 1 is node 2.
    ("ul-x86_64-64cpu", {"package": 1}, "33,37,41,45,49,53,57,61"),
    ("ul-x86_64-64cpu", {"node": 2}, "33,37,41,45,49,53,57,61"),
    # Cores with and without a sibling.
    ("hw-20em64t-hybrid-1p6c2t-2ca4co1t", {"cpus": "0,19"}, "1"),
]


@pytest.fixture(scope="module", name="trees")
def _trees(tmp_path_factory):
    if not ARCHIVE.is_file():
        pytest.skip(f"the recorded machines are not here: {ARCHIVE} is missing")
    root = tmp_path_factory.mktemp("recorded")
    wanted = {row[0] for row in RECORDED}
    with tarfile.open(ARCHIVE) as archive:
        members = [one for one in archive if wanted.intersection(one.name.split("/")[:2])]
        archive.extractall(root, members, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return root


@pytest.mark.parametrize(("machine", "given", "offline"), RECORDED)
def test_recorded(trees, machine, given, offline):
    known, cpus = resolved(trees / machine, given)
    state = smt_state.of_cpus("on", True, known.online, known.present)
    goal = smt_transition.predict(state, known.cores, 1, only=cpus)
    assert (goal["control"], cpulist.render(set(known.online) - set(goal["online"]))) == ("on", offline)
