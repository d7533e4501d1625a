# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a workload needs to run meanwhile: a server of its own, in the run's folder, ended and removed whatever happens.

A declaration of a server is a dict: ``commands`` (what has to be installed) in ``folders`` (globs; one folder a version) or the search
path; ``user`` (who runs it where the plan is root); ``prepare`` and ``fill`` (lists of argv, before it serves and once it does); ``serve``
(the argv that stays); ``ready`` (an argv that succeeds once it serves); ``stop`` and ``kill`` (names of the signals that ask it to end, and that
it gets when who keeps it dies). ``{server}`` stands for the server's folder.

The folder belongs to the server's user, who may put anything in it at any moment: nothing is opened, read or removed there with root's rights. What the
server and its commands say goes to a file without a name in the run's own folder.

A process of its own keeps the server: it ends it and removes its folder when it is told to, and also when the plan is killed.
"""

from __future__ import annotations

import os
import pwd
import select
import shutil
import signal
import subprocess
import tempfile
import time
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import processes, users
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.built_in import ServerDeclaration, WorkloadError

# An emulated or crowded host takes minutes to fill a database that takes others a second.
STEP_SECONDS = 600
READY_SECONDS = 120
STOP_SECONDS = 15
LAST_BYTES = 800


class Server:
    """One server, kept by a process of its own.

    Args:
        declaration: see above.
        folder: an empty folder, which whoever runs the server owns, in one that only this process's user may write; removed at the end.
        path: the search path of its commands.
    """

    def __init__(self, declaration: ServerDeclaration, folder: str, path: str) -> None:
        self.folder = folder
        self._owner = owner(declaration)
        told_read, told_write = os.pipe()
        self._keeper: int | None = os.fork()
        if self._keeper == 0:
            os.close(told_read)
            _keep(declaration, self._owner, folder, path, told_write)
        os.close(told_write)
        try:
            with os.fdopen(told_read, encoding="utf-8", errors="replace") as told:
                trouble = told.read()
        except BaseException:
            self.stop()
            raise
        if trouble:
            self.stop()
            raise WorkloadError(trouble)

    def stop(self) -> str | None:
        """End the server and remove its folder.

        Returns:
            None, or a sentence about what could not be removed.
        """
        if self._keeper is None:
            return None
        os.kill(self._keeper, signal.SIGTERM)
        status = os.waitpid(self._keeper, 0)[1]
        self._keeper = None
        # One that was killed has not removed it, and one that could not has no way to say so any more.
        return users.remove_folder(self.folder, self._owner) or f"not all of {self.folder} could be removed" if status != 0 else None


def owner(declaration: ServerDeclaration) -> tuple[int, int]:
    """(uid, gid) of who has to run the server: the declared user where this process is root, else this process's.

    Raises:
        WorkloadError: there is no such user.
    """
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    try:
        user = pwd.getpwnam(declaration["user"])
    except KeyError:
        raise WorkloadError(f"{declaration['serve'][0]} refuses to run as root, and this host has no user {declaration['user']}") from None
    return user.pw_uid, user.pw_gid


class _Ended(BaseException):
    """The keeper was told to end."""


def _raise_ended(_number: int, _frame: types.FrameType | None) -> t.NoReturn:
    raise _Ended


def _keep(declaration: ServerDeclaration, user: tuple[int, int], folder: str, path: str, told: int) -> t.NoReturn:
    """In the keeper: start, say so by closing the pipe (or say what went wrong), wait for the end, leave nothing. Never returns."""
    wake = None
    status = 1
    try:
        os.setsid()
        # The plan's own handlers are not for this process; whoever ends the plan with these also ends it by SIGTERM.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _raise_ended)
        processes.die_with_parent(signal.SIGTERM)
        processes.adopt_orphans()
        wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        # Without it a signal between two instructions and a wait for one would be missed until the next.
        signal.set_wakeup_fd(wake_write)
        _start(declaration, user, folder, path)
        os.close(told)
        select.select([wake], [], [])
    except _Ended:
        pass
    except (WorkloadError, OSError, subprocess.SubprocessError) as error:
        os.write(told, str(error).encode("utf-8", "replace"))
    finally:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            processes.end_children(lambda pid, status, usage: None, polite=getattr(signal, declaration["stop"]), patience=STOP_SECONDS)
            status = 0 if users.remove_folder(folder, user) is None else 1
        finally:
            os._exit(status)


def _start(declaration: ServerDeclaration, user: tuple[int, int], folder: str, path: str) -> None:
    with tempfile.TemporaryFile(dir=os.path.dirname(folder)) as log:
        run = _Commands(declaration, user, folder, path, log)
        for argv in declaration["prepare"]:
            run.step(argv)
        serving = run.start(declaration["serve"])
        until = time.monotonic() + READY_SECONDS
        while not run.succeeds(declaration["ready"]):
            if serving.poll() is not None or time.monotonic() > until:
                raise WorkloadError(f"{declaration['serve'][0]} does not serve: {run.last_words()}")
            time.sleep(0.1)
        for argv in declaration["fill"]:
            run.step(argv)


class _Commands:
    """Runs a server's commands as its owner, in its folder, with a clean environment and a log."""

    def __init__(self, declaration: ServerDeclaration, user: tuple[int, int], folder: str, path: str, log: t.IO[bytes]) -> None:
        self._owner = user
        self._folder = folder
        self._path = path
        self._kill = getattr(signal, declaration["kill"])
        self._log = log

    def start(self, argv: t.Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a command."""
        program = shutil.which(argv[0], path=self._path) or argv[0]
        filled = [program, *(word.replace("{server}", self._folder) for word in argv[1:])]
        return subprocess.Popen(
            filled,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=self._folder,
            env={"LC_ALL": "C", "PATH": self._path},
            preexec_fn=self._become_owner,
        )

    def step(self, argv: t.Sequence[str]) -> None:
        """Run a command to its end.

        Raises:
            WorkloadError: it failed, or took too long.
        """
        try:
            status = self.start(argv).wait(timeout=STEP_SECONDS)
        except subprocess.TimeoutExpired:
            raise WorkloadError(f"{argv[0]} did not end within {STEP_SECONDS} s: {self.last_words()}") from None
        if status != 0:
            raise WorkloadError(f"{argv[0]} failed with exit status {status}: {self.last_words()}")

    def succeeds(self, argv: t.Sequence[str]) -> bool:
        """Run a command to its end, and return whether its exit status is 0."""
        return self.start(argv).wait(timeout=STEP_SECONDS) == 0

    def last_words(self) -> str:
        """The end of the log as one line."""
        log = self._log.fileno()
        # Not by seeking: the commands write where this file description stands.
        text = os.pread(log, LAST_BYTES, max(0, os.fstat(log).st_size - LAST_BYTES)).decode("utf-8", "replace")
        return " | ".join(line.strip() for line in text.splitlines() if line.strip()) or "it said nothing"

    def _become_owner(self) -> None:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        users.become(self._owner)
        # After the change of user, which takes it away.
        processes.die_with_parent(self._kill)
