# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines recorded by other projects, if present in ../shared/topologies beside the repository: they are no part of
it. By day a few of each kind, at night all.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import tarfile

import night
import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof import recording, views
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import facts as border, parts

TOPOLOGIES = pathlib.Path(__file__).resolve().parents[4].parent / "shared" / "topologies"
ARCHIVE = TOPOLOGIES / "open.tar.xz"
EXPECTED = {path.stem: json.loads(path.read_text("utf-8")) for path in (TOPOLOGIES / "expected").glob("*.json")}
CONFIDENT = ("peer-siblings", "peer-counts", "self-consistent", "single-source", "derived")
BY_DAY = ["hw-20em64t-hybrid-1p6c2t-2ca4co1t", "hw-16em64t-4s2c2t-offlines", "ul-ppc64-POWER7", "ul-s390-lpar"]
BY_DAY += [
    "lvc-x86_64-caches",
    "ul-arm-A510-A710-A715-X3",
    "hw-8ia64-2s2c2t",
    "ans-ppc64-power7-rhel7-8cpu",
    "gop-1958",
]
NAMES = sorted(EXPECTED) if night.NIGHT else [name for name in BY_DAY if name in EXPECTED]
# On Arm lscpu takes CPUs with the same core_id in different clusters for siblings.
LSCPU_DIFFERS = {"pyt-galaxy-s7-global", "ul-arm-A510-A710-A715-X3"}
# Without lists of siblings or of a node's CPUs, only links, which a kernel never leaves alone.
LINKS_ONLY = {"lv-ppc64-subcores1", "lv-x86_64-test1", "lv-x86_64-test3", "lv-x86_64-test6"}
# CPUs 6 and 7 are in standby: present, and nobody on the host can bring them online.
OFFLINE = {"ul-s390-lpar": "0"}

pytestmark = pytest.mark.skipif(not ARCHIVE.is_file() or not EXPECTED, reason=f"{ARCHIVE} is missing")


@pytest.fixture(scope="module", name="trees")
def _trees(tmp_path_factory):
    """Name -> files of the machine."""
    root = tmp_path_factory.mktemp("recorded")
    with tarfile.open(ARCHIVE) as archive:
        wanted = [one for one in archive.getmembers() if one.name.removeprefix("./").split("/")[0] in NAMES]
        # Python 3.11.2 of Debian 12 does not support filters yet.
        archive.extractall(root, wanted, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return {name: host_files.HostFs(str(root / name)) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_facts_are_valid_and_what_is_expected_or_nothing_is_claimed(trees, name):
    expected = {**EXPECTED[name], "offline": OFFLINE.get(name, EXPECTED[name]["offline"])}
    host, facts = topology.read_topology(trees[name]), smt_facts.gather(trees[name])
    assert json.loads(json.dumps(facts)) == facts and parts.plain(border.made(facts)) == facts
    placed = [cpu for group in facts["sibling_groups"] for cpu in cpulist.parse(group)]
    assert len(placed) == len(set(placed))
    assert facts["complete"] == (sorted(placed) == list(cpulist.parse(facts["cpus"]["present"])))
    found = {
        **{key: facts["cpus"][key] for key in ("present", "online", "offline")},
        **{key: facts[key] for key in ("sockets", "cores")},
        "siblings": [list(cpulist.parse(group)) for group in facts["sibling_groups"]],
        "threads_per_core": facts["threads_per_core"]["max"],
        "threads_per_core_min": facts["threads_per_core"]["min"],
        "numa_nodes": len(facts["nodes"]) or None,
        "socket_groups": [cpulist.render(package) for package in host.packages],
    }
    if expected["confidence"] in CONFIDENT:
        assert found == {key: expected[key] for key in found}
        assert host.complete == (not expected["offline"])
    elif expected["confidence"] == "no-topology":
        named = ("complete", "source", "sibling_groups", "primaries", "secondaries")
        assert [facts[key] for key in named] == [False, "unknown", [], "", ""]
        unknown = [facts[key] for key in ("sockets", "cores", "supported", "active", "hardware_class")]
        assert {*unknown, *facts["threads_per_core"].values()} == {None}
        assert cpulist.render(host.present) == expected["present"]


@pytest.mark.skipif(shutil.which("lscpu") is None, reason="needs lscpu")
def test_the_facts_are_what_the_real_lscpu_says_of_recorded_machines(trees):
    asked, different = 0, set()
    for name, fs in trees.items():

        def run(argv, _seconds, fs=fs):
            if argv[0] != "lscpu":
                return 127, "", ""
            argv = ["lscpu", "-s", fs.sysroot, *argv[1:]]
            environment = {**os.environ, "LC_ALL": "C"}
            done = subprocess.run(argv, capture_output=True, text=True, errors="replace", check=False, env=environment)
            return done.returncode, done.stdout, done.stderr

        shown = topology.read_topology(fs)
        found = next(view for view in views.read(fs, shown.online, run) if view.source == "lscpu")
        asked += found.reason is None
        if views.differences(shown, found):
            different.add(name)
    assert asked > len(NAMES) / 3 and different == LSCPU_DIFFERS.intersection(NAMES)


def test_a_recording_has_all_that_the_topology_is_read_from(trees, tmp_path):
    lost = set()
    for name, fs in trees.items():
        found = recording.read(fs)
        same = {path: text.removeprefix(recording.SAME_AS) for path, text in found.items()}
        whole = {path: found.get(same[path], text) for path, text in found.items()}
        again = host_files.HostFs(sysfs_tree.write(tmp_path / name, whole))
        if topology.read_topology(again) != topology.read_topology(fs):
            lost.add(name)
    assert lost == LINKS_ONLY.intersection(NAMES)
