# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process of its own that restores the host when the one that changes it dies.

It is forked before the first write and waits at a pipe. Whoever changes the host says "done" when the host is as it should be; if the pipe
ends without that word (SIGKILL, out of memory, a crash), the guard brings the saved state back. It lives in a session and, where it
may, in a cgroup of its own, so that what ends a connection, a process group or a login session does not end it too.

    with Guard('/', smt_state.read('/'), '/var/lib/threadwise-smt/guard.log'):
        ...change...        # an exception here: the guard restores before it goes on
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import traceback

from ansible_collections.threadwise.smt.plugins.module_utils._smt import state as smt_state

DONE = b"d"
ARMED = b"a"
NAME = "smt-guard"
ARM_SECONDS = 30
# How often the guard looks whether the guarded process still lives: a child of it that never called exec may hold the pipe open.
LOOK_SECONDS = 2.0
CGROUPS = ("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/systemd/cgroup.procs")


class GuardError(Exception):
    """The guard could not be set up; nothing was changed yet."""


class Guard:
    """Restores ``state`` unless :meth:`disarm` is called by the process that armed it.

    Args:
        sysroot: root of the host's files, ``/`` on a real one
        state: from ``smt_state.read``
        log_path: file the guard appends to when it had to restore; its directory has to exist
        restore: what restores, ``callable() -> list[str]`` of what could not be put back; by default ``smt_state.restore``. It runs
            in the guard, with the memory of the moment of arming.
        seconds: after so many seconds the guard ends the guarded process by SIGKILL and restores; None waits for ever
        keep: file descriptors the guard keeps open while it lives (a lock's, so that nobody else changes the host while it restores)
    """

    def __init__(self, sysroot: str, state: dict, log_path: str, restore=None, seconds: float | None = None, keep=()):
        self._restore = restore or (lambda: smt_state.restore(sysroot, state))
        self._log_path = log_path
        self._seconds = seconds
        self._keep = tuple(keep)
        self._to_guard = None
        self._from_guard = None

    def arm(self) -> Guard:
        """Start the guard and wait until it says that it watches. Raises GuardError."""
        told, self._to_guard = os.pipe()
        self._from_guard, tell = os.pipe()
        guarded = os.getpid()
        try:
            middle = os.fork()
        except OSError as trouble:
            raise GuardError(f"no process could be started to guard the change: {trouble}") from trouble
        if middle == 0:
            self._become_guard(guarded, told, tell)
        os.close(told)
        os.close(tell)
        os.waitpid(middle, 0)
        ready = select.select([self._from_guard], [], [], ARM_SECONDS)[0]
        if not ready or os.read(self._from_guard, 1) != ARMED:
            self._forget()
            raise GuardError(f"the process that guards the change did not start; see {self._log_path}")
        return self

    def disarm(self) -> None:
        """All is as it should be: the guard ends without a write. Returns when it has ended; does nothing when none was armed."""
        if self._to_guard is None:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(self._to_guard, DONE)
        self._wait()

    def restore_now(self) -> None:
        """Let the guard restore, and return when it has."""
        self._wait()

    def __enter__(self) -> Guard:
        return self.arm()

    def __exit__(self, kind, trouble, where) -> None:
        if kind is None:
            self.disarm()
        else:
            self.restore_now()

    def _wait(self) -> None:
        os.close(self._to_guard)
        self._to_guard = None
        while os.read(self._from_guard, 64):
            pass
        self._forget()

    def _forget(self) -> None:
        for end in (self._to_guard, self._from_guard):
            if end is not None:
                os.close(end)
        self._to_guard = self._from_guard = None

    def _become_guard(self, guarded: int, told: int, tell: int) -> None:
        """Never returns: neither the caller's clean-up nor its exit handlers may run a second time in here."""
        try:
            os.setsid()
            if os.fork() == 0:
                self._watch(guarded, told, tell)
        finally:
            os._exit(0)

    def _watch(self, guarded: int, told: int, tell: int) -> None:
        log = os.open(self._log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _stand_alone({told, tell, log} | set(self._keep))
            _take_own_name()
            born = _birth(guarded)
            os.write(tell, ARMED)
            why = _wait_for_word(guarded, born, told, self._seconds)
            if why:
                _note(log, f"restoring, because {why}")
                left = self._restore()
                _note(log, "restored" if not left else f"could not put back: {'; '.join(left)}")
        except BaseException:
            _note(log, traceback.format_exc())


def _stand_alone(keep: set) -> None:
    """Leave everything through which the guarded process's end could reach this one."""
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    # Ansible and sshd wait until all copies of their pipes are closed.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                continue
    os.chdir("/")
    for path, text in [(cgroup, "0") for cgroup in CGROUPS] + [("/proc/self/oom_score_adj", "-1000")]:
        # Wishes, not needs: without them logind's KillUserProcesses= or the out-of-memory killer can end the guard.
        try:
            with open(path, "w", encoding="ascii") as handle:
                handle.write(text)
        except OSError:
            continue


def _take_own_name() -> None:
    """Whoever kills the module by the name or command line of its process must not hit the guard, which was forked from it.

    The arguments' place in memory is in proc(5), fields 48 and 49 of stat.
    """
    with open("/proc/self/stat", "rb") as handle:
        fields = handle.read(4096).rpartition(b")")[2].split()
    start, length = int(fields[45]), int(fields[46]) - int(fields[45])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(NAME.encode("ascii")[: length - 1].ljust(length, b"\0"))
    with open("/proc/self/comm", "w", encoding="ascii") as handle:
        handle.write(NAME[:15])


def _birth(pid: int) -> str | None:
    """Start time of a process in clock ticks (proc(5), field 22 of stat), None when it is gone: a pid alone may have been given anew."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:
            fields = handle.read(4096).decode("ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _wait_for_word(guarded: int, born: str | None, told: int, seconds: float | None) -> str | None:
    """Why the host is to be restored, None when the guarded process said that it is done."""
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        if select.select([told], [], [], LOOK_SECONDS)[0]:
            return None if os.read(told, 1) == DONE else f"the process that changed it (pid {guarded}) ended without a word"
        if _birth(guarded) != born:
            return f"the process that changed it (pid {guarded}) is gone"
        if end is not None and time.monotonic() > end:
            os.kill(guarded, signal.SIGKILL)
            return f"its time of {seconds} s was over (pid {guarded} was ended)"


def _note(log: int, text: str) -> None:
    os.write(log, (f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n").encode("utf-8", errors="replace"))
