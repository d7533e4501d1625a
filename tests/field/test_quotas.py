# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of programs that look for the CPUs that they may use, each tried on what we read of quotas.
A test is named after its source.
"""

from __future__ import annotations

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import quotas

V2 = "{number} 23 0:26 {root} {mount} rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "{number} 23 0:29 {root} {mount} rw,relatime master:11 - cgroup cgroup rw,{controllers}\n"


def smallest(directory, own, mounts, cgroups):
    """The CPUs that a process in this cgroup may use, by the files of these cgroups, from the root of the host."""
    own_files = {"proc/self/cgroup": own, "proc/self/mountinfo": mounts}
    in_groups = {f"{place}/{name}": text for place, files in cgroups.items() for name, text in files.items()}
    sysfs_tree.write(directory, {**own_files, **in_groups})
    for place in cgroups:
        (directory / place).mkdir(parents=True, exist_ok=True)
    return min((quota.cpus for quota in quotas.read(HostFs(str(directory)))), default=None)


def unified(own, cgroups):
    mounts = V2.format(number=31, root="/", mount="/sys/fs/cgroup")
    files = {f"sys/fs/cgroup/{place}": {"cpu.max": text} if text else {} for place, text in cgroups.items()}
    return f"0::{own}\n", mounts, files


def v1(quota):
    return {"cpu.cfs_quota_us": f"{quota}\n", "cpu.cfs_period_us": "100000\n"}


# The mount point is the container's own cgroup, whose name in /proc/self/cgroup is the host's.
KUBE = "/kubepods/burstable/pod1/0a1b"
CPU = {"number": 40, "root": "/", "mount": "/sys/fs/cgroup/cpu", "controllers": "cpu"}
IN_POD = {**CPU, "root": KUBE, "mount": "/sys/fs/cgroup/cpu,cpuacct", "controllers": "cpu,cpuacct"}
POD = "kubepods.slice/pod7.slice"
GPDB = {"sys/fs/cgroup/cpu/gpdb/1": v1(-1), "sys/fs/cgroup/cpu/gpdb": v1(360000)}
# Systemd's hybrid layout: version 2 has no controllers.
HYBRID = V2.format(number=31, root="/", mount="/sys/fs/cgroup/unified") + V1.format(**CPU)
OF_HYBRID = {"sys/fs/cgroup/unified/a": {}, "sys/fs/cgroup/cpu/a": v1(50000)}
CASES = {
    # A quota above a cgroup without one. Also lxcfs 688, spiceai 12299, cadvisor 3682 and JDK-8322420.
    "ninja_2805": (unified(f"/{POD}/1.scope", {f"{POD}/1.scope": "max 100000\n", POD: "400000 100000\n"}), 4),
    "ninja_2805 none": (unified(f"/{POD}/1.scope", {f"{POD}/1.scope": None, POD: "400000 100000\n"}), 4),
    # A larger quota below a smaller one.
    "sysbox_582": (unified("/a/b", {"a/b": "200000 100000\n", "a": "25000 100000\n"}), 0.25),
    # A unit whose controller is not handed down.
    "systemd_9623": (unified("/system.slice/x.slice", {"system.slice/x.slice": None, "system.slice": None}), None),
    "omr_6479": (unified("/a", {"a": "150000 50000\n"}), 3),
    "automaxprocs_92": (
        (f"5:cpuacct,cpu:{KUBE}\n", V1.format(**IN_POD), {"sys/fs/cgroup/cpu,cpuacct": v1(350000)}),
        3.5,
    ),
    "gpdb_5942": (("2:cpu:/gpdb/1\n", V1.format(**CPU), GPDB), 3.6),
    "both versions": (("2:cpu:/a\n0::/a\n", HYBRID, OF_HYBRID), 0.5),
}


@pytest.mark.parametrize(("files", "cpus"), CASES.values(), ids=CASES)
def test_the_smallest_quota_on_the_way_to_the_root_counts(tmp_path, files, cpus):
    assert smallest(tmp_path, *files) == cpus
