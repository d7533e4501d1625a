# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs that a systemd unit is bound to, from its cgroup and its tasks. systemctl is never asked:
only what the kernel does counts.
"""

import typing as t

from ..._host import cpulist, kernel_files
from . import cpusets, tasks

SUFFIXES = (".service", ".scope", ".slice")


class Cgroup(t.NamedTuple):
    """The cgroup of a unit.

    Attributes:
        mount: the mount point of its hierarchy, below the sysroot
        path: its directory below the sysroot
    """

    mount: str
    path: str


def cgroups(host: kernel_files.KernelFiles, unit: str) -> "list[Cgroup]":
    """Return the cgroups of a unit of the system: one, or one for each hierarchy of cgroup v1 that systemd uses.

    A unit lies in its slice, and a slice in slices only (systemd.slice(5)). What is below a service or a scope may be
    delegated to a user, and is not searched.
    """
    matches = []
    for mount in cpusets.unit_mounts(host):
        pending = [mount]
        for _count in range(cpusets.MAX_CGROUPS):
            if not pending:
                break
            path = pending.pop()
            names = host.directories(path)
            if unit in names:
                matches.append(Cgroup(mount, f"{path}/{unit}"))
                break
            pending += [f"{path}/{name}" for name in names if name.endswith(".slice")]
    return matches


def cpus(host: kernel_files.KernelFiles, unit: Cgroup) -> "frozenset[int]":
    """Return the CPUs of a unit's cpuset, with those that are offline; none where there is no cpuset (cgroup v1,
    or the controller is disabled).
    """
    effective = cpulist.parse_or_empty(host.read(unit.path + "/cpuset.cpus.effective"))
    configured = _configured(host, unit)
    if effective <= configured:
        return effective | (configured - cpulist.parse_or_empty(host.read("sys/devices/system/cpu/online")))
    # All its CPUs are offline, so that the kernel gives it those of its parent, or nothing limits it.
    return configured or effective


def _configured(host: kernel_files.KernelFiles, unit: Cgroup) -> "frozenset[int]":
    """Return the CPUs that a unit and its slices set: each that has CPUs in common with those above restricts them
    (cgroup v2, cpuset.cpus).
    """
    limit: frozenset[int] = frozenset()
    path = unit.mount
    for name in unit.path[len(unit.mount) :].strip("/").split("/"):
        path = f"{path}/{name}"
        here = cpulist.parse_or_empty(host.read(path + "/cpuset.cpus"))
        limit = here & limit or limit or here
    return limit


def masks(host: kernel_files.KernelFiles, unit: Cgroup) -> "frozenset[int]":
    """Return the CPUs that at least one task of a unit may run on; none where it has no task."""
    return frozenset().union(
        *(mask for pid in cpusets.processes(host, unit.path) for mask in tasks.masks_of(host, pid).values())
    )
