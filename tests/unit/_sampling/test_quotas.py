# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU quotas on trees as cgroups of both versions, containers and systemd's slices show them."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import quotas

V2 = "31 23 0:26 {root} {mount} rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "32 31 0:29 {root} {mount} rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"


def host(directory, own, mounts, cgroups, mount="sys/fs/cgroup"):
    """A host whose process is in this cgroup.

    Args:
        directory: an empty one
        own: /proc/self/cgroup
        mounts: /proc/self/mountinfo
        cgroups: directory below the mount -> its files
        mount: where the hierarchy is
    """
    (directory / "proc/self").mkdir(parents=True)
    (directory / "proc/self/cgroup").write_text(own)
    (directory / "proc/self/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/vda1 rw\n" + mounts)
    for place, files in cgroups.items():
        (directory / mount / place).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (directory / mount / place / name).write_text(text)
    return HostFs(str(directory))


def found(*arguments, **options):
    return [(quota.cgroup, quota.cpus) for quota in quotas.read(host(*arguments, **options))]


UNLIMITED = {"cpu.max": "max 100000\n"}
FOUR = {"cpu.max": "400000 100000\n", "cpu.stat": "usage_usec 5\nnr_throttled 3\nthrottled_usec 2500000\n"}


def test_a_quota_of_a_slice_above_holds(tmp_path):
    assert found(
        tmp_path,
        "0::/system.slice/app.slice/app.service\n",
        V2.format(root="/", mount="/sys/fs/cgroup"),
        {"system.slice/app.slice/app.service": UNLIMITED, "system.slice/app.slice": FOUR, "system.slice": UNLIMITED},
    ) == [("/system.slice/app.slice", 4.0)]


def test_all_quotas_on_the_way_are_read_the_nearest_first(tmp_path):
    files = host(
        tmp_path,
        "0::/a/b\n",
        V2.format(root="/", mount="/sys/fs/cgroup"),
        {"a/b": {"cpu.max": "150000 100000\n"}, "a": FOUR},
    )
    assert quotas.read(files) == [quotas.Quota("/a/b", 1.5, 0.0), quotas.Quota("/a", 4.0, 2.5)]


def test_a_container_with_a_namespace_of_its_own(tmp_path):
    assert found(tmp_path, "0::/\n", V2.format(root="/", mount="/sys/fs/cgroup"), {"": FOUR}) == [("/", 4.0)]


def test_a_container_that_sees_the_hosts_names(tmp_path):
    """Docker with cgroup v1 mounts the container's own cgroup, and /proc/self/cgroup has its name on the host."""
    cgroup = {
        "cpu.cfs_quota_us": "200000\n",
        "cpu.cfs_period_us": "100000\n",
        "cpu.stat": "throttled_time 1500000000\n",
    }
    files = host(
        tmp_path,
        "4:memory:/docker/0a1b\n3:cpu,cpuacct:/docker/0a1b\n",
        V1.format(root="/docker/0a1b", mount="/sys/fs/cgroup/cpu"),
        {"cpu": cgroup},
    )
    assert quotas.read(files) == [quotas.Quota("/docker/0a1b", 2.0, 1.5)]


@pytest.mark.parametrize(
    ("own", "mounts", "cgroups"),
    [
        ("0::/a\n", V2.format(root="/", mount="/sys/fs/cgroup"), {"a": UNLIMITED}),
        ("0::/a\n", V2.format(root="/", mount="/sys/fs/cgroup"), {"a": {"cpu.max": ""}}),
        ("0::/a\n", V2.format(root="/", mount="/sys/fs/cgroup"), {"a": {"cpu.max": "100000 0\n"}}),
        ("0::/a\n", V2.format(root="/", mount="/sys/fs/cgroup"), {"a": {"cpu.max": "one two\n"}}),
        ("1:cpu:/\n", V1.format(root="/", mount="/sys/fs/cgroup"), {"": {"cpu.cfs_quota_us": "-1\n"}}),
        ("0::/../../b\n", V2.format(root="/", mount="/sys/fs/cgroup"), {"b": FOUR}),
        ("0::/a\n", "", {"a": FOUR}),
        ("", V2.format(root="/", mount="/sys/fs/cgroup"), {"": FOUR}),
        ("garbage\n\x00\n", "garbage - \n - cgroup2\n", {}),
    ],
)
def test_no_quota(tmp_path, own, mounts, cgroups):
    assert found(tmp_path, own, mounts, cgroups) == []


FULL = quotas.Quota("/pod", 4.0, 10.0)


@pytest.mark.parametrize(
    ("stopped", "refused"),
    [(10.0, False), (10.079, False), (10.081, True), (14.0, True)],
)
def test_a_sample_that_a_quota_stopped_is_refused(stopped, refused):
    said = quotas.refusal([FULL], [FULL._replace(stopped=stopped)], 8.0)
    assert (said is not None) == refused
    if stopped == 14.0:
        assert said.startswith("the CPU quota of the cgroup /pod, 4 CPUs, stopped the workers for more than 1% of")


def test_a_quota_that_came_or_went_meanwhile_has_no_beginning():
    assert quotas.refusal([], [FULL], 1.0) is None and quotas.refusal([FULL], [], 1.0) is None


@pytest.mark.parametrize(("online", "said"), [(8, True), (4, False)])
def test_a_quota_of_fewer_cpus_is_announced(online, said):
    words = quotas.announcement([FULL, FULL._replace(cgroup="/", cpus=6.0)], online)
    assert bool(words) == said
    if said:
        assert words[0].startswith("This run may use 4 CPUs of 8 at once, by the CPU quota of the cgroup /pod.")
