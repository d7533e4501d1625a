# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One run at a time changes the CPUs of a host.

Like _smt/state.py this file is copied to a host as part of the program that restores it: it imports nothing from the collection.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import re
import time

LOCK = "run/threadwise-smt/lock"
# sudo, a shell or two, sshd and init: nobody is further away from who asked.
MOST_ANCESTORS = 32
NOBODY_LOGGED_IN = 0xFFFFFFFF
# What sshd sets (ssh(1)); a user's environment may hold anything.
_CONNECTION = re.compile(r"([0-9A-Za-z.:%_-]{1,80}) ([0-9]{1,5}) [0-9A-Za-z.:%_-]{1,80} [0-9]{1,5}")


class HostLockError(Exception):
    """Another run holds the host, or the lock cannot be taken; the text names the holder - what, for whom, its pid - or the reason."""


class HostLock:
    """An flock(2) on ``/run/threadwise-smt/lock``; use as a context manager. The kernel drops it with the last process that holds it.

    The file says who holds it: its pid and purpose in the first line, who asked for it and since when in the second.

    Args:
        sysroot: root of the host's files
        purpose: what the next one is told about this holder, e.g. ``smt_state``
        seconds: how long to wait for another holder; ``math.inf`` waits for ever
        path: the file below ``sysroot``; users who are not root have one of their own, in a folder of theirs
    """

    def __init__(self, sysroot: str, purpose: str, seconds: float = 0.0, path: str = LOCK):
        self._path = os.path.join(sysroot, path)
        self._purpose = purpose
        self._seconds = seconds
        self.descriptor = -1

    def __enter__(self) -> HostLock:
        """Raises HostLockError."""
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            self.descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as trouble:
            raise HostLockError(f"{self._path}: the lock cannot be opened: {trouble.strerror}") from trouble
        end = time.monotonic() + self._seconds
        while not self._taken():
            if time.monotonic() >= end:
                busy = HostLockError(self._holder())
                os.close(self.descriptor)
                raise busy
            time.sleep(0.2)
        os.ftruncate(self.descriptor, 0)
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        os.pwrite(self.descriptor, (f"{os.getpid()} {self._purpose}\n{asker()} since {since}\n").encode("utf-8", errors="replace"), 0)
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
            raise HostLockError(f"{self._path}: {trouble.strerror}") from trouble
        return True

    def _holder(self) -> str:
        first, _line, second = os.pread(self.descriptor, 1000, 0).decode("utf-8", errors="replace").partition("\n")
        words = first.split()
        pid = words[0] if words and words[0].isdigit() else "unknown"
        purpose = printable(" ".join(words[1:])) or "another run"
        if pid != "unknown" and not os.path.exists("/proc/" + pid):
            return f"this host is being put back after {purpose} (pid {pid}) died: try again when its guard has finished"
        who = printable(" ".join(second.split()))
        return f"this host is being changed by {purpose}, pid {pid}{' ' + who if who else ''}: try again when it has finished ({self._path})"


def printable(text: str, most: int = 200) -> str:
    """Text of others without what a terminal would take for more than text."""
    return "".join(char if char.isprintable() else "?" for char in text)[:most]


def user_name(uid: int) -> str | None:
    """The name of a user of this host, None where nothing knows one."""
    try:
        return printable(pwd.getpwuid(uid).pw_name, 64)
    except (KeyError, ValueError, OverflowError):
        return None


def asker() -> str:
    """Whom this process works for: the user who logged in, and from where, as far as the kernel and its forebears' environments tell.

    The login uid stays what it was through sudo and setsid (/proc/PID/loginuid, Documentation/ABI/stable/procfs-audit_loginuid); where the kernel keeps none
    it is the user whom sudo names, or the process's own.
    """
    uid = _login_uid()
    name = user_name(uid)
    connection = _connection()
    return f"for user {name or uid}{(' from {} port {}'.format(*connection) if connection else '')}"


def _login_uid() -> int:
    try:
        with open("/proc/self/loginuid", encoding="ascii") as handle:
            uid = int(handle.read(20))
        if uid != NOBODY_LOGGED_IN:
            return uid
    except (OSError, ValueError):
        pass
    told = os.environ.get("SUDO_UID", "")
    return int(told) if os.geteuid() == 0 and told.isascii() and told.isdigit() and len(told) < 11 else os.getuid()


def _connection() -> tuple[str, str] | None:
    """Address and port of the ssh client: sudo takes them out of the environment, its forebears still have them."""
    pid = os.getpid()
    for _step in range(MOST_ANCESTORS):
        if pid <= 1:
            return None
        try:
            with open(f"/proc/{pid}/environ", "rb") as handle:
                environment = handle.read(1 << 17).decode("utf-8", errors="replace").split("\0")
            with open(f"/proc/{pid}/stat", "rb") as handle:
                pid = int(handle.read(4096).rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return None
        for entry in environment:
            found = _CONNECTION.fullmatch(entry[15:]) if entry.startswith("SSH_CONNECTION=") else None
            if found:
                return found.group(1), found.group(2)
    return None
