# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watchdog: a separate process that restores the host when the process that changes it dies.

It goes by its memory, which is that of the process that armed it. It tries until the host is restored, and says so
afterwards, where there is room.

It is forked before the first write and waits at a pipe. The watched process writes "done" when its change is complete.
If the pipe is closed without that byte (SIGKILL, out of memory, a crash), the watchdog restores the previous state. It
runs in its own session and, if possible, in the root cgroup, so that the end of a connection, a process group or a
login session does not end it too.

    with Watchdog('/var/lib/threadwise-smt/watchdog.log', lambda: restore.restore(host, record)):
        ...change...        # after an exception the watchdog restores before it is raised further
"""

import contextlib
import os
import select
import signal
import time
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import restore as smt_restore
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.errors import SmtError

DONE = b"d"
ARMED = b"a"
NAME = "smt-watchdog"
ARM_SECONDS = 30
# How often the watchdog checks that the watched process is alive: a child that never called exec may keep the pipe
# open.
CHECK_SECONDS = 2.0
# Between two attempts to restore. Whoever waits for the end of the watchdog, as a change that failed does, waits for
# the first ones only.
PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)
LATER_PAUSE_SECONDS = 30.0
# It has the host's lock, so that nobody else can change the host: it has to give up some time what the kernel never
# permits.
LONGEST_SECONDS = 3600.0
KERNEL_LOG = "/dev/kmsg"
CGROUPS = ("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/systemd/cgroup.procs")


class WatchdogError(SmtError):
    """The watchdog could not be started. Nothing was changed yet."""


class Watchdog:
    """A watchdog that restores the host unless the process that armed it calls :meth:`disarm`.

    Args:
        log_path: file that the watchdog appends to when it had to restore, if it can
        restore: restores the host and returns what was not restored, one sentence each. It runs in the watchdog, with a
            copy of the memory from the time of arming, again and again while ``restore.left`` names something.
        seconds: time limit after which the watchdog kills the watched process and restores; None: no limit
        keep: file descriptors that the watchdog keeps open, such as that of a lock, so that nobody else changes the
            host while it restores
    """

    def __init__(
        self,
        log_path: str,
        restore: "t.Callable[[], list[str]]",
        seconds: "float | None" = None,
        keep: "t.Iterable[int]" = (),
    ) -> None:
        self._restore = restore
        self._log_path = log_path
        self._seconds = seconds
        self._keep = tuple(keep)
        self._to_watchdog: t.Optional[int] = None
        self._from_watchdog: t.Optional[int] = None

    def arm(self) -> "Watchdog":
        """Start the watchdog and wait until it is ready; raise WatchdogError when it did not start."""
        watched = os.getpid()
        ends: list[int] = []
        try:
            ends += os.pipe()
            ends += os.pipe()
            middle = os.fork()
        except OSError as error:
            for end in ends:
                os.close(end)
            raise WatchdogError(f"the watchdog process could not be started: {error}") from error
        read_end, self._to_watchdog, from_watchdog, write_end = ends
        self._from_watchdog = from_watchdog
        if middle == 0:
            self._become_watchdog(watched, read_end, write_end)
        os.close(read_end)
        os.close(write_end)
        os.waitpid(middle, 0)
        ready = select.select([from_watchdog], [], [], ARM_SECONDS)[0]
        if not ready or os.read(from_watchdog, 1) != ARMED:
            self._close_pipes()
            raise WatchdogError(f"the watchdog process did not start; see {self._log_path}")
        return self

    def disarm(self) -> None:
        """End the watchdog without a restore and wait for its end. Does nothing if it is not armed."""
        if self._to_watchdog is None:
            return
        with contextlib.suppress(BrokenPipeError):
            os.write(self._to_watchdog, DONE)
        self._wait()

    def restore_now(self) -> None:
        """Make the watchdog restore the host and wait for its end."""
        self._wait()

    def __enter__(self) -> "Watchdog":
        return self.arm()

    def __exit__(
        self,
        error_type: "type[BaseException] | None",
        error: "BaseException | None",
        where: t.Optional[types.TracebackType],
    ) -> None:
        if error_type is None:
            self.disarm()
        else:
            self.restore_now()

    def _wait(self) -> None:
        if self._to_watchdog is None or self._from_watchdog is None:
            raise WatchdogError("the watchdog is not armed")
        os.close(self._to_watchdog)
        self._to_watchdog = None
        while os.read(self._from_watchdog, 64):
            pass
        self._close_pipes()

    def _close_pipes(self) -> None:
        for end in (self._to_watchdog, self._from_watchdog):
            if end is not None:
                os.close(end)
        self._to_watchdog = self._from_watchdog = None

    def _become_watchdog(self, watched: int, read_end: int, write_end: int) -> t.NoReturn:
        """Run the watchdog in a grandchild.

        Never returns: neither the caller's clean-up nor its exit handlers may run a second time here.
        """
        try:
            os.setsid()
            if os.fork() == 0:
                self._watch(watched, read_end, write_end)
        finally:
            os._exit(0)

    def _watch(self, watched: int, read_end: int, write_end: int) -> None:
        log = -1
        # Where there is no room for it, the kernel's log has what is said; see _log.
        with contextlib.suppress(OSError):
            log = os.open(self._log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _detach({read_end, write_end, log} | set(self._keep))
            _change_name()
            start = _start_time(watched)
            os.write(write_end, ARMED)
            reason = _wait_for_end(watched, start, read_end, self._seconds)
        except BaseException as error:
            # Not armed: the change does not begin.
            _log(log, f"{type(error).__name__}: {error}")
            return
        if reason:
            self._restore_until_done(log, reason, lambda: _start_time(watched) == start)

    def _restore_until_done(self, log: int, reason: str, is_awaited: "t.Callable[[], bool]") -> None:
        """Restore the host, and say afterwards what was done."""
        begun, attempt, logged = time.monotonic(), 0, ""
        while True:
            try:
                problems = self._restore()
                left = smt_restore.left(problems)
            except BaseException as error:
                # Whatever it is, another attempt may succeed.
                problems = left = [f"{type(error).__name__}: {error}"]
            gives_up = time.monotonic() - begun > LONGEST_SECONDS or (attempt >= len(PAUSES_SECONDS) and is_awaited())
            sentence = (
                f"restored, because {reason}" if not left else f"could not restore after {reason}: {'; '.join(left)}"
            )
            if sentence != logged:
                logged = sentence
                _log(log, "; ".join([sentence, *(problem for problem in problems if problem not in left)]))
            if not left or gives_up:
                return
            time.sleep(PAUSES_SECONDS[attempt] if attempt < len(PAUSES_SECONDS) else LATER_PAUSE_SECONDS)
            attempt += 1


def _detach(keep: "set[int]") -> None:
    """Detach this process from everything through which the end of the watched process could end it, too.

    Args:
        keep: file descriptors that stay open
    """
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    # Ansible and sshd wait until all copies of their pipes are closed.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:
                continue
    os.chdir("/")
    for path, text in [(cgroup, "0") for cgroup in CGROUPS] + [("/proc/self/oom_score_adj", "-1000")]:
        # Optional: without them KillUserProcesses= of logind or the out-of-memory killer can end the watchdog.
        try:
            with open(path, "w", encoding="ascii") as handle:
                handle.write(text)
        except OSError:
            continue


def _change_name() -> None:
    """Change the name and command line of this process.

    A kill of the module by name must not hit the watchdog, which was forked from it.

    The address of the arguments in memory is in fields 48 and 49 of stat (proc(5)).
    """
    with open("/proc/self/stat", "rb") as handle:
        fields = handle.read(4096).rpartition(b")")[2].split()
    start, length = int(fields[45]), int(fields[46]) - int(fields[45])
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(start)
        memory.write(NAME.encode("ascii")[: length - 1].ljust(length, b"\0"))
    with open("/proc/self/comm", "w", encoding="ascii") as handle:
        handle.write(NAME[:15])


def _start_time(pid: int) -> "str | None":
    """Return the start time of a process in clock ticks (proc(5), field 22 of stat), or None when it has ended.

    The pid alone may be reused.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:
            fields = handle.read(4096).decode("ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _wait_for_end(watched: int, start: "str | None", read_end: int, seconds: "float | None") -> "str | None":
    """Wait for the watched process.

    Return the reason why the host has to be restored, or None when the process has completed its change.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        if select.select([read_end], [], [], CHECK_SECONDS)[0]:
            return (
                None
                if os.read(read_end, 1) == DONE
                else f"the process that changed it (pid {watched}) ended before its change was complete"
            )
        if _start_time(watched) != start:
            return f"the process that changed it (pid {watched}) has ended"
        if end is not None and time.monotonic() > end:
            os.kill(watched, signal.SIGKILL)
            return f"its time limit of {seconds} s was exceeded (pid {watched} was killed)"


def _log(log: int, text: str) -> None:
    """Write to the log, or where there is no room to the kernel's, which has its own."""
    try:
        os.write(log, (f"{host_text.utc_now()} {text}\n").encode("utf-8", errors="replace"))
    except OSError:
        with contextlib.suppress(OSError):
            kernel = os.open(KERNEL_LOG, os.O_WRONLY | os.O_CLOEXEC)
            os.write(kernel, f"<4>threadwise-smt: {text}"[:900].encode("utf-8", errors="replace"))
            os.close(kernel)
