# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU quotas on trees as cgroups of both versions, containers and systemd's slices show them."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import quotas

V2 = "31 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "32 31 0:29 {root} /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
UNLIMITED = {"cpu.max": "max 100000\n"}
FOUR = {"cpu.max": "400000 100000\n", "cpu.stat": "usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000\n"}
OLD = {"cpu.cfs_quota_us": "200000\n", "cpu.cfs_period_us": "100000\n", "cpu.stat": "throttled_time 1500000000\n"}
DOCKER = "4:memory:/docker/0a1b\n3:cpu,cpuacct:/docker/0a1b\n"


@pytest.mark.parametrize(
    ("own", "mounts", "cgroups", "found"),
    [
        # A quota of a slice above holds; all on the way are read, the nearest first.
        ("0::/a/b/c\n", V2, {"a/b/c": UNLIMITED, "a/b": FOUR, "a": UNLIMITED}, [("/a/b", 4.0, 2.5)]),
        # A container with a namespace of its own, and one that sees the host's names: Docker with cgroup v1 mounts the
        # container's own cgroup, and /proc/self/cgroup has its name on the host.
        ("0::/\n", V2, {"": FOUR}, [("/", 4.0, 2.5)]),
        (DOCKER, V1.format(root="/docker/0a1b"), {"cpu": OLD}, [("/docker/0a1b", 2.0, 1.5)]),
        ("0::/a\n", V2, {"a": UNLIMITED}, []),
        ("0::/a\n", V2, {"a": {"cpu.max": "100000 0\n"}}, []),
        ("1:cpu:/\n", V1.format(root="/"), {"cpu": {**OLD, "cpu.cfs_quota_us": "-1\n"}}, []),
        ("0::/../../b\n", V2, {"b": FOUR}, []),
        ("", V2, {"": FOUR}, []),
    ],
)
def test_quotas_as_cgroups_of_both_versions_show_them(tmp_path, own, mounts, cgroups, found):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(own)
    (tmp_path / "proc/self/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/vda1 rw\n" + mounts)
    for place, files in cgroups.items():
        (tmp_path / "sys/fs/cgroup" / place).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / "sys/fs/cgroup" / place / name).write_text(text)
    assert quotas.read(HostFs(str(tmp_path))) == found


FULL = quotas.Quota("/pod", 4.0, 10.0)
SAID = "the CPU quota of the cgroup /pod, 4 CPUs, stopped the workers for more than 1% of their time, so that this"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ([FULL], [FULL], None),
        ([FULL], [FULL._replace(stopped=10.081)], SAID),
        # One that came or went has no beginning.
        ([], [FULL], None),
    ],
)
def test_a_sample_that_a_quota_stopped_is_refused(before, after, said):
    found = quotas.refusal(before, after, 8.0)
    assert found is None if said is None else found.startswith(said)


def test_a_quota_of_fewer_cpus_is_announced():
    of_both = [FULL, FULL._replace(cgroup="/", cpus=6.0)]
    (said,) = quotas.announcement(of_both, 8)
    assert said.startswith("This run may use 4 CPUs of 8 at once, by the CPU quota of the cgroup /pod. Samples that it")
    assert quotas.announcement(of_both, 4) == []
