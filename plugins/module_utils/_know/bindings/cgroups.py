# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cgroup v2 hierarchy of a host with the cpuset controller: where a process is, which CPUs a cgroup has,
and handing the controller down.

Source: Documentation/admin-guide/cgroup-v2.rst. Paths of cgroups are as in /proc/PID/cgroup: ``/`` is the root.
"""

import typing as t

from ..._host import cpulist, kernel_files
from . import cpusets

CONTROLLER = "cpuset"

_ENABLED = "cgroup.subtree_control"


class Cgroups:
    """The cgroup v2 hierarchy of a host.

    Args:
        files: the host's files.

    Attributes:
        files: as above.
        mount: the mount point below the sysroot, or None where there is no cgroup v2.
    """

    def __init__(self, files: kernel_files.KernelFiles) -> None:
        self.files = files
        self.mount = next((mount for mount, version in cpusets.mounts(files) if version == 2), None)

    def why_no_cpusets(self) -> "str | None":
        """Return why this host has no cpusets of cgroup v2, or None where it has."""
        if self.mount is None:
            return "this host has no cgroup v2"
        if CONTROLLER not in (self.read("/", "cgroup.controllers") or "").split():
            return "the cgroup v2 of this host has no cpuset controller (cgroup v1 has it, or it is off)"
        return None

    def path(self, cgroup: str, name: str = "") -> str:
        """Return the path of a cgroup, or of a file in it, below the sysroot."""
        return "/".join(filter(None, (self.mount, cgroup.strip("/"), name)))

    def read(self, cgroup: str, name: str) -> "str | None":
        """Return the stripped text of a file of a cgroup, or None."""
        return self.files.read(self.path(cgroup, name))

    def exists(self, cgroup: str) -> bool:
        """Return whether there is such a cgroup."""
        return self.files.exists(self.path(cgroup))

    def of_process(self, pid: "int | str") -> "str | None":
        """Return the cgroup of a process, or None when it has ended."""
        lines = (self.files.read(f"proc/{pid}/cgroup") or "").splitlines()
        return next((line[len("0::") :] for line in lines if line.startswith("0::/")), None)

    def effective(self, cgroup: str) -> "frozenset[int]":
        """Return the CPUs that processes of a cgroup may run on:
        those of the nearest cgroup above it that has the controller, if it has not.
        """
        for above in [cgroup, *ancestors(cgroup)]:
            cpus = cpulist.parse_or_empty(self.read(above, "cpuset.cpus.effective"))
            if cpus:
                return cpus
        return frozenset()

    def processes(self, cgroup: str) -> "list[int]":
        """Return the processes in a cgroup and in those below it."""
        return cpusets.processes(self.files, self.path(cgroup))

    def handed_down(self, cgroup: str) -> bool:
        """Return whether a cgroup hands the controller down to its children."""
        return CONTROLLER in (self.read(cgroup, _ENABLED) or "").split()

    def hand_down(self, cgroup: str) -> None:
        """Make a cgroup hand the controller down to its children.

        Raises:
            OSError: the kernel refuses it.
        """
        if not self.handed_down(cgroup):
            self.files.write(self.path(cgroup, _ENABLED), "+" + CONTROLLER)

    def take_back(self, cgroups: "t.Iterable[str]") -> "list[str]":
        """Make cgroups no longer hand the controller down, except where a child uses it by now.

        Args:
            cgroups: the lower ones first.

        Returns:
            What the kernel refused, one sentence each.
        """
        refused = []
        for cgroup in cgroups:
            children = [f"{cgroup.rstrip('/')}/{name}" for name in self.files.directories(self.path(cgroup))]
            if not self.handed_down(cgroup) or any(
                self.read(child, "cpuset.cpus") or self.handed_down(child) for child in children
            ):
                continue
            try:
                self.files.write(self.path(cgroup, _ENABLED), "-" + CONTROLLER)
            except OSError as error:
                refused.append(
                    f"the cpuset controller below /{self.path(cgroup)} could not be switched off again:"
                    f" {error.strerror}"
                )
        return refused


def ancestors(cgroup: str) -> "list[str]":
    """Return the cgroups above one, the nearest first; the root has none."""
    parts = cgroup.strip("/").split("/")
    return ["/" + "/".join(parts[:length]) for length in range(len(parts) - 1, -1, -1)] if cgroup.strip("/") else []
