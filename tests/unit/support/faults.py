# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may go wrong while files are written."""

import contextlib
import errno
import os
from unittest import mock

from fake_kernel import Killed

# Calls that need room on the disk, and those that do not.
TAKE_ROOM = ("link", "symlink", "mkdir", "posix_fallocate")
TAKE_NONE = ("rename", "replace", "unlink", "rmdir")


class Faults:
    """A fault that comes at the n-th write. ``kind`` is ``killed``, ``full`` or None."""

    def __init__(self):
        self.kind, self.left, self.is_dead, self.is_full, self.count = None, 0, False, False, 0
        self.is_paused = False
        self.number = errno.ENOSPC  # what a full disk answers; with EROFS to all that is written

    def plan(self, kind, left):
        self.kind, self.left, self.count = kind, left, 0

    def write(self, takes_room):
        """Called before each write; with None before one to the kernel, whose files are on no disk."""
        if self.is_paused:
            return
        if self.is_dead:
            # Nothing of the clean-up of a killed process runs.
            raise Killed
        self.count += 1
        if self.kind == "killed" and self.count > self.left:
            self.is_dead = True
            raise Killed
        if self.kind == "full" and self.count > self.left:
            self.is_full = True
        if self.is_full and (takes_room or (takes_room is not None and self.number == errno.EROFS)):
            raise OSError(self.number, os.strerror(self.number))

    def another_process(self):
        """What follows is done by another process, on the same disk."""
        self.is_dead, self.kind = False, None

    def over(self):
        """There is room again."""
        self.kind, self.is_dead, self.is_full = None, False, False

    @contextlib.contextmanager
    def paused(self):
        """What the kernel does is done as a whole."""
        self.is_paused = True
        yield
        self.is_paused = False

    @contextlib.contextmanager
    def installed(self):
        """Have the calls of this process that change files come here first."""

        def wrapped(name, takes_room):
            real = getattr(os, name)

            def call(*arguments, **options):
                self.write(takes_room)
                return real(*arguments, **options)

            return call

        real_open = os.open

        def opened(path, flags, *arguments, **options):
            # An existing file that is opened, such as the lock, takes no room.
            if flags & os.O_CREAT:
                self.write(takes_room=bool(flags & os.O_EXCL) or not os.path.exists(path))
            return real_open(path, flags, *arguments, **options)

        calls = {name: wrapped(name, name in TAKE_ROOM) for name in TAKE_ROOM + TAKE_NONE}
        with mock.patch.multiple(os, open=opened, **calls):
            yield self


class Watchdog:
    """The watchdog without a process of its own: what it restores is what the process restores that it watches."""

    faults: Faults
    is_disarmed = False

    def __init__(self, log_path, restore, seconds=None, keep=()):
        self.restore = restore

    def __enter__(self):
        return self

    def __exit__(self, kind, error, where):
        Watchdog.is_disarmed = kind is None
        if kind is not None:
            self.faults.another_process()
            left = [one for one in self.restore() if isinstance(one, str)]
            assert left == [], left
            self.faults.is_dead = kind is Killed
