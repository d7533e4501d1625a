# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a running kernel: sysfs, procfs and the cgroup file systems, read and written in single system calls.

This file is copied to a host as part of the rollback program: it imports only files that are copied with it, by relative imports.
"""

from __future__ import annotations

import os
import stat
import typing as t

from . import cpulist, locks

LONGEST_FILE = 1 << 20
"""Size in bytes up to which a file is read."""


class SysFiles:
    """The files of one host below ``sysroot``; paths are relative to it. A subclass may simulate a kernel.

    Attributes:
        sysroot: root of the host's files, ``/`` on a running host
    """

    def __init__(self, sysroot: str = "/") -> None:
        self.sysroot = sysroot

    def _full(self, path: str) -> str:
        return os.path.join(self.sysroot, path)

    def read(self, path: str) -> str | None:
        """Return the stripped text of at most ``LONGEST_FILE`` bytes, or None when the file is missing or unreadable."""
        try:
            with open(self._full(path), "rb") as handle:
                return handle.read(LONGEST_FILE).decode("ascii", errors="replace").strip()
        except OSError:
            return None

    def write(self, path: str, text: str) -> None:
        """Write with one system call, because the kernel treats each call as a separate request.

        Raises:
            OSError: when the kernel rejects the write.
        """
        handle = os.open(self._full(path), os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(handle, (text + "\n").encode("ascii"))
        finally:
            os.close(handle)

    def exists(self, path: str) -> bool:
        """Return whether the file exists."""
        return os.path.exists(self._full(path))


class Host(SysFiles):
    """A host's files, its users, and the system call that sets a task's CPU mask."""

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory; empty when it is missing or unreadable."""
        try:
            return sorted(os.listdir(self._full(path)))
        except OSError:
            return []

    def directories(self, path: str) -> list[str]:
        """Return the sorted names of the directories in a directory; empty when it is missing or unreadable."""
        return [name for name in self.names(path) if os.path.isdir(os.path.join(self._full(path), name))]

    def set_affinity(self, pid: int, cpus: t.Iterable[int]) -> None:
        """Set the CPU mask of a task.

        Raises:
            OSError: when the kernel refuses the mask.
        """
        os.sched_setaffinity(pid, cpus)

    def user_name(self, uid: int) -> str:
        """Return the name of a user of this host, or the id in digits if it has no name."""
        return (locks.user_name(uid) if self.is_live() else None) or str(uid)

    def user_label(self, uid: int) -> str:
        """Return a user's name and id for a message: ``alice, uid 1001``, or the id alone if it has no name."""
        name = self.user_name(uid)
        return name if name == str(uid) else f"{name}, uid {uid}"

    def owner(self, path: str) -> int:
        """Return the user id of a file's owner; 0 (root) if there is no such file."""
        try:
            return os.stat(self._full(path)).st_uid
        except OSError:
            return 0

    def is_setuid(self, path: str) -> bool:
        """Return whether a program has the set-user-ID or set-group-ID bit."""
        try:
            return bool(os.stat(self._full(path)).st_mode & (stat.S_ISUID | stat.S_ISGID))
        except OSError:
            return False

    def is_live(self) -> bool:
        """Return whether these are the files of the running system."""
        return os.path.realpath(self.sysroot) == "/"


def parse_cpus(text: str | None) -> frozenset[int]:
    """Return the CPUs of a list from a file; empty when the text is missing or not a valid CPU list."""
    try:
        return frozenset(cpulist.parse(text or ""))
    except cpulist.CpuListError:
        return frozenset()
