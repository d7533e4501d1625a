# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host lock: one run at a time changes the CPUs of a host."""

import contextlib
import errno
import fcntl
import os
import pwd
import re
import stat
import time
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError

LOCK = "run/threadwise-smt/lock"
# More than sudo, a few shells, sshd and init together.
MAX_ANCESTORS = 32
# The kernel's value for "no login uid".
NO_LOGIN_UID = 0xFFFFFFFF
# The format that sshd writes (ssh(1)); a user's environment may hold anything.
_CONNECTION = re.compile(r"([0-9A-Za-z.:%_-]{1,80}) ([0-9]{1,5}) [0-9A-Za-z.:%_-]{1,80} [0-9]{1,5}")

CHANGE_SECONDS = 30.0
"""How long a change waits for another one on the same host: two controllers with one policy then agree instead
of failing. An evaluation takes longer.
"""


class HostLockError(HostError):
    """Another run holds the lock, or it cannot be taken; the message names the holder (purpose, user,
    pid) or the reason.
    """


class HostLock:
    """An flock(2) on ``/run/threadwise-smt/lock``; use as a context manager.

    The kernel releases it with the last process that holds it.

    The file names the holder: its pid and purpose in the first line, the user who started it and the time in the
    second.

    Args:
        sysroot: root of the host's files.
        purpose: what the holder does, for the error message of others, such as ``smt_state``.
        seconds: how long to wait for another holder; ``math.inf`` waits for ever.
        path: the lock file below ``sysroot``; users other than root have their own, in a directory of theirs.

    Attributes:
        descriptor: the open lock file; -1 before it is opened.
    """

    def __init__(self, sysroot: str, purpose: str, seconds: float = 0.0, path: str = LOCK) -> None:
        self._path = os.path.join(sysroot, path)
        self._purpose = purpose
        self._seconds = seconds
        self.descriptor = -1

    def __enter__(self) -> "HostLock":
        """Take the lock.

        Raises:
            HostLockError: another run holds it, or it cannot be opened.
        """
        try:
            self.descriptor = self._open()
        except OSError as error:
            if isinstance(error, PermissionError) and os.geteuid() != 0:
                raise HostLockError(
                    f"{self._purpose} needs root to change this host or to keep others from changing it, and runs as"
                    f" user {user_name(os.geteuid()) or os.geteuid()}: use become: true, or ansible-playbook -b"
                    f" ({self._path}: {error.strerror})"
                ) from error
            raise HostLockError(f"{self._path}: the lock cannot be opened: {error.strerror}") from error
        try:
            self._take()
        except OSError as error:
            os.close(self.descriptor)
            raise HostLockError(f"{self._path}: the lock cannot be taken: {error.strerror}") from error
        except BaseException:
            os.close(self.descriptor)
            raise
        return self

    def __exit__(
        self,
        kind: "type[BaseException] | None",
        error: "BaseException | None",
        traceback: t.Optional[types.TracebackType],
    ) -> None:
        """Close the lock file."""
        # Closed, not unlocked: a watchdog that inherited the descriptor keeps the lock until it has restored the state.
        os.close(self.descriptor)

    def holder(self) -> "str | None":
        """Return who holds the lock now, as a sentence, or None when nobody does; nothing is created or kept."""
        try:
            self.descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return self._holder()
        finally:
            os.close(self.descriptor)
        return None

    def pid_of(self, purpose: str) -> "int | None":
        """Return the process that holds the lock now for a purpose; None where none does, or that cannot be seen."""
        if self.holder() is None:
            return None
        try:
            with open(self._path, encoding="utf-8", errors="replace") as stream:
                pid, _space, known_purpose = stream.readline(1000).strip().partition(" ")
        except OSError:
            return None
        return int(pid) if pid.isdigit() and known_purpose == purpose else None

    def _open(self) -> int:
        """Open the lock file; where there is no room for it, or it is read-only, the first of it and the folders above
        that there is: what brings CPUs back locks that.
        """
        path = self._path
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if not durable.is_for_want_of_room(error):
                raise
        while not os.path.lexists(path):
            path = os.path.dirname(path)
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _take(self) -> None:
        end = time.monotonic() + self._seconds
        while not self._is_taken():
            if time.monotonic() >= end:
                raise HostLockError(self._holder())
            time.sleep(0.2)
        since = host_text.utc_now()
        # It is the kernel's lock that counts: what undoes a change takes it also where /run is full.
        with contextlib.suppress(OSError):
            os.ftruncate(self.descriptor, 0)
            os.pwrite(
                self.descriptor,
                f"{os.getpid()} {self._purpose}\n{requester()} since {since}\n".encode("utf-8", errors="replace"),
                0,
            )

    def _is_taken(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        return True

    def _holder(self) -> str:
        data = b"" if stat.S_ISDIR(os.fstat(self.descriptor).st_mode) else os.pread(self.descriptor, 1000, 0)
        first, _newline, second = data.decode("utf-8", errors="replace").partition("\n")
        fields = first.split()
        pid = fields[0] if fields and fields[0].isdigit() else "unknown"
        purpose = host_text.printable(" ".join(fields[1:])) or "another run"
        if pid != "unknown" and not os.path.exists("/proc/" + pid):
            return (
                f"this host is being restored after {purpose} (pid {pid}) died: try again when its watchdog has"
                " finished"
            )
        user = host_text.printable(" ".join(second.split()))
        return (
            f"this host is being changed by {purpose}, pid {pid}{' ' + user if user else ''}: try again when it has"
            f" finished ({self._path})"
        )


def user_name(uid: int) -> "str | None":
    """Return the name of a user of this host, or None when it is unknown."""
    try:
        return host_text.printable(pwd.getpwuid(uid).pw_name, 64)
    except (KeyError, ValueError, OverflowError):
        return None


def has_user(name: str) -> bool:
    """Return whether this host, or a directory server that it asks (nsswitch.conf(5)), has a user of this name."""
    try:
        return pwd.getpwnam(name).pw_name == name
    except (KeyError, ValueError):
        return False


def requester() -> str:
    """Return the user who started this process, and the ssh client's address,
    as far as the kernel and the ancestors' environments show them.

    The login uid survives sudo and setsid (/proc/PID/loginuid, Documentation/ABI/stable/procfs-audit_loginuid). When
    the kernel does not record it, the user is the one that sudo names, or the process's own.
    """
    uid = _login_uid()
    connection = _connection()
    client = f" from {connection[0]} port {connection[1]}" if connection else ""
    return f"for user {user_name(uid) or uid}{client}"


def _login_uid() -> int:
    try:
        with open("/proc/self/loginuid", encoding="ascii") as stream:
            uid = int(stream.read(20))
        if uid != NO_LOGIN_UID:
            return uid
    except (OSError, ValueError):
        pass
    sudo_uid = os.environ.get("SUDO_UID", "")
    return int(sudo_uid) if os.geteuid() == 0 and re.fullmatch(r"[0-9]{1,10}", sudo_uid) else os.getuid()


def _connection() -> "tuple[str, str] | None":
    """Return address and port of the ssh client: sudo removes them from the environment,
    but the ancestors of this process still have them.
    """
    pid = os.getpid()
    for _generation in range(MAX_ANCESTORS):
        if pid <= 1:
            return None
        try:
            with open(f"/proc/{pid}/environ", "rb") as stream:
                environment = stream.read(1 << 17).decode("utf-8", errors="replace").split("\0")
            with open(f"/proc/{pid}/stat", "rb") as stream:
                pid = int(stream.read(4096).rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return None
        for entry in environment:
            match = _CONNECTION.fullmatch(entry[15:]) if entry.startswith("SSH_CONNECTION=") else None
            if match:
                return match.group(1), match.group(2)
    return None
