# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Cpusets of a host, of cgroup v1 and v2.

What goes away with a CPU (kernel/cgroup/cpuset.c, Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/cpusets.rst;
seen on Linux 6.1, remote partitions, which came with 6.7, only read of):

- v1: ``cpuset.cpus`` loses the CPU for good. Where it was the last one, the kernel moves the tasks to the cpuset above
  for good.
- v2: ``cpuset.cpus`` stays, and ``cpuset.cpus.effective`` follows the CPU off and on. Where it was the last one, the
  tasks have the CPUs of the cpuset above until it is back. All cpusets that set none follow the one above them, and
  those beside a partition have what the partition leaves.
- v2 partition: as a cpuset, but where it has tasks and loses its last CPU, it becomes invalid and its tasks run among
  all others. So it does where the cpuset that it takes its CPUs from would be left with none. The kernel makes it valid
  again when CPUs are back, a remote partition (one whose parent is none) never.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files

MAX_CGROUPS = 20000
# What a cpuset has -> its file.
_SHOWN = (("cpus", "cpuset.cpus"), ("effective", "cpuset.cpus.effective"), ("partition", "cpuset.cpus.partition"))


class Cpuset(t.NamedTuple):
    """A cpuset with a list of CPUs.

    Attributes:
        version: version of its cgroup hierarchy, 1 or 2
        path: its directory below the sysroot
        inside: its path from the mount point on, as in /proc/PID/cgroup
        cpus: its CPUs, as they are configured
        partition: ``root`` or ``isolated`` if it is the root of a v2 partition, else None
        effective: its CPUs that are online, without those that partitions below it have taken
        above: the same of the cpuset that it has its CPUs from
    """

    version: int
    path: str
    inside: str
    cpus: "frozenset[int]"
    partition: "str | None"
    effective: "frozenset[int]"
    above: "frozenset[int]"

    @property
    def binds(self) -> bool:
        """Whether its tasks have other CPUs than they would have without it."""
        return self.partition is not None or not self.above or not self.effective >= self.above


def mounts(host: kernel_files.KernelFiles, option: str = "cpuset") -> "list[tuple[str, int]]":
    """Return the mount points below the sysroot of hierarchies with cpusets, or another ``option`` of cgroup v1,
    each with its cgroup version.
    """
    mount_points = []
    for line in (host.read("proc/self/mounts") or "").splitlines():
        fields = line.split(" ")
        if len(fields) > 3 and (fields[2] == "cgroup2" or (fields[2] == "cgroup" and option in fields[3].split(","))):
            mount_points.append((fields[1].lstrip("/"), 2 if fields[2] == "cgroup2" else 1))
    return mount_points


def find(host: kernel_files.KernelFiles) -> "list[Cpuset]":
    """Return all cpusets that list CPUs, without the root of each hierarchy."""
    entries = []
    for mount, version in mounts(host):
        # Each with the CPUs of its parent, and those of the partition that it is in.
        pending: list[tuple[str, frozenset[int], frozenset[int]]] = [(mount, frozenset(), frozenset())]
        for _count in range(MAX_CGROUPS):
            if not pending:
                break
            path, parent, outer = pending.pop()
            has_cpus = host.exists(path + "/cpuset.cpus")
            kind = host.read(path + "/cpuset.cpus.partition") if version == 2 else None
            partition = kind if kind in ("root", "isolated") else None
            cpus = cpulist.parse_or_empty(
                (partition and host.read(path + "/cpuset.cpus.exclusive")) or host.read(path + "/cpuset.cpus")
            )
            effective = cpulist.parse_or_empty(host.read(path + "/cpuset.cpus.effective")) if version == 2 else cpus
            if cpus and path != mount:
                entries.append(
                    Cpuset(
                        version, path, path[len(mount) :], cpus, partition, effective, outer if partition else parent
                    )
                )
            if has_cpus or path == mount:
                # Without the file the controller is disabled here, and therefore in all cgroups below.
                outer = effective if partition or path == mount else outer
                pending += [(path + "/" + name, effective, outer) for name in host.directories(path)]
    return entries


def shown(host: kernel_files.KernelFiles) -> "dict[str, str]":
    """Return what each cpuset has, also one without CPUs of its own, by its directory below the sysroot: its files'
    text. The root of each hierarchy is left out.
    """
    texts_by_path = {}
    for mount, _version in mounts(host):
        for path in _cgroups(host, mount):
            texts = [(name, host.read(f"{path}/{file}")) for name, file in _SHOWN] if path != mount else []
            parts = [f"{name} {text or 'none'}" for name, text in texts if text is not None]
            if parts:
                texts_by_path[path] = ", ".join(parts)
    return texts_by_path


def is_handed_down(host: kernel_files.KernelFiles) -> bool:
    """Return whether cgroups of cgroup v2 below the root have cpusets, even if none lists CPUs."""
    return any(
        "cpuset" in (host.read(mount + "/cgroup.subtree_control") or "").split()
        for mount, version in mounts(host)
        if version == 2
    )


def processes(host: kernel_files.KernelFiles, path: str) -> "list[int]":
    """Return the processes in the cgroup of a directory below the sysroot and in those below it,
    of at most ``MAX_CGROUPS`` cgroups.
    """
    return [
        int(pid)
        for cgroup in _cgroups(host, path)
        for pid in (host.read(cgroup + "/cgroup.procs") or "").split()
        if pid.isdigit()
    ]


def _cgroups(host: kernel_files.KernelFiles, path: str) -> "t.Iterator[str]":
    """Give the directory of a cgroup and of each below it, of at most ``MAX_CGROUPS``."""
    pending = [path]
    for _count in range(MAX_CGROUPS):
        if not pending:
            return
        cgroup = pending.pop()
        yield cgroup
        pending += [f"{cgroup}/{name}" for name in host.directories(cgroup)]


def effective_cpus(host: kernel_files.KernelFiles, pid: int, online: "frozenset[int]") -> "frozenset[int]":
    """Return the online CPUs of a task's cpuset, given its id and the CPUs online,
    which it has where it is in no cpuset.
    """
    return effective_of(host, host.read(f"proc/{pid}/cgroup") or "", online)


def effective_of(host: kernel_files.KernelFiles, membership: str, online: "frozenset[int]") -> "frozenset[int]":
    """Return the online CPUs of a task's cpuset.

    Args:
        host: the host
        membership: the text of its file ``cgroup`` in procfs
        online: result for a task that is in no cpuset
    """
    cgroups = [line.split(":", 2) for line in membership.splitlines()]
    for mount, version in mounts(host):
        name = "cpuset.cpus.effective" if version == 2 else "cpuset.cpus"
        for path in [
            entry[2]
            for entry in cgroups
            if len(entry) == 3 and (entry[1] == "" if version == 2 else "cpuset" in entry[1].split(","))
        ]:
            parts = path.strip("/").split("/")
            for length in range(len(parts), -1, -1):
                cpus = cpulist.parse_or_empty(host.read("/".join([mount, *parts[:length], name])))
                if cpus:
                    return cpus
    return online


def unit_mounts(host: kernel_files.KernelFiles) -> "list[str]":
    """Return the mount points below the sysroot of hierarchies in which systemd keeps its units."""
    return [mount for mount, _version in mounts(host, "name=systemd")]
