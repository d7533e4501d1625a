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
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache, topology
from sysfs_tree import Machine

MACHINE = Machine(packages=2, cores=2)
UUID = "sys/class/dmi/id/product_uuid"
DIRECTORY = os.path.dirname(cache.PATH)


def host_of(root, machine=MACHINE, **further):
    for path in (root / "sys", root / "proc"):
        if path.exists():
            path.rename(root / f"old-{path.name}-{len(os.listdir(root))}")
    tree = {**sysfs_tree.files(machine), UUID: "an-uuid\n", "etc/machine-id": "an-id\n", **further}
    return host_files.HostFs(sysfs_tree.write(root, tree))


def save(fs):
    return cache.save(fs, topology.read_topology(fs))


def offline(*cpus):
    return dataclasses.replace(MACHINE, offline=cpus)


def test_the_cache_is_written_once_without_the_machines_identity_and_supplies_offline_siblings(tmp_path):
    fs = host_of(tmp_path)
    assert cache.load(fs) is None and fs.problems == []
    assert save(fs)
    before = os.stat(fs.path(cache.PATH)).st_ino
    assert not save(fs) and os.stat(fs.path(cache.PATH)).st_ino == before
    assert "an-uuid" not in fs.read(cache.PATH) and "an-id" not in fs.read(cache.PATH)
    fs = host_of(tmp_path, offline(4, 5, 6, 7))
    host = topology.read_topology(fs, cache.load(fs))
    assert (host.cores, host.packages) == (MACHINE.core_groups, MACHINE.groups(1))
    assert (host.source, host.complete, fs.problems) == ("saved", True, [])
    assert not cache.save(fs, host)


@pytest.mark.parametrize("machine", [offline(7), offline(0), offline(4, 5, 6, 7)])
def test_the_cache_is_not_written_while_a_cpu_is_offline(tmp_path, machine):
    fs = host_of(tmp_path, machine)
    # Also where something else has the core of each.
    whole = topology.read_topology(fs)._replace(complete=True)
    assert not save(fs) and not cache.save(fs, whole) and fs.read(cache.PATH) is None


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
    assert cache.load(fs) is None and "another machine" in fs.problems[0]


def without(*keys):
    return lambda document: json.dumps({key: value for key, value in document.items() if key not in keys})


DAMAGED = [("schema", "x"), ("schema_version", 2), ("present", "0-99999999999"), ("cores", {}), ("key", 7)]
DAMAGED += [("cores", cores) for cores in (["0-7", "0"], ["0-6"], ["0-7", ""], [0], ["0-3", "2-7"])]


@pytest.mark.parametrize(
    "damage",
    [
        *(lambda document, one=one: json.dumps({**document, **dict([one])}) for one in DAMAGED),
        *map(without, ["key", "present", "cores", "packages"]),
        *(lambda _document, text=text: text for text in ("", "{", "[]", "\0", "[" * 100_000)),
    ],
)
def test_a_damaged_cache_is_ignored_and_named(tmp_path, damage):
    fs = host_of(tmp_path)
    save(fs)
    fs.write(cache.PATH, damage(json.loads(fs.read(cache.PATH))))
    assert cache.load(fs) is None
    assert len(fs.problems) == 1 and fs.path(cache.PATH) in fs.problems[0]


class OwnedFs(host_files.HostFs):
    """A tree that is treated like `/`, with given owners and modes: there only a cache that is owned by root counts."""

    is_host, statuses = True, {}

    def status(self, path):
        real = super().status(path)
        return real and types.SimpleNamespace(**{"st_mode": real.st_mode, "st_uid": 0, **self.statuses.get(path, {})})


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (cache.PATH, {"st_uid": 1000}),
        (cache.PATH, {"st_mode": 0o100666}),
        (cache.PATH, {"st_mode": 0o120777}),
        (DIRECTORY, {"st_uid": 1000}),
        (DIRECTORY, {"st_mode": 0o040775}),
        ("another", {}),
    ],
)
def test_a_cache_is_used_if_only_root_could_have_written_it(tmp_path, path, status):
    save(host_of(tmp_path))
    fs = OwnedFs(str(tmp_path))
    fs.statuses = {path: status}
    found = cache.load(fs)
    if path == "another":
        assert found.cores == MACHINE.core_groups and fs.problems == []
    else:
        assert found is None and "if you trust it" in fs.problems[0]
