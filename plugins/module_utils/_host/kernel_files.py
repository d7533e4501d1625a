# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A running kernel through its files in sysfs, procfs and the cgroup file systems: what a change of a host reads,
writes and reads back.

To gather facts, and for configuration files and state files, use `files.HostFs`: it works on a recorded tree too,
collects what could not be read for the user, and replaces whole files. To change a kernel, use `KernelFiles`: it writes
into existing files with one system call, and a file that is missing or unreadable is not worth a message, because tasks
and cgroups come and go.
"""

import os
import stat
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files, locks


class KernelFiles:
    """A running kernel's files, its users, and the call that sets a task's CPU mask.

    Paths are relative to the sysroot. A subclass may simulate a kernel.

    Args:
        sysroot: directory used as ``/``.

    Attributes:
        sysroot: its absolute path.
    """

    def __init__(self, sysroot: str = "/") -> None:
        # Its own: nobody reads the problems that it collects.
        self._files = files.HostFs(sysroot)
        self.sysroot = self._files.sysroot

    @property
    def is_host(self) -> bool:
        """True when these are the files of the running system."""
        return self._files.is_host

    def read(self, path: str) -> "str | None":
        """Return the stripped text of a file, of at most `files.SMALL` bytes,
        or None when it is missing or unreadable.
        """
        text = self._files.head(path, files.SMALL)
        return None if text is None else text.strip()

    def of_root(self, path: str) -> "str | None":
        """Return the text of a file that a process names, None unless it is root's, as `files.HostFs.of_root` does."""
        return self._files.of_root(path)

    def write(self, path: str, text: str) -> None:
        """Write with one system call, because the kernel treats each call as a separate request.

        Raises:
            OSError: when the kernel rejects the write.
        """
        handle = os.open(self._files.path(path), os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(handle, (text + "\n").encode("ascii"))
        finally:
            os.close(handle)

    def write_refusal(self, path: str) -> "str | None":
        """Return why the kernel would refuse to write a file, as `files.HostFs.write_refusal` does."""
        return self._files.write_refusal(path)

    def make_directory(self, path: str) -> None:
        """Make a directory, which is a cgroup in a cgroup file system.

        Raises:
            OSError: when the kernel refuses it.
        """
        os.mkdir(self._files.path(path), 0o755)

    def remove_directory(self, path: str) -> None:
        """Remove a directory, which is a cgroup without processes in a cgroup file system.

        Raises:
            OSError: when the kernel refuses it.
        """
        os.rmdir(self._files.path(path))

    def exists(self, path: str) -> bool:
        """Return whether the file exists."""
        return self._files.status(path) is not None

    def names(self, path: str) -> "list[str]":
        """Return the sorted names in a directory; empty when it is missing or unreadable."""
        return self._files.names(path)

    def directories(self, path: str) -> "list[str]":
        """Return the sorted names of the directories in a directory; empty when it is missing or unreadable."""
        statuses = {name: self._files.status(f"{path}/{name}") for name in self.names(path)}
        return [name for name, status in statuses.items() if status is not None and stat.S_ISDIR(status.st_mode)]

    def set_affinity(self, pid: int, cpus: "t.Iterable[int]") -> None:
        """Set the CPU mask of a task.

        Raises:
            OSError: when the kernel refuses the mask.
        """
        os.sched_setaffinity(pid, cpus)

    def user_name(self, uid: int) -> str:
        """Return the name of a user of this host, or the id in digits if it has no name."""
        return (locks.user_name(uid) if self.is_host else None) or str(uid)

    def has_user(self, name: str) -> bool:
        """Return whether this host knows a user of this name.

        What is known of the users of recorded files is their ids.
        """
        return self.is_host and locks.has_user(name)

    def user_label(self, uid: int) -> str:
        """Return a user's name and id for a message: ``alice, uid 1001``, or the id alone if it has no name."""
        name = self.user_name(uid)
        return name if name == str(uid) else f"{name}, uid {uid}"

    def owner(self, path: str) -> int:
        """Return the user id of a file's owner; 0 (root) if there is no such file."""
        status = self._files.status(path)
        return 0 if status is None else status.st_uid

    def is_setuid(self, path: str) -> bool:
        """Return whether a program has the set-user-ID or set-group-ID bit, as `files.HostFs.is_setuid` does."""
        return self._files.is_setuid(path)
