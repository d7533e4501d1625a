# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cgroup of a systemd unit and the CPUs it is bound to, on trees as cgroup v2 and v1 show them."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import units

V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n"
V1 = "cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0\ncgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n"
ROOT = "sys/fs/cgroup"


class Tree(kernel_files.KernelFiles):
    """A host of cgroups and tasks."""

    def __init__(self, root, mounts=V2, online="0-7"):
        super().__init__(str(root))
        self.root = root
        self.put("proc/self/mounts", mounts)
        self.put("sys/devices/system/cpu/online", online)

    def put(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def cgroup(self, path, cpus=None, effective=None, pids=()):
        if effective is not None:
            self.put(f"{path}/cpuset.cpus", (cpus or "") + "\n")
            self.put(f"{path}/cpuset.cpus.effective", effective + "\n")
        self.put(f"{path}/cgroup.procs", "".join(f"{pid}\n" for pid in pids))

    def task(self, pid, *masks):
        for thread, mask in enumerate(masks, pid):
            self.put(f"proc/{pid}/task/{thread}/status", f"Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{mask}\n")

    def only(self, unit):
        (found,) = units.cgroups(self, unit)
        return found


@pytest.mark.parametrize(
    ("unit", "path"),
    [
        ("db.service", "system.slice/db.service"),
        ("postgresql@14-main.service", "system.slice/system-postgresql.slice/postgresql@14-main.service"),
        ("qemu.scope", "machine.slice/machine-a.slice/qemu.scope"),
        ("machine-a.slice", "machine.slice/machine-a.slice"),
    ],
)
def test_a_unit_lies_in_nested_slices(tmp_path, unit, path):
    tree = Tree(tmp_path)
    for other in ("init.scope", "system.slice/cron.service", path):
        tree.cgroup(f"{ROOT}/{other}")
    assert units.cgroups(tree, unit) == [units.Cgroup(ROOT, f"{ROOT}/{path}")]


def test_what_a_user_names_like_a_unit_is_not_the_unit(tmp_path):
    tree = Tree(tmp_path)
    tree.cgroup(f"{ROOT}/user.slice/user-1001.slice/user@1001.service/app.slice/db.service", "3", "3")
    assert units.cgroups(tree, "db.service") == units.cgroups(Tree(tmp_path / "x", mounts=""), "db.service") == []


@pytest.mark.parametrize(
    ("online", "slice_cpus", "cpus", "effective", "expected"),
    [
        ("0-7", "", "2-3,6-7", "2-3,6-7", "2-3,6-7"),
        # After a change: 6 and 7 are offline, and still the unit's.
        ("0-5", "", "2-3,6-7", "2-3", "2-3,6-7"),
        # All its CPUs are offline: the kernel gives it its parent's.
        ("0-3", "", "4-7", "0-3", "4-7"),
        ("0-7", "0-3", "2-5", "2-3", "2-3"),
        # A list without a CPU of the slice's has no effect.
        ("0-7", "0-3", "6-7", "0-3", "0-3"),
        # CPUs of another unit's partition.
        ("0-7", "", "", "0-5", "0-5"),
        ("0-7", "", "", "0-7", "0-7"),
    ],
)
def test_cpus_of_a_cpuset(tmp_path, online, slice_cpus, cpus, effective, expected):
    tree = Tree(tmp_path, online=online)
    tree.cgroup(f"{ROOT}/system.slice", slice_cpus, slice_cpus or online)
    tree.cgroup(f"{ROOT}/system.slice/db.service", cpus, effective)
    assert cpulist.render(units.cpus(tree, tree.only("db.service"))) == expected


def test_masks_of_all_threads_of_all_cgroups_of_a_unit(tmp_path):
    tree = Tree(tmp_path)
    tree.cgroup(f"{ROOT}/system.slice/db.service", pids=(10, 99))
    tree.cgroup(f"{ROOT}/system.slice/db.service/workers", pids=(20,))
    tree.task(10, "1", "3-4")
    tree.task(20, "6")
    assert units.cpus(tree, tree.only("db.service")) == frozenset()
    assert units.masks(tree, tree.only("db.service")) == {1, 3, 4, 6}


def test_a_host_with_cgroup_v1(tmp_path):
    tree = Tree(tmp_path, mounts=V1)
    tree.cgroup(f"{ROOT}/systemd/system.slice/db.service", pids=(10,))
    tree.task(10, "2-3")
    unit = tree.only("db.service")
    assert (unit.mount, units.cpus(tree, unit), units.masks(tree, unit)) == (f"{ROOT}/systemd", frozenset(), {2, 3})
