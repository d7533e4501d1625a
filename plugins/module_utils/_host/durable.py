# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""File operations whose results survive a power failure.

fsync(2) on a file flushes its content, not its name: the name is part of the directory, which must be flushed as well.
Until then a power failure may undo a rename, a new file or a removal that has already been reported as done.
"""

import contextlib
import errno
import fcntl
import os
import re
import select
import shutil
import signal
import typing as t

# linux/fs.h: _IOWR('X', 119, int) and _IOWR('X', 120, int), on the architectures whose _IOC encoding is the generic
# one, and on powerpc.
_FREEZE, _THAW = 0xC0045877, 0xC0045878
# Freezing writes what is left of the file system to disk. After this time a process of its own thaws it whatever
# happens.
_MAX_FROZEN_SECONDS = 60
_FREEZING, _DONE = b"f", b"t"
_KEPT_SUFFIX = "-kept"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def is_for_want_of_room(error: "BaseException | None") -> bool:
    """Return whether a write failed because a disk is full or read-only, also as the cause of another error."""
    return error is not None and (
        getattr(error, "errno", None) in _NO_ROOM or is_for_want_of_room(error.__cause__ or error.__context__)
    )


def sync(descriptor: int) -> None:
    """Flush an open file or directory to disk.

    Raises:
        OSError: it could not be flushed.
    """
    try:
        os.fsync(descriptor)
    except OSError as error:
        # fsync(2): the file system does not support flushing this file.
        if error.errno != errno.EINVAL:
            raise


def flush(path: str) -> None:
    """Flush a file's content to disk.

    Raises:
        OSError: it could not be flushed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_names(folder: str) -> None:
    """Flush the names in a directory to disk.

    Raises:
        OSError: they could not be flushed.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def replace(new: str, target: str) -> None:
    """Rename a flushed file over another one in the same directory, and flush the directory.

    Args:
        new: path of the flushed file.
        target: path of the file to replace.

    Raises:
        OSError: it could not be renamed, or the directory could not be flushed.
    """
    os.replace(new, target)
    sync_names(os.path.dirname(target))


def replace_for_boot_loaders(new: str, target: str) -> None:
    """Rename a flushed file over another one in the same directory, so that at any moment a reader that replays no
    journal finds one of the two, whole.

    Such a reader can see the directory as it was, and the file that it names as deleted and empty: seen with GRUB and
    ext4 after a power cut. Therefore the new file is settled before it gets the name, and the old one is deleted only
    when the name is settled.

    Args:
        new: path of the flushed file.
        target: path of the file to replace.

    Raises:
        OSError: it could not be renamed, or the directory could not be flushed.
    """
    folder = os.path.dirname(target)
    kept = new + _KEPT_SUFFIX
    settle(folder)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(kept)
    # There is nothing to keep, or the file system has no second names (FAT), and no journal either.
    with contextlib.suppress(OSError):
        os.link(target, kept)
    try:
        replace(new, target)
        settle(folder)
    finally:
        # One that is left is removed by the next call.
        with contextlib.suppress(OSError):
            unlink(kept)


class Kept:
    """The present versions of files, which come back whatever has become of the files since,
    without any room on the disk.

    Each has a second name beside the first. What becomes of the first is a file of its own, if it is replaced as a
    whole.

    Args:
        paths: absolute paths; there may be no such file.
    """

    def __init__(self, paths: "t.Iterable[str]") -> None:
        self._paths = list(paths)
        self._all = tuple(self._paths)

    def keep(self) -> None:
        """Keep the files as they are now; raise OSError, and keep none, when one cannot be kept.

        What a process that was killed has left of its work on them is removed.
        """
        remove_unfinished(self._all)
        try:
            for path in self._paths:
                with contextlib.suppress(FileNotFoundError):
                    _keep(path)
        except OSError:
            self.forget()
            self._paths.clear()
            raise

    def put_back(self) -> None:
        """Make the files what they were; raise OSError when that is not possible, and it can be tried again."""
        while self._paths:
            path = self._paths[-1]
            try:
                os.rename(_kept(path), path)
            except FileNotFoundError:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            self._paths.pop()
            # Where both are names of one file rename(2) does nothing. Without a directory nothing is left to flush.
            with contextlib.suppress(OSError):
                os.unlink(_kept(path))
            with contextlib.suppress(OSError):
                sync_names(os.path.dirname(path))
        remove_unfinished(self._all)

    def forget(self) -> None:
        """Remove the second names."""
        for path in self._all:
            with contextlib.suppress(OSError):
                os.unlink(_kept(path))


def remove_unfinished(paths: "t.Collection[str]") -> None:
    """Remove what a process that was killed has left beside these files while it wrote them:
    nobody else may write them now.

    Args:
        paths: absolute paths of files.
    """
    for folder in sorted({os.path.dirname(path) for path in paths}):
        names = "|".join(re.escape(os.path.basename(path)) for path in paths if os.path.dirname(path) == folder)
        unfinished = re.compile(rf"\.({names})\.([0-9a-f]{{8}}|threadwise-smt-before)")
        with contextlib.suppress(OSError):
            for name in filter(unfinished.fullmatch, os.listdir(folder)):
                os.unlink(os.path.join(folder, name))


def _keep(path: str) -> None:
    try:
        os.link(path, _kept(path), follow_symlinks=False)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
            raise type(error)(error.errno, error.strerror, path) from error
        # A file system without second names.
        shutil.copy2(path, _kept(path), follow_symlinks=False)


def _kept(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.threadwise-smt-before")


@contextlib.contextmanager
def room(sizes: "t.Mapping[str, int]") -> "t.Iterator[t.Callable[[], None]]":
    """Take room on the disk for what is written later, so that a lack of it is found before anything is changed.

    The room is that of files without a name (O_TMPFILE of open(2)): nothing is left of them when the process dies. A
    file system without them keeps none.

    Args:
        sizes: absolute path of a file that is written later -> bytes.

    Yields:
        A function that gives the room back, for what is written now.

    Raises:
        OSError: there is not so much room.
    """
    taken: list[int] = []

    def give_back() -> None:
        while taken:
            os.close(taken.pop())

    try:
        for path, size in sizes.items():
            folder = os.path.dirname(path)
            while not os.path.isdir(folder):
                folder = os.path.dirname(folder)
            try:
                taken.append(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
            except OSError:
                continue
            try:
                os.posix_fallocate(taken[-1], 0, size)
            except OSError as error:
                raise OSError(error.errno, f"{error.strerror} ({size} bytes are needed)", path) from error
        yield give_back
    finally:
        give_back()


def unlink(path: str) -> None:
    """Remove a file and flush its directory.

    Raises:
        OSError: it could not be removed, or the directory could not be flushed.
    """
    os.unlink(path)
    sync_names(os.path.dirname(path))


def make_folders(path: str, mode: int) -> None:
    """Create a directory and its missing parents, and flush them.

    Args:
        path: absolute path.
        mode: permission bits of each new directory.

    Raises:
        OSError: a directory could not be created or flushed.
    """
    if os.path.isdir(path):
        return
    make_folders(os.path.dirname(path), mode)
    # Another process may have just created it; if it is not a directory, the next call fails.
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
    sync_names(os.path.dirname(path))


def settle(path: str) -> None:
    """Write a file's name, size and place to where they belong on the disk,
    for readers that do not replay the journal of a file system.

    After fsync(2) they may be in the journal alone: the kernel finds them there after a power failure, but GRUB reads
    ext4 and XFS without it (grub-core/fs, "We do not do a journal replay"). Freezing and thawing the file system
    empties the journal. Where that is not possible, nothing is done.

    Args:
        path: the file, or its directory.
    """
    # What is dirty is written before, so that others wait for the frozen file system as short as possible.
    os.sync()
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    watch_read, watch_write = os.pipe()
    watcher = os.fork()
    if watcher == 0:
        _thaw_in_time(descriptor, watch_read, watch_write)
    try:
        os.write(watch_write, _FREEZING)
        # Not root, no such operation (FAT, tmpfs), or frozen by somebody else: thawing it would undo what is theirs.
        with contextlib.suppress(OSError):
            fcntl.ioctl(descriptor, _FREEZE, 0)
            fcntl.ioctl(descriptor, _THAW, 0)
        os.write(watch_write, _DONE)
    finally:
        for end in (watch_read, watch_write, descriptor):
            os.close(end)
        os.waitpid(watcher, 0)


def _thaw_in_time(descriptor: int, watch_read: int, watch_write: int) -> t.NoReturn:
    """Thaw a file system whose freezing process was killed: a frozen one stops all who write to it, for ever."""
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        os.close(watch_write)
        status = b""
        while status != _DONE:
            late = not select.select([watch_read], [], [], _MAX_FROZEN_SECONDS)[0]
            heard = b"" if late else os.read(watch_read, 1)
            if not heard and status == _FREEZING:
                # It is not frozen yet, or not any more.
                with contextlib.suppress(OSError):
                    fcntl.ioctl(descriptor, _THAW, 0)
            if not heard and not late:
                break
            status = heard or status
    finally:
        os._exit(0)
