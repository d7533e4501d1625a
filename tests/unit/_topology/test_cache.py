# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import dataclasses
import json
import os
import types

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache, topology
from sysfs_tree import Machine

MACHINE = Machine(packages=2, cores=2)
UUID = "sys/class/dmi/id/product_uuid"


def host_of(root, machine=MACHINE, **further):
    for path in (root / "sys", root / "proc"):
        if path.exists():
            path.rename(root / f"old-{path.name}-{len(os.listdir(root))}")
    return host_files.HostFs(
        sysfs_tree.write(
            root, dict(sysfs_tree.files(machine), **dict({UUID: "an-uuid\n", "etc/machine-id": "an-id\n"}, **further))
        )
    )


def save(fs):
    return topology_cache.save(fs, topology.read_topology(fs))


def offline(*cpus):
    return dataclasses.replace(MACHINE, offline=cpus)


def test_the_cache_supplies_the_cores_of_offline_siblings(tmp_path):
    assert save(host_of(tmp_path))
    fs = host_of(tmp_path, offline(4, 5, 6, 7))
    host = topology.read_topology(fs, topology_cache.load(fs))
    assert (host.cores, host.packages, host.source, host.complete) == (
        MACHINE.core_groups,
        MACHINE.groups(1),
        "saved",
        True,
    )
    assert fs.problems == []


def test_an_unchanged_cache_is_not_rewritten(tmp_path):
    fs = host_of(tmp_path)
    assert save(fs)
    before = os.stat(fs.path(topology_cache.PATH)).st_ino
    assert not save(fs)
    assert os.stat(fs.path(topology_cache.PATH)).st_ino == before


@pytest.mark.parametrize("machine", [offline(7), offline(0), offline(4, 5, 6, 7)])
def test_the_cache_is_not_written_while_a_cpu_is_offline(tmp_path, machine):
    fs = host_of(tmp_path, machine)
    assert not save(fs)
    assert fs.read(topology_cache.PATH) is None


def test_the_cache_is_not_written_from_a_cached_topology(tmp_path):
    save(host_of(tmp_path))
    fs = host_of(tmp_path, offline(7))
    assert not topology_cache.save(fs, topology.read_topology(fs, topology_cache.load(fs)))


def test_a_topology_from_cpuinfo_alone_is_not_saved(tmp_path):
    fs = host_files.HostFs(sysfs_tree.write(tmp_path, {"proc/cpuinfo": sysfs_tree.files(MACHINE)["proc/cpuinfo"]}))
    assert not save(fs)


def test_a_missing_cache_is_not_a_problem(tmp_path):
    fs = host_of(tmp_path)
    assert topology_cache.load(fs) is None
    assert fs.problems == []


@pytest.mark.parametrize(
    "change",
    [
        {UUID: "another\n"},
        {UUID: "", "etc/machine-id": "another\n"},
        {"proc/cpuinfo": sysfs_tree.files(dataclasses.replace(MACHINE, model="Another CPU"))["proc/cpuinfo"]},
    ],
)
def test_the_cache_of_another_machine_is_ignored(tmp_path, change):
    save(host_of(tmp_path))
    fs = host_of(tmp_path, offline(7), **change)
    assert topology_cache.load(fs) is None
    assert "another machine" in fs.problems[0]


def test_the_cache_of_another_number_of_cpus_is_ignored(tmp_path):
    save(host_of(tmp_path))
    fs = host_of(tmp_path, Machine(packages=2, cores=3, offline=(11,)))
    host = topology.read_topology(fs, topology_cache.load(fs))
    assert host.source == "sysfs" and not host.complete
    assert "CPUs 0-11 are present" in fs.problems[0]


def test_the_identity_is_not_in_the_cache(tmp_path):
    fs = host_of(tmp_path)
    save(fs)
    assert "an-uuid" not in fs.read(topology_cache.PATH) and "an-id" not in fs.read(topology_cache.PATH)


def valid_cache(fs):
    save(fs)
    return json.loads(fs.read(topology_cache.PATH))


@pytest.mark.parametrize(
    "changes",
    [
        {"schema": "x"},
        {"schema_version": 2},
        {"schema_version": None},
        {"present": "0-"},
        {"present": None},
        {"present": "0-99999999999"},
        {"cores": None},
        {"cores": {}},
        {"cores": ["0-7", "0"]},
        {"cores": ["0-6"]},
        {"cores": ["0-7", ""]},
        {"cores": [0]},
        {"cores": ["0-3", "2-7"]},
        {"packages": ["0-3"]},
        {"key": 7},
    ],
)
def test_a_damaged_cache_is_ignored_and_named(tmp_path, changes):
    fs = host_of(tmp_path)
    fs.write(topology_cache.PATH, json.dumps(dict(valid_cache(fs), **changes)))
    assert topology_cache.load(fs) is None
    assert len(fs.problems) == 1 and fs.path(topology_cache.PATH) in fs.problems[0]


@pytest.mark.parametrize("missing", ["schema", "key", "present", "cores", "packages"])
def test_a_cache_without_a_key_is_ignored_and_named(tmp_path, missing):
    fs = host_of(tmp_path)
    data = valid_cache(fs)
    del data[missing]
    fs.write(topology_cache.PATH, json.dumps(data))
    assert topology_cache.load(fs) is None
    assert len(fs.problems) == 1


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\0", "[" * 100000, "1" * 5000, '"' * 2000, '{"a": ' * 5000])
def test_invalid_json_is_ignored(tmp_path, text):
    fs = host_of(tmp_path)
    fs.write(topology_cache.PATH, text)
    assert topology_cache.load(fs) is None
    assert len(fs.problems) == 1


class OwnedFs(host_files.HostFs):
    """A tree that is treated like `/`, with given owners and modes:
    on a host only a cache that is owned by root is used.
    """

    is_host = True

    def __init__(self, sysroot, status):
        super().__init__(sysroot)
        self.statuses = status

    def status(self, path):
        real = super().status(path)
        return (
            None
            if real is None
            else types.SimpleNamespace(**dict({"st_mode": real.st_mode, "st_uid": 0}, **self.statuses.get(path, {})))
        )


DIRECTORY = os.path.dirname(topology_cache.PATH)


@pytest.mark.parametrize(
    "status",
    [
        {topology_cache.PATH: {"st_uid": 1000}},
        {topology_cache.PATH: {"st_mode": 0o100666}},
        {topology_cache.PATH: {"st_mode": 0o100664}},
        {topology_cache.PATH: {"st_mode": 0o120777}},
        {DIRECTORY: {"st_uid": 1000}},
        {DIRECTORY: {"st_mode": 0o040777}},
        {DIRECTORY: {"st_mode": 0o040775}},
    ],
)
def test_a_cache_that_other_users_could_have_written_is_ignored(tmp_path, status):
    save(host_of(tmp_path))
    fs = OwnedFs(str(tmp_path), status)
    assert topology_cache.load(fs) is None
    assert "correct its owner and mode if you trust it, or remove it" in fs.problems[0]


def test_a_cache_that_only_root_could_have_written_is_used(tmp_path):
    save(host_of(tmp_path))
    fs = OwnedFs(str(tmp_path), {})
    assert topology_cache.load(fs).cores == MACHINE.core_groups
    assert fs.problems == []
