# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories on the controller that others may be able to write to: files in them are opened by the directory's
descriptor, and never through a link.

Whoever may write to a directory can give a name in it to something else at any moment. A link would have this user cut
off or extend a file of the other's choice, and a FIFO would be waited for. So the last part of a path is not followed,
what is checked is the open file and not its name, and it has to be a regular file. Source: open(2), O_NOFOLLOW and
O_NONBLOCK; CWE-59. All functions raise OSError, whose ``strerror`` is a sentence for the user.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import time
import typing as t
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable

MIB = 1024 * 1024
# Bytes compared or copied at a time.
PIECE = MIB
# Seconds between two attempts to take a lock.
LOCK_PAUSE = 0.05
_OPEN = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# Characters of a file's name in that of its temporary file.
_NAMED = 40


class Folder:
    """An open directory.

    Args:
        descriptor: of the directory; whoever opened it closes it.
        path: for messages.
    """

    def __init__(self, descriptor: int, path: Path) -> None:
        self._descriptor = descriptor
        self.path = path

    @contextlib.contextmanager
    def below(self, name: str, make: bool = False) -> t.Iterator[Folder]:
        """Open a directory in this one; a link is refused.

        Args:
            name: of the directory.
            make: create it if it is missing.
        """
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._descriptor)
                durable.sync(self._descriptor)
        descriptor = self._open(name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield Folder(descriptor, self.path / name)
        finally:
            os.close(descriptor)

    def names(self) -> list[str]:
        """Return the names in the directory, sorted."""
        return sorted(os.listdir(self._descriptor))

    def is_directory(self, name: str) -> bool:
        """Return whether a name is that of a directory, and of no link to one."""
        try:
            return stat.S_ISDIR(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode)
        except OSError:
            return False

    def has(self, name: str) -> bool:
        """Return whether the directory has this name, whatever it is."""
        try:
            os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a file.

        Args:
            name: of the file.
            most: maximum size in bytes; a larger file is an error before it takes memory.
        """
        with self._file(name, os.O_RDONLY) as descriptor:
            return _content(descriptor, most)

    def append(self, name: str, line: bytes, most: int) -> None:
        """Add a line to a file and flush it, or leave the file as it was;
        a last line that was not written whole is taken away first.

        Args:
            name: of the file, which is created if it is missing.
            line: with its end.
            most: maximum size of the file in bytes.
        """
        with self._file(name, os.O_RDWR | os.O_CREAT) as descriptor:
            if os.fstat(descriptor).st_nlink > 1:
                raise OSError(errno.EMLINK, "it has another name too (a hard link)")
            whole = _content(descriptor, most).rfind(b"\n") + 1
            if whole + len(line) > most:
                raise OSError(errno.EFBIG, f"it would be larger than {most / MIB:g} MiB")
            os.ftruncate(descriptor, whole)
            try:
                written = 0
                while written < len(line):
                    written += os.pwrite(descriptor, line[written:], whole + written)
                os.fsync(descriptor)
            except BaseException:
                # What follows a part of a line would be lost with it.
                os.ftruncate(descriptor, whole)
                raise
        if not whole:
            durable.sync(self._descriptor)

    def holds(self, name: str, source: t.IO[bytes]) -> bool:
        """Return whether a file has exactly the content of a stream."""
        try:
            with self._file(name, os.O_RDONLY) as descriptor, open(descriptor, "rb", closefd=False) as stream:
                if os.fstat(descriptor).st_size != source.seek(0, os.SEEK_END):
                    return False
                source.seek(0)
                return all(piece == source.read(PIECE) for piece in iter(lambda: stream.read(PIECE), b""))
        except OSError:
            return False

    def write(self, name: str, source: t.IO[bytes]) -> None:
        """Write the whole content of a stream to a file atomically, and flush it; a link of that name is replaced.

        Args:
            name: of the file.
            source: a seekable stream, read from its beginning.
        """
        temporary = f".{name[:_NAMED]}.{secrets.token_hex(8)}"
        descriptor = self._open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                source.seek(0)
                shutil.copyfileobj(source, stream, PIECE)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, name, src_dir_fd=self._descriptor, dst_dir_fd=self._descriptor)
            # Without this a new name may be lost although the file was flushed (fsync(2)).
            durable.sync(self._descriptor)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=self._descriptor)
            raise

    @contextlib.contextmanager
    def locked(self, name: str, seconds: float) -> t.Iterator[None]:
        """Hold a file's lock (flock(2)) until the block ends.

        Args:
            name: of the file, which is created for this user alone: whoever can open it can hold its lock.
            seconds: how long to wait for another holder.
        """
        with self._file(name, os.O_RDWR | os.O_CREAT, 0o600) as descriptor:
            end = time.monotonic() + seconds
            while not _is_taken(descriptor):
                if time.monotonic() >= end:
                    raise OSError(errno.EAGAIN, f"another process has held it for {seconds:g} s")
                time.sleep(LOCK_PAUSE)
            yield

    @contextlib.contextmanager
    def _file(self, name: str, flags: int, mode: int = 0o666) -> t.Iterator[int]:
        """Open a regular file."""
        descriptor = self._open(name, flags, mode)
        try:
            _see_that_it_is_a_file(descriptor)
            yield descriptor
        finally:
            os.close(descriptor)

    def _open(self, name: str, flags: int, mode: int = 0o666) -> int:
        try:
            return os.open(name, flags | _OPEN, mode, dir_fd=self._descriptor)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and self._is_link(name):
                raise OSError(errno.ELOOP, "it is a link, and links are not followed here") from error
            raise

    def _is_link(self, name: str) -> bool:
        try:
            return stat.S_ISLNK(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode)
        except OSError:
            return False


@contextlib.contextmanager
def opened(path: str | os.PathLike[str], make: bool = False) -> t.Iterator[Folder]:
    """Open a directory by a path that the user wrote: links in it are the user's own, and followed.

    Args:
        path: of the directory.
        make: create it and its parents if they are missing.
    """
    if make:
        os.makedirs(path, exist_ok=True)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield Folder(descriptor, Path(path))
    finally:
        os.close(descriptor)


def read(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the content of a file by a path that the user wrote, also through links.

    Args:
        path: of the file.
        most: maximum size in bytes; a larger file is an error before it takes memory.
    """
    descriptor = os.open(path, os.O_RDONLY | _OPEN & ~os.O_NOFOLLOW)
    try:
        _see_that_it_is_a_file(descriptor)
        return _content(descriptor, most)
    finally:
        os.close(descriptor)


def _see_that_it_is_a_file(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def _content(descriptor: int, most: int) -> bytes:
    content = b""
    size = os.fstat(descriptor).st_size
    if size <= most:
        with open(descriptor, "rb", closefd=False) as stream:
            content = stream.read(most + 1)
    if max(size, len(content)) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most / MIB:g} MiB")
    return content


def _is_taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
