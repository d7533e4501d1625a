# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests on machines recorded by other projects, if present in ../shared/topologies beside the repository.

They are not part of it.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tarfile

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._proof import recording, views
from ansible_collections.threadwise.smt.plugins.module_utils._topology import topology
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import facts as border

TOPOLOGIES = pathlib.Path(__file__).resolve().parents[3].parent / "shared" / "topologies"
ARCHIVE = TOPOLOGIES / "open.tar.xz"
EXPECTED = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted((TOPOLOGIES / "expected").glob("*.json"))
}
CONFIDENT = ("peer-siblings", "peer-counts", "self-consistent", "single-source", "derived")

# Recorded machines of which lscpu says something else than the kernel's own lists of siblings: on Arm it takes CPUs
# with the same core_id in different clusters for siblings.
LSCPU_DIFFERS = {"pyt-galaxy-s7-global", "ul-arm-A510-A710-A715-X3"}
# Their trees have no lists of siblings or of a node's CPUs in them, only links, which a kernel never leaves alone.
LINKS_ONLY = {"lv-ppc64-subcores1", "lv-x86_64-test1", "lv-x86_64-test3", "lv-x86_64-test6"}

# CPUs 6 and 7 are in standby: present, and nobody on the host can bring them online.
OFFLINE = {"ul-s390-lpar": "0"}

pytestmark = pytest.mark.skipif(
    not ARCHIVE.is_file() or not EXPECTED, reason=f"the recorded machines are not here: {ARCHIVE} is missing"
)


@pytest.fixture(scope="module", name="trees")
def _trees(tmp_path_factory):
    root = tmp_path_factory.mktemp("recorded")
    with tarfile.open(ARCHIVE) as archive:
        # Python 3.11.2 of Debian 12 does not support filters yet.
        archive.extractall(root, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return root


def read(trees, name):
    fs = host_files.HostFs(str(trees / name))
    return topology.read_topology(fs), fs


def of_confidence(*confidences):
    return [name for name, expected in EXPECTED.items() if expected["confidence"] in confidences]


@pytest.mark.parametrize("name", of_confidence(*CONFIDENT))
def test_confident_expectations_are_met(trees, name):
    expected = EXPECTED[name]
    expected = {**expected, "offline": OFFLINE.get(name, expected["offline"])}
    host, fs = read(trees, name)
    facts = smt_facts.gather(fs)
    assert {
        "present": facts["cpus"]["present"],
        "online": facts["cpus"]["online"],
        "offline": facts["cpus"]["offline"],
        "sockets": facts["sockets"],
        "cores": facts["cores"],
        "siblings": [list(cpulist.parse(group)) for group in facts["sibling_groups"]],
        "threads_per_core": facts["threads_per_core"]["max"],
        "threads_per_core_min": facts["threads_per_core"]["min"],
        "numa_nodes": len(facts["nodes"]) or None,
        "socket_groups": [cpulist.render(package) for package in host.packages],
    } == {
        key: expected[key]
        for key in (
            "present",
            "online",
            "offline",
            "sockets",
            "cores",
            "siblings",
            "threads_per_core",
            "threads_per_core_min",
            "numa_nodes",
            "socket_groups",
        )
    }
    assert host.complete == (not expected["offline"])


@pytest.mark.parametrize("name", of_confidence("no-topology"))
def test_without_topology_files_nothing_is_claimed(trees, name):
    host, fs = read(trees, name)
    facts = smt_facts.gather(fs)
    assert (facts["complete"], facts["source"], facts["sibling_groups"], facts["primaries"], facts["secondaries"]) == (
        False,
        "unknown",
        [],
        "",
        "",
    )
    assert (facts["sockets"], facts["cores"], facts["supported"], facts["active"], facts["hardware_class"]) == (
        None,
        None,
        None,
        None,
        None,
    )
    assert set(facts["threads_per_core"].values()) == {None}
    assert cpulist.render(host.present) == EXPECTED[name]["present"]


@pytest.mark.parametrize("name", EXPECTED)
def test_facts_of_every_machine_are_valid(trees, name):
    facts = smt_facts.gather(host_files.HostFs(str(trees / name)))
    assert json.loads(json.dumps(facts)) == facts and border.accept(facts) is facts
    placed = [cpu for group in facts["sibling_groups"] for cpu in cpulist.parse(group)]
    assert len(placed) == len(set(placed))
    assert facts["complete"] == (sorted(placed) == list(cpulist.parse(facts["cpus"]["present"])))


def test_the_archive_is_the_expected_one():
    assert len(EXPECTED) == 81
    assert len(of_confidence(*CONFIDENT)) == 68


@pytest.mark.skipif(shutil.which("lscpu") is None, reason="needs lscpu")
def test_the_facts_are_what_the_real_lscpu_says_of_recorded_machines(trees):
    def of_tree(tree):
        def run(argv, _seconds):
            if argv[0] != "lscpu":
                return 127, "", ""
            argv = ["lscpu", "-s", str(tree), *argv[1:]]
            environment = {**os.environ, "LC_ALL": "C"}
            done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, env=environment)
            return done.returncode, done.stdout, done.stderr

        return run

    asked, different = 0, set()
    for tree in sorted(one for one in trees.iterdir() if one.is_dir()):
        fs = host_files.HostFs(str(tree))
        shown = topology.read_topology(fs)
        found = next(view for view in views.read(fs, shown.online, of_tree(tree)) if view.source == "lscpu")
        asked += found.reason is None
        if views.differences(shown, found):
            different.add(tree.name)
    assert asked > 30 and different == LSCPU_DIFFERS


def test_a_recording_has_all_that_the_topology_is_read_from(trees, tmp_path):
    lost = set()
    for tree in sorted(one for one in trees.iterdir() if one.is_dir()):
        fs = host_files.HostFs(str(tree))
        found = recording.read(fs)
        same = {path: text.removeprefix(recording.SAME_AS) for path, text in found.items()}
        whole = {path: found.get(same[path], text) for path, text in found.items()}
        again = host_files.HostFs(sysfs_tree.write(tmp_path / tree.name, whole))
        if topology.read_topology(again) != topology.read_topology(fs):
            lost.add(tree.name)
    assert lost == LINKS_ONLY
