# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cpusets of a host, of cgroup v1 and v2."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files

MOST_CGROUPS = 20000


class Cpuset(t.NamedTuple):
    """A cpuset with a list of CPUs.

    Attributes:
        version: version of its cgroup hierarchy, 1 or 2
        path: its directory below the sysroot
        inside: its path from the mount point on, as in /proc/PID/cgroup
        cpus: its CPUs
        partition: ``root`` or ``isolated`` if it is the root of a v2 partition, else None
    """

    version: int
    path: str
    inside: str
    cpus: "frozenset[int]"
    partition: "str | None"


def mounts(host: kernel_files.KernelFiles, option: str = "cpuset") -> "list[tuple[str, int]]":
    """Return the mount points below the sysroot of hierarchies with cpusets, or another ``option`` of cgroup v1, each with its cgroup version."""
    found = []
    for line in (host.read("proc/self/mounts") or "").splitlines():
        fields = line.split(" ")
        if len(fields) > 3 and (fields[2] == "cgroup2" or (fields[2] == "cgroup" and option in fields[3].split(","))):
            found.append((fields[1].lstrip("/"), 2 if fields[2] == "cgroup2" else 1))
    return found


def find(host: kernel_files.KernelFiles) -> "list[Cpuset]":
    """Return all cpusets that list CPUs, without the root of each hierarchy."""
    found = []
    for mount, version in mounts(host):
        pending = [mount]
        for _count in range(MOST_CGROUPS):
            if not pending:
                break
            path = pending.pop()
            has_cpus = host.exists(path + "/cpuset.cpus")
            cpus = cpulist.parse_or_empty(host.read(path + "/cpuset.cpus")) if has_cpus and path != mount else None
            if cpus:
                partition = host.read(path + "/cpuset.cpus.partition") if version == 2 else None
                found.append(Cpuset(version, path, path[len(mount) :], cpus, partition if partition in ("root", "isolated") else None))
            if has_cpus or path == mount:
                # Without the file the controller is disabled here, and therefore in all cgroups below.
                pending += [path + "/" + name for name in host.directories(path)]
    return found


def processes(host: kernel_files.KernelFiles, path: str) -> "list[int]":
    """Return the processes in the cgroup of a directory below the sysroot and in those below it, of at most ``MOST_CGROUPS`` cgroups."""
    found: list[int] = []
    pending = [path]
    for _count in range(MOST_CGROUPS):
        if not pending:
            break
        one = pending.pop()
        found += [int(pid) for pid in (host.read(one + "/cgroup.procs") or "").split() if pid.isdigit()]
        pending += [f"{one}/{name}" for name in host.directories(one)]
    return found


def holds(cpuset: Cpuset, cgroups: "t.Iterable[str]") -> bool:
    """Return whether a task with these cgroup paths is in the cpuset or below it."""
    return any((cgroup + "/").startswith(cpuset.inside + "/") for cgroup in cgroups)


def effective_cpus(host: kernel_files.KernelFiles, pid: int, online: "frozenset[int]") -> "frozenset[int]":
    """Return the online CPUs of a task's cpuset.

    Args:
        host: the host
        pid: process or thread id
        online: result for a task that is in no cpuset
    """
    cgroups = [line.split(":", 2) for line in (host.read(f"proc/{pid}/cgroup") or "").splitlines()]
    for mount, version in mounts(host):
        name = "cpuset.cpus.effective" if version == 2 else "cpuset.effective_cpus"
        for path in [entry[2] for entry in cgroups if len(entry) == 3 and (entry[1] == "" if version == 2 else "cpuset" in entry[1].split(","))]:
            parts = path.strip("/").split("/")
            for length in range(len(parts), -1, -1):
                cpus = cpulist.parse_or_empty(host.read("/".join([mount, *parts[:length], name])))
                if cpus:
                    return cpus
    return online


def unit_mounts(host: kernel_files.KernelFiles) -> "list[str]":
    """Return the mount points below the sysroot of hierarchies in which systemd keeps its units."""
    return [mount for mount, _version in mounts(host, "name=systemd")]
