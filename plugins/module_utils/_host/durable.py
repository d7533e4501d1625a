# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""File operations whose results survive a power failure.

fsync(2) on a file flushes its content, not its name: the name is part of the directory, which must be flushed as well. Until then a power failure may undo
a rename, a new file or a removal that has already been reported as done.

This file is copied to a host as part of the rollback program: it imports nothing from the collection.
"""

import contextlib
import errno
import os


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
