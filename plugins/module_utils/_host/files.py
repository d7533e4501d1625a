# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a host, or of a recorded tree of its files, below a `sysroot`: facts, configuration files, state files.

Reading never raises and never blocks: a missing file reads as None, an unreadable file reads as None and the reason is
in `HostFs.problems`. Reads are limited in size and decoded with replacement characters. Symbolic links that lead out of
a recorded tree are not followed. Writing replaces a whole file; to change a running kernel through its files use
`kernel_files.KernelFiles`.
"""

import contextlib
import errno
import os
import secrets
import stat

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import Protocol

SMALL = 1 << 20
"""Maximum size of files of sysfs and of configuration files, in bytes."""

LARGE = 64 << 20
"""Maximum size of /proc/cpuinfo (about 6 MB for 4096 CPUs) and of grub.cfg, in bytes."""

MAX_PROBLEMS = 50
"""Maximum number of problems kept, for trees with thousands of damaged files."""

_MISSING = (errno.ENOENT, errno.ENOTDIR)
_PAGE = 4096
_OPEN = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_FLAGS = os.O_RDONLY | _OPEN
_WRITE_FLAGS = os.O_WRONLY | _OPEN


class ReadableFiles(Protocol):
    """A host's files below its sysroot, as `HostFs` and `kernel_files.KernelFiles` read them."""

    def read(self, path: str) -> "str | None":
        """Return the text of a file, None when it cannot be read."""

    def of_root(self, path: str) -> "str | None":
        """Return the text of a file that a process names, None unless it is root's."""

    def names(self, path: str) -> "list[str]":
        """Return the names in a directory."""

    def is_setuid(self, path: str) -> bool:
        """Return whether a program runs as its owner."""


