# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of programs that look for the CPUs that they may use, each tried on what we read of quotas.
A test is named after its source.
"""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import quotas

V2 = "{number} 23 0:26 {root} {mount} rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "{number} 23 0:29 {root} {mount} rw,relatime master:11 - cgroup cgroup rw,{controllers}\n"


def smallest(directory, own, mounts, cgroups):
    """The CPUs that a process in this cgroup may use, by the files of these cgroups, from the root of the host."""
    (directory / "proc/self").mkdir(parents=True)
    (directory / "proc/self/cgroup").write_text(own)
    (directory / "proc/self/mountinfo").write_text(mounts)
    for place, files in cgroups.items():
        (directory / place).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / place / name).write_text(text)
    return min((quota.cpus for quota in quotas.read(HostFs(str(directory)))), default=None)


def unified(directory, own, cgroups):
    mounts = V2.format(number=31, root="/", mount="/sys/fs/cgroup")
    files = {f"sys/fs/cgroup/{place}": {"cpu.max": text} if text else {} for place, text in cgroups.items()}
    return smallest(directory, f"0::{own}\n", mounts, files)


@pytest.mark.parametrize("leaf", ["max 100000\n", None])
def test_ninja_2805_a_quota_above_a_cgroup_without_one(tmp_path, leaf):
    """Also lxcfs 688, spiceai 12299, cadvisor 3682 and JDK-8322420."""
    pod = "kubepods.slice/pod7.slice"
    assert unified(tmp_path, f"/{pod}/cri-1.scope", {f"{pod}/cri-1.scope": leaf, pod: "400000 100000\n"}) == 4


def test_sysbox_582_a_larger_quota_below_a_smaller_one(tmp_path):
    assert unified(tmp_path, "/a/b", {"a/b": "200000 100000\n", "a": "25000 100000\n"}) == 0.25


def test_systemd_9623_a_unit_whose_controller_is_not_handed_down(tmp_path):
    assert unified(tmp_path, "/system.slice/x.slice", {"system.slice/x.slice": None, "system.slice": None}) is None


def test_omr_6479_both_numbers_of_version_2(tmp_path):
    assert unified(tmp_path, "/a", {"a": "150000 50000\n"}) == 3


def test_automaxprocs_92_a_container_of_version_1_under_kubernetes(tmp_path):
    """The mount point is the container's own cgroup, whose name in /proc/self/cgroup is the host's."""
    own = "/kubepods/burstable/pod1/0a1b"
    mounts = V1.format(number=40, root=own, mount="/sys/fs/cgroup/cpu,cpuacct", controllers="cpu,cpuacct")
    group = {"cpu.cfs_quota_us": "350000\n", "cpu.cfs_period_us": "100000\n"}
    assert smallest(tmp_path, f"5:cpuacct,cpu:{own}\n", mounts, {"sys/fs/cgroup/cpu,cpuacct": group}) == 3.5


def test_gpdb_5942_a_quota_of_version_1_above(tmp_path):
    mounts = V1.format(number=40, root="/", mount="/sys/fs/cgroup/cpu", controllers="cpu")
    free = {"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}
    files = {
        "sys/fs/cgroup/cpu/gpdb/1": free,
        "sys/fs/cgroup/cpu/gpdb": {**free, "cpu.cfs_quota_us": "360000\n"},
    }
    assert smallest(tmp_path, "2:cpu:/gpdb/1\n", mounts, files) == 3.6


def test_a_host_with_both_versions_where_the_first_has_the_controller(tmp_path):
    """Systemd's hybrid layout: version 2 has no controllers."""
    mounts = V2.format(number=31, root="/", mount="/sys/fs/cgroup/unified") + V1.format(
        number=40, root="/", mount="/sys/fs/cgroup/cpu", controllers="cpu"
    )
    files = {
        "sys/fs/cgroup/unified/a": {},
        "sys/fs/cgroup/cpu/a": {"cpu.cfs_quota_us": "50000\n", "cpu.cfs_period_us": "100000\n"},
    }
    assert smallest(tmp_path, "2:cpu:/a\n0::/a\n", mounts, files) == 0.5
