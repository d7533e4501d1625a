# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a host, or of a recorded tree of one, below a `sysroot`.

Reading never raises and never blocks: a file that is missing is None, one that is there and cannot be read is None with the reason in
`HostFs.problems`. What is read is bounded in size and decoded with replacement characters. No link in a recorded tree, of a file or of a directory, leads out
of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable

SMALL = 1 << 20
"""Upper bound for files of sysfs and for configuration files, in bytes."""

LARGE = 64 << 20
"""Upper bound for /proc/cpuinfo (4096 CPUs take about 6 MB) and grub.cfg, in bytes."""

MAX_PROBLEMS = 50
"""Reasons that are kept in full; a tree with thousands of damaged files is told once, not thousands of times."""

_MISSING = (errno.ENOENT, errno.ENOTDIR)
_PAGE = 4096
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class HostFs:
    """Access to one host's files. Paths are relative to the sysroot and have no leading slash: ``sys/devices/system/cpu/present``.

    Args:
        sysroot: directory that stands for ``/``.

    Attributes:
        sysroot: the absolute path of it, without a trailing slash except for ``/`` itself.
        problems: list of sentences (str), one for each thing that was there and could not be read.
    """

    def __init__(self, sysroot="/"):
        self.sysroot = os.path.abspath(sysroot)
        self.problems = []
        self._prefix = self.sysroot.rstrip("/") + "/"
        self._root = os.path.realpath(self.sysroot)

    @property
    def is_host(self):
        """True when the sysroot is ``/``: the files are those of the running system."""
        return self.sysroot == "/"

    def path(self, path):
        """The full path (str) of a file below the sysroot."""
        return self._prefix + path

    def note(self, problem):
        """Keep a sentence for the user about something that could not be read or believed."""
        if problem in self.problems:
            return
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        elif len(self.problems) == MAX_PROBLEMS:
            self.problems.append(f"There are more problems of this kind; only the first {MAX_PROBLEMS} are listed.")

    def read(self, path, limit=SMALL):
        """The text of a file, or None when it is missing or unreadable.

        Args:
            limit: size in bytes above which the file is not believed: the answer is None and a problem.
        """
        data = self._bytes(path, limit + 1)
        if data is None:
            return None
        if len(data) > limit:
            self.note(f"{self.path(path)} is larger than {limit} bytes and was left out.")
            return None
        return data.decode("utf-8", "replace")

    def head(self, path, size):
        """The first `size` bytes of a file as text, or None when it is missing or unreadable."""
        data = self._bytes(path, size)
        return None if data is None else data.decode("utf-8", "replace")

    def _bytes(self, path, size):
        try:
            descriptor = self._open(path)
            try:
                # A FIFO or a device below a hostile sysroot could block for ever or never end: only regular files are read.
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(errno.EINVAL, "it is not a regular file")
                data = os.read(descriptor, min(size, _PAGE))
                # Only files of procfs come in portions that are shorter than what was asked for.
                if len(data) == _PAGE or (data and path.startswith("proc/")):
                    data = _rest(descriptor, data, size)
                return data
            finally:
                os.close(descriptor)
        except (OSError, ValueError) as error:
            if getattr(error, "errno", None) not in _MISSING:
                self.note(f"{self.path(path)} cannot be read: {getattr(error, 'strerror', None) or error}.")
            return None

    def _open(self, path):
        """A descriptor of a file to read from."""
        if self.is_host:
            return os.open(self.path(path), _FLAGS)
        found = self._find(path)
        try:
            # What is opened is what was looked at, whatever becomes of its name.
            return os.open(f"/proc/self/fd/{found}", _FLAGS)
        finally:
            os.close(found)

    def _find(self, path, flags=0):
        """A descriptor (O_PATH: nothing is opened, which for a device can have an effect) of what a path names.

        The kernel follows the links, of each part of the path, and then says where that led to.

        Raises:
            OSError: there is no such file, or a link leads out of the recorded tree.
        """
        found = os.open(self._prefix + path, os.O_PATH | os.O_CLOEXEC | flags)
        try:
            if not self.is_host:
                place = os.readlink(f"/proc/self/fd/{found}")
                if place != self._root and not place.startswith(self._root + "/"):
                    raise OSError(errno.EXDEV, "a symbolic link leads out of the recorded tree")
                if not stat.S_ISREG(os.fstat(found).st_mode) and not flags & os.O_DIRECTORY:
                    raise OSError(errno.EINVAL, "it is not a regular file")
            return found
        except BaseException:
            os.close(found)
            raise

    def names(self, path):
        """The names (list of str, sorted) in a directory; empty when it is missing or unreadable."""
        try:
            found = self._find(path, os.O_DIRECTORY)
            try:
                return sorted(os.listdir(f"/proc/self/fd/{found}"))
            finally:
                os.close(found)
        except OSError as error:
            if error.errno not in _MISSING:
                self.note(f"{self.path(path)} cannot be listed: {error.strerror}.")
            return []

    def status(self, path):
        """`os.stat_result` of what the path names (a symbolic link itself, not its target), or None when there is nothing."""
        folder, name = os.path.split(path)
        try:
            found = self._find(folder, os.O_DIRECTORY)
            try:
                return os.stat(name, dir_fd=found, follow_symlinks=False)
            finally:
                os.close(found)
        except OSError as error:
            if error.errno == errno.EXDEV:
                self.note(f"{self.path(path)} cannot be looked at: {error.strerror}.")
            return None

    def write(self, path, text, mode=0o644):
        """Put an ordinary file in place whole or not at all, for good: a temporary file in the same directory, flushed and renamed, and the directory flushed.

        Directories on the way are made. Not for files of the kernel, which cannot be renamed over.

        Raises:
            OSError: the file is then as it was; or, where only its directory could not be flushed, it may be so again after a power cut.
        """
        folder, name = os.path.split(path)
        temporary = f".{name}.{secrets.token_hex(4)}"
        found = self._folder(folder)
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=found)
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                    stream.write(text)
                    stream.flush()
                    os.fchmod(stream.fileno(), mode)
                    os.fsync(stream.fileno())
                os.rename(temporary, name, src_dir_fd=found, dst_dir_fd=found)
            except BaseException:
                os.unlink(temporary, dir_fd=found)
                raise
            durable.sync(found)
        finally:
            os.close(found)

    def _folder(self, path):
        """A descriptor of a directory, which is made, with those on the way to it, where it is missing. Raises OSError."""
        if not path:
            durable.make_folders(self.sysroot, 0o755)
        try:
            found = self._find(path, os.O_DIRECTORY)
        except FileNotFoundError:
            above = self._folder(os.path.dirname(path))
            try:
                # Another process may have just made it.
                with contextlib.suppress(FileExistsError):
                    os.mkdir(os.path.basename(path), 0o755, dir_fd=above)
                durable.sync(above)
            finally:
                os.close(above)
            found = self._find(path, os.O_DIRECTORY)
        try:
            return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(found)


def _rest(descriptor, data, size):
    chunks = [data]
    left = size - len(data)
    while left > 0:
        chunk = os.read(descriptor, min(left, 65536))
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)