class HostFs:
    """Access to one host's files.

    Paths are relative to the sysroot and have no leading slash: ``sys/devices/system/cpu/present``.

    Args:
        sysroot: directory used as ``/``.

    Attributes:
        sysroot: its absolute path, without a trailing slash except for ``/`` itself.
        problems: sentences for the user, one for each file or directory that exists but could not be read or used.
    """

    def __init__(self, sysroot: str = "/") -> None:
        self.sysroot = os.path.abspath(sysroot)
        self.problems: list[str] = []
        self._prefix = self.sysroot.rstrip("/") + "/"
        self._root = os.path.realpath(self.sysroot)

    @property
    def is_host(self) -> bool:
        """True when the sysroot is ``/``: the files are those of the running system."""
        return self.sysroot == "/"

    @property
    def runs_systemd(self) -> bool:
        """True when the host was booted with systemd (sd_booted(3)): without it nothing reads units,
        timers or tmpfiles.d.
        """
        return self.status("run/systemd/system") is not None

    def path(self, path: str) -> str:
        """Return the full path of a file below the sysroot."""
        return self._prefix + path

    def note(self, problem: str) -> None:
        """Add a sentence for the user about something that could not be read or used to `problems`."""
        if problem in self.problems:
            return
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        elif len(self.problems) == MAX_PROBLEMS:
            self.problems.append(f"There are more problems of this kind; only the first {MAX_PROBLEMS} are listed.")

    def read(self, path: str, limit: int = SMALL) -> "str | None":
        """Return the text of a file, or None when it is missing or unreadable.

        Args:
            path: relative to the sysroot.
            limit: maximum size in bytes; a larger file is a problem and reads as None.
        """
        try:
            return self.text(path, limit)
        except (OSError, ValueError) as error:
            self._note_unreadable(path, error)
            return None

    def text(self, path: str, limit: int = SMALL) -> str:
        """Return the text of a file that has to be there.

        Args:
            path: relative to the sysroot.
            limit: maximum size in bytes.

        Raises:
            OSError: it is missing, unreadable, not a regular file, or larger than the limit.
        """
        data = self._bytes(path, limit + 1)
        if len(data) > limit:
            raise OSError(errno.EFBIG, f"it is larger than {limit} bytes")
        return data.decode("utf-8", "replace")

    def raw(self, path: str, limit: int = SMALL) -> "bytes | None":
        """Return the content of a file, or None when it is missing, unreadable, or larger than so many bytes."""
        try:
            data = self._bytes(path, limit + 1)
        except OSError:
            return None
        return data if len(data) <= limit else None

    def head(self, path: str, size: int) -> "str | None":
        """Return the beginning of a file as text, or None when it is missing or unreadable.

        Args:
            path: relative to the sysroot.
            size: maximum number of bytes to read.
        """
        try:
            return self._bytes(path, size).decode("utf-8", "replace")
        except (OSError, ValueError) as error:
            self._note_unreadable(path, error)
            return None

    def of_root(self, path: str) -> "str | None":
        """Return the text of a file that a process names, or None unless it is root's: a regular file that nobody else
        may write. In a recorded tree its owner is root. Anything else is not even opened, as a device may begin
        something then.

        Args:
            path: relative to the sysroot.
        """
        try:
            descriptor = self._find(path)
            try:
                root, status = os.stat(self._root), os.fstat(descriptor)
                others = 0o002 if status.st_gid in (0, root.st_gid) else 0o022
                if not stat.S_ISREG(status.st_mode) or status.st_uid not in (0, root.st_uid) or status.st_mode & others:
                    raise OSError(errno.EPERM, "it is not a regular file that only root may write")
                with open(f"/proc/self/fd/{descriptor}", "rb") as stream:
                    return stream.read(SMALL).decode("utf-8", "replace")
            finally:
                os.close(descriptor)
        except OSError as error:
            self._note_unreadable(path, error)
            return None

    def _note_unreadable(self, path: str, error: "OSError | ValueError") -> None:
        """Note the reason, unless the file is only missing."""
        if getattr(error, "errno", None) not in _MISSING:
            self.note(f"{self.path(path)} cannot be read: {getattr(error, 'strerror', None) or error}.")

    def _bytes(self, path: str, size: int) -> bytes:
        # This opens the file that was checked, even if its name now refers to another one.
        found = None if self.is_host else self._find(path)
        try:
            descriptor = os.open(self._prefix + path if found is None else f"/proc/self/fd/{found}", _FLAGS)
        finally:
            if found is not None:
                os.close(found)
        try:
            # A FIFO or a device could block or never end: only regular files are read.
            if found is None and not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "it is not a regular file")
            chunks = [os.read(descriptor, min(size, _PAGE))]
            # Only files of procfs return less than the requested size before their end.
            if len(chunks[0]) == _PAGE or path.startswith("proc/"):
                left = size - len(chunks[0])
                while chunks[-1] and left > 0:
                    chunks.append(os.read(descriptor, min(left, 65536)))
                    left -= len(chunks[-1])
            return b"".join(chunks)
        finally:
            os.close(descriptor)

    def _find(self, path: str, flags: int = 0) -> int:
        """Return an O_PATH descriptor of a file or directory.

        O_PATH does not open it, because opening a device can have side effects.

        The kernel follows the symbolic links in all parts of the path, and /proc then shows the resulting path.

        Args:
            path: relative to the sysroot.
            flags: further flags of open(2).

        Raises:
            OSError: the file does not exist, or a symbolic link leads out of the recorded tree.
        """
        descriptor = os.open(self._prefix + path, os.O_PATH | os.O_CLOEXEC | flags)
        try:
            if not self.is_host:
                place = os.readlink(f"/proc/self/fd/{descriptor}")
                if place != self._root and not place.startswith(self._root + "/"):
                    raise OSError(errno.EXDEV, "a symbolic link leads out of the recorded tree")
                if not stat.S_ISREG(os.fstat(descriptor).st_mode) and not flags & os.O_DIRECTORY:
                    raise OSError(errno.EINVAL, "it is not a regular file")
            return descriptor
        except BaseException:
            os.close(descriptor)
            raise

    def names(self, path: str) -> "list[str]":
        """Return the sorted names in a directory; none when it is missing or unreadable."""
        try:
            return sorted(self.listing(path))
        except OSError as error:
            if error.errno not in _MISSING:
                self.note(f"{self.path(path)} cannot be listed: {error.strerror}.")
            return []

    def listing(self, path: str) -> "list[str]":
        """Return the names in a directory; raise OSError when it is missing or unreadable."""
        descriptor = self._find(path, os.O_DIRECTORY)
        try:
            return os.listdir(f"/proc/self/fd/{descriptor}")
        finally:
            os.close(descriptor)

    def status(self, path: str) -> "os.stat_result | None":
        """Return the status of a file (of a symbolic link itself, not of its target),
        or None when it does not exist.
        """
        folder, name = os.path.split(path)
        try:
            descriptor = self._find(folder, os.O_DIRECTORY)
            try:
                return os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno == errno.EXDEV:
                self.note(f"{self.path(path)} cannot be accessed: {error.strerror}.")
            return None

    def is_setuid(self, path: str) -> bool:
        """Return whether a program has the set-user-ID or set-group-ID bit.

        The path may be a symbolic link, such as ``proc/PID/exe``.
        """
        try:
            return bool(os.stat(self.path(path)).st_mode & (stat.S_ISUID | stat.S_ISGID))
        except OSError:
            return False

    def write_refusal(self, path: str) -> "str | None":
        """Return why the kernel would refuse to write a file, or into a directory,
        as one sentence without a full stop; None where it would not.

        Nothing is written: the file is only opened. A missing one is not refused.

        Args:
            path: relative to the sysroot.
        """
        full = self.path(path)
        try:
            os.close(os.open(full, _WRITE_FLAGS))
        except IsADirectoryError:
            if os.access(full, os.W_OK, effective_ids=True):
                return None
            number = errno.EROFS if os.statvfs(full).f_flag & os.ST_RDONLY else errno.EACCES
        except OSError as error:
            number = error.errno or 0
        else:
            return None
        if number in _MISSING:
            return None
        if number == errno.EROFS:
            return (
                f"{full} is on a file system that is mounted read-only, as in a container: change the machine that runs"
                " the container, or mount it read-write"
            )
        if os.geteuid() != 0:
            return f"only root may write {full}: use become"
        return (
            f"{full} cannot be written although this is root ({errno.errorcode.get(number, number)}): a container or a"
            " security policy (SELinux, AppArmor) forbids it: change the machine that runs the container, or allow it"
            " in the policy"
        )

    def write(self, path: str, content: "str | bytes", mode: int = 0o644) -> None:
        """Write a regular file atomically and durably: flush a temporary file in the same directory, rename it,
        flush the directory.

        Missing parent directories are created. This cannot write files of sysfs or procfs, which cannot be replaced by
        a rename.

        Args:
            path: relative to the sysroot.
            content: the file's new content.
            mode: its permission bits.

        Raises:
            OSError: the file, which it names, is unchanged; or, when only flushing the directory failed, a power
                failure may undo the change.
        """
        try:
            self._write(path, content.encode("utf-8") if isinstance(content, str) else content, mode)
        except OSError as error:
            # The calls of the kernel that fail on a full disk know no name.
            raise OSError(error.errno, error.strerror, self.path(path)) from error

    def _write(self, path: str, content: "bytes", mode: int) -> None:
        folder, name = os.path.split(path)
        temporary = f".{name}.{secrets.token_hex(4)}"
        folder_descriptor = self._folder(folder)
        try:
            descriptor = os.open(
                temporary,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
                dir_fd=folder_descriptor,
            )
            try:
                with os.fdopen(descriptor, "wb") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fchmod(stream.fileno(), mode)
                    os.fsync(stream.fileno())
                os.rename(temporary, name, src_dir_fd=folder_descriptor, dst_dir_fd=folder_descriptor)
            except BaseException:
                os.unlink(temporary, dir_fd=folder_descriptor)
                raise
            durable.sync(folder_descriptor)
        finally:
            os.close(folder_descriptor)

    def _folder(self, path: str) -> int:
        """Return a descriptor of a directory, which is created with its parents when it is missing.

        Raises:
            OSError: it could not be created or opened.
        """
        if not path:
            durable.make_folders(self.sysroot, 0o755)
        try:
            descriptor = self._find(path, os.O_DIRECTORY)
        except FileNotFoundError:
            above = self._folder(os.path.dirname(path))
            try:
                # Another process may have just created it.
                with contextlib.suppress(FileExistsError):
                    os.mkdir(os.path.basename(path), 0o755, dir_fd=above)
                durable.sync(above)
            finally:
                os.close(above)
            descriptor = self._find(path, os.O_DIRECTORY)
        try:
            return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        finally:
            os.close(descriptor)
