# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names of files that outlive a power cut.

fsync(2) has a file's content on the disk, not its name: that is part of its directory, which has to be flushed as well. Until then a rename, a new file or a
removal may be undone by a power cut, although whoever made it was told that all is well.
"""

from __future__ import annotations

import contextlib
import errno
import os


def sync(descriptor):
    """Flush an open file or directory. Raises OSError."""
    try:
        os.fsync(descriptor)
    except OSError as trouble:
        # fsync(2): this file system has nothing to flush there.
        if trouble.errno != errno.EINVAL:
            raise


def flush(path):
    """Have a file's content on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_names(folder):
    """Have the names in a directory on the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def replace(new, target):
    """Rename a flushed file over another one in the same directory, for good. Raises OSError."""
    os.replace(new, target)
    sync_names(os.path.dirname(target))


def unlink(path):
    """Remove a file for good. Raises OSError."""
    os.unlink(path)
    sync_names(os.path.dirname(path))


def make_folders(path, mode):
    """Make a directory and those on the way to it, where they are missing, for good. Raises OSError.

    Args:
        path: absolute.
    """
    if os.path.isdir(path):
        return
    make_folders(os.path.dirname(path), mode)
    # Another process may have just made it; where it is no directory the next step tells.
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
    sync_names(os.path.dirname(path))
