# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time changes the CPUs of a host."""

from __future__ import annotations

import errno
import fcntl
import os
import time

LOCK = 'run/threadwise-smt/lock'


class HostLockError(Exception):
    """Another run holds the host, or the lock cannot be taken; the text names the holder's pid or the reason."""


class HostLock:
    """An flock(2) on ``/run/threadwise-smt/lock``; use as a context manager. The kernel drops it with the last process that holds it.

    :param sysroot: root of the host's files
    :param purpose: what the next one is told about this holder, e.g. ``smt_state``
    :param seconds: how long to wait for another holder
    :param path: another file to lock, for a user who may not reach that one
    """

    def __init__(self, sysroot: str, purpose: str, seconds: float = 0.0, path: str | None = None):
        self._path = path or os.path.join(sysroot, LOCK)
        self._purpose = purpose
        self._seconds = seconds
        self.descriptor = -1

    def __enter__(self) -> HostLock:
        """Raises HostLockError."""
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as trouble:
            raise HostLockError('%s: the lock cannot be opened: %s' % (self._path, trouble.strerror)) from trouble
        end = time.monotonic() + self._seconds
        while not self._taken():
            if time.monotonic() >= end:
                busy = HostLockError(self._holder())
                os.close(self.descriptor)
                raise busy
            time.sleep(0.2)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, ('%d %s\n' % (os.getpid(), self._purpose)).encode('utf-8'), 0)
        return self

    def __exit__(self, kind, trouble, where) -> None:
        # Closed, not unlocked: a guard that shares the description keeps the lock until it has restored.
        os.close(self.descriptor)

    def _taken(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as trouble:
            if trouble.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise HostLockError('%s: %s' % (self._path, trouble.strerror)) from trouble
        return True

    def _holder(self) -> str:
        words = os.pread(self.descriptor, 200, 0).decode('utf-8', errors='replace').split()
        pid = words[0] if words and words[0].isdigit() else 'unknown'
        purpose = ' '.join(words[1:]) or 'another run'
        if pid != 'unknown' and not os.path.exists('/proc/' + pid):
            return 'this host is being put back after %s (pid %s) died: try again when its guard has finished' % (purpose, pid)
        return 'this host is being changed by %s, pid %s: try again when it has finished (%s)' % (purpose, pid, self._path)
