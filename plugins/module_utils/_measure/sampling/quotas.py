# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPU quotas of this process's cgroups, and for how long they stopped its tasks.

The smallest quota on the way up to the root holds, wherever it is set: a container's, its pod's, a systemd slice's.
Sources: Documentation/scheduler/sched-bwc.rst and Documentation/admin-guide/cgroup-v2.rst of the kernel.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs

# A sample whose workers were stopped for a larger share of their time measures the quota.
MAX_STOPPED_SHARE = 0.01
# How the reason of such a sample begins.
REFUSED = "the CPU quota of the cgroup "


class Quota(t.NamedTuple):
    """A quota, and what it has done so far."""

    # As /proc/self/cgroup names it.
    cgroup: str
    # CPUs that may be used at once, 0.5 for half of one's time.
    cpus: float
    # For how long it has stopped tasks since the cgroup began, in seconds of CPUs.
    stopped: float


class Hierarchy(t.NamedTuple):
    """Where the cgroup of this process is in a mounted hierarchy with the CPU controller."""

    version: int
    mount: str
    # The cgroup at the mount point, which need not be the root: a container has its own there.
    root: str
    cgroup: str


def read(files: HostFs) -> "list[Quota]":
    """Return the quotas of this process's cgroup and of those above it, as far as they can be seen.

    Args:
        files: the host's files.
    """
    quotas = []
    for hierarchy in _hierarchies(files):
        inside = hierarchy.root.rstrip("/") + "/"
        below = hierarchy.cgroup[len(inside) :].split("/") if hierarchy.cgroup.startswith(inside) else [".."]
        # A cgroup that is not below the mount point cannot be seen; the mount point's own one can.
        parts = [] if ".." in below else [part for part in below if part]
        for depth in range(len(parts), -1, -1):
            place = "/".join([hierarchy.mount, *parts[:depth]])
            cpus = (_cpus_v2 if hierarchy.version == 2 else _cpus_v1)(files, place)
            if cpus is not None:
                name = inside + "/".join(parts[:depth])
                quotas.append(Quota(name if name == "/" else name.rstrip("/"), cpus, _stopped(files, place)))
    return quotas


def announcement(quotas: "t.Sequence[Quota]", online: int) -> "list[str]":
    """Return the sentence about the smallest quota, if it is one of less than all CPUs.

    Args:
        quotas: from :func:`read`.
        online: the number of the host's CPUs that are online.
    """
    smallest = min(quotas, key=lambda quota: quota.cpus, default=None)
    if smallest is None or smallest.cpus >= online:
        return []
    return [
        (
            f"This run may use {_cpus(smallest)} of {online} at once, by the CPU quota of the cgroup {smallest.cgroup}."
            " Samples that it stops are not counted: raise it, or have smt_eval choose placements of fewer CPUs"
            " (smt_eval_placements)."
        )
    ]


def refusal(before: "t.Iterable[Quota]", after: "t.Iterable[Quota]", seconds: float) -> "str | None":
    """Return why a sample measures a quota and not the work, or None where no quota stopped its workers for long.

    Args:
        before: the quotas before the sample.
        after: the same after it.
        seconds: of CPUs that the workers could have used: their number times how long each ran.
    """
    begun = {quota.cgroup: quota.stopped for quota in before}
    stopped = [(quota.stopped - begun[quota.cgroup], quota) for quota in after if quota.cgroup in begun]
    most, quota = max(stopped, default=(0.0, None), key=lambda pair: pair[0])
    if quota is None or most <= MAX_STOPPED_SHARE * seconds:
        return None
    return (
        f"{REFUSED}{quota.cgroup}, {_cpus(quota)}, stopped the workers for more than"
        f" {MAX_STOPPED_SHARE:.0%} of their time, so that this would measure the quota: raise it for the measurement"
        " (CPUQuota of the systemd unit or slice, the CPU limit of the container or pod), or measure fewer workers"
    )


def _cpus(quota: Quota) -> str:
    return f"{quota.cpus:g} CPU{'' if quota.cpus == 1 else 's'}"


def _hierarchies(files: HostFs) -> "t.Iterator[Hierarchy]":
    own = {}
    for line in (files.read("proc/self/cgroup") or "").splitlines():
        number, _colon, rest = line.partition(":")
        controllers, _colon, cgroup = rest.partition(":")
        if (number, controllers) == ("0", ""):
            own[2] = cgroup
        elif "cpu" in controllers.split(","):
            own[1] = cgroup
    for line in (files.read("proc/self/mountinfo") or "").splitlines():
        fields, _dash, after_dash = line.partition(" - ")
        place, kind = fields.split(" "), after_dash.split(" ")
        version = {"cgroup2": 2, "cgroup": 1}.get(kind[0])
        if version in own and len(place) > 4 and (version == 2 or "cpu" in kind[-1].split(",")):
            yield Hierarchy(version, place[4].lstrip("/"), place[3], own[version])


def _cpus_v2(files: HostFs, place: str) -> "float | None":
    quota, _space, period = (files.read(f"{place}/cpu.max") or "").strip().partition(" ")
    return _share(quota, period)


def _cpus_v1(files: HostFs, place: str) -> "float | None":
    quota, period = ((files.read(f"{place}/cpu.cfs_{name}_us") or "").strip() for name in ("quota", "period"))
    return _share(quota, period)


def _share(quota: str, period: str) -> "float | None":
    """Return the CPUs of a quota; ``max`` and -1 are none."""
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None


def _stopped(files: HostFs, place: str) -> float:
    # Version 2 counts microseconds, version 1 nanoseconds.
    units = {"throttled_usec": 1e6, "throttled_time": 1e9}
    for line in (files.read(f"{place}/cpu.stat") or "").splitlines():
        name, _space, count = line.partition(" ")
        if name in units and count.isdecimal():
            return int(count) / units[name]
    return 0.0
