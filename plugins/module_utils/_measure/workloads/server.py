# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The server of a workload, in the run's directory.

It is always ended and removed, also when the plan fails or is killed.

The directory belongs to the server's user, who can put anything into it at any time. Root therefore opens, reads and
removes nothing in it. The output of the server and its commands goes to an unnamed file in the run's own directory.

A separate process, the supervisor, starts the server. It ends the server and removes its directory when it gets
SIGTERM, and also when the plan is killed.
"""

import contextlib
import os
import pwd
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, processes, users
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    ServerDeclaration,
    WorkloadError,
    filled,
)

# What the supervisor says when the server answers. No reason for a failure reads like this.
READY = "\0ready"
# On an emulated or overloaded host, filling a database takes minutes instead of a second.
STEP_SECONDS = 600
READY_SECONDS = 120
STOP_SECONDS = 15
LAST_BYTES = 800
LOOPBACK = "127.0.0.1"


class Server:
    """A server and the separate process that supervises it.

    Args:
        declaration: the declaration of the server.
        folder: an empty directory that belongs to the server's user, in a directory that only the user of this process
            can write. ``stop`` removes it.
        sources: {file name: text} of the declared ``files``.
        environment: of its commands, with their search path ``PATH``.
        cpus: the CPUs that it may use; none: those of this process.

    Attributes:
        folder: the server's directory.
        port: the TCP port of 127.0.0.1 that is meant for it.
        has_own_user: whether a user is declared for it, who runs its clients too.

    Raises:
        WorkloadError: the server did not start.
    """

    def __init__(
        self,
        declaration: ServerDeclaration,
        folder: str,
        environment: "t.Mapping[str, str]",
        cpus: "t.Sequence[int]" = (),
        sources: "t.Mapping[str, str]" = types.MappingProxyType({}),
    ) -> None:
        self.folder = folder
        self.port = _free_port()
        self.has_own_user = declaration["user"] is not None
        self._owner = owner(declaration)
        self._supervisor: t.Optional[int] = None
        values = {"server": folder, "port": self.port, "cpus": cpulist.render(cpus), "threads": len(cpus)}
        texts = {name: sources[name] for name in declaration["files"]}
        with tempfile.TemporaryFile(dir=os.path.dirname(folder)) as log:
            error = self._start(_Commands(declaration, self._owner, folder, environment, cpus, values, texts, log))
        if error != READY:
            self.stop()
            raise WorkloadError(error or "the supervisor of the server was killed")

    def _start(self, commands: "_Commands") -> str:
        """Start the supervisor, and return what it says: ``READY``, or why the server did not start."""
        error_read, error_write = os.pipe()
        self._supervisor = os.fork()
        if self._supervisor == 0:
            os.close(error_read)
            _supervise(commands, error_write)
        os.close(error_write)
        try:
            with os.fdopen(error_read, encoding="utf-8", errors="replace") as stream:
                return stream.read()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> "str | None":
        """End the server and remove its directory. A second call does nothing.

        Returns:
            None, or a message about what could not be removed.
        """
        if self._supervisor is None:
            return None
        os.kill(self._supervisor, signal.SIGTERM)
        status = os.waitpid(self._supervisor, 0)[1]
        self._supervisor = None
        # A supervisor that was killed has not removed the directory. One that could not remove it has no way to report
        # the reason.
        if status == 0:
            return None
        left = f"not all of {self.folder} could be removed" if os.WIFEXITED(status) else None
        return users.remove_folder(self.folder, self._owner) or left


def owner(declaration: ServerDeclaration) -> "tuple[int, int]":
    """Return (uid, gid) of the user who runs the server: the declared user if this process runs as root,
    else the user of this process.

    Raises:
        WorkloadError: the declared user does not exist.
    """
    if os.geteuid() != 0 or declaration["user"] is None:
        return os.geteuid(), os.getegid()
    try:
        user = pwd.getpwnam(declaration["user"])
    except KeyError:
        raise WorkloadError(
            f"{declaration['serve'][0]} refuses to run as root, and this host has no user {declaration['user']}"
        ) from None
    return user.pw_uid, user.pw_gid


def _free_port() -> int:
    """Return a TCP port that nobody has now. A server that finds it taken later does not start."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
    return port


def _write(folder: str, texts: "t.Mapping[str, str]") -> None:
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as stream:
            stream.write(text)


class _Ended(BaseException):
    """SIGTERM reached the supervisor."""


def _raise_ended(_number: int, _frame: t.Optional[types.FrameType]) -> t.NoReturn:
    raise _Ended


def _supervise(commands: "_Commands", error_write: int) -> t.NoReturn:
    """Run the supervisor: start the server, wait for SIGTERM, end the server and remove its directory.

    The supervisor writes ``READY`` to the pipe when the server is ready, or the reason why it did not start; a
    supervisor that was killed writes nothing.
    """
    wake = None
    status = 1
    try:
        os.setsid()
        # Do not run the handlers of the plan here. A plan that gets one of these signals ends the supervisor with
        # SIGTERM.
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, _raise_ended)
        processes.die_with_parent(signal.SIGTERM)
        processes.adopt_orphans()
        wake, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        # Without this, a signal that arrives just before select() would be noticed only with the next signal.
        signal.set_wakeup_fd(wake_write)
        commands.start_server()
        os.write(error_write, READY.encode())
        os.close(error_write)
        select.select([wake], [], [])
    except _Ended:
        pass
    except (WorkloadError, users.OtherUserError, OSError, subprocess.SubprocessError) as error:
        os.write(error_write, str(error).encode("utf-8", "replace"))
    finally:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            commands.end_server()
            status = 0 if commands.remove_folder() is None else 1
        finally:
            os._exit(status)


class _Commands:
    """The commands of a server, run as its user, in its directory, with a clean environment and a log."""

    def __init__(
        self,
        declaration: ServerDeclaration,
        user: "tuple[int, int]",
        folder: str,
        environment: "t.Mapping[str, str]",
        cpus: "t.Sequence[int]",
        values: "t.Mapping[str, object]",
        texts: "t.Mapping[str, str]",
        log: "t.IO[bytes]",
    ) -> None:
        self._declaration = declaration
        self._owner = user
        self._folder = folder
        self._environment = environment
        self._cpus = cpus
        self._values = values
        self._texts = texts
        self._kill = getattr(signal, declaration["kill"])
        self._log = log

    def start_server(self) -> None:
        """Start the server and wait until it is ready.

        Raises:
            WorkloadError: it did not start.
        """
        if self._texts:
            texts = {name: filled(text, self._values) for name, text in self._texts.items()}
            users.call(self._owner, _write, self._folder, texts)
        for argv in self._declaration["prepare"]:
            self.run(argv)
        process = self.start(self._declaration["serve"])
        until = time.monotonic() + READY_SECONDS
        while not self.succeeds(self._declaration["ready"]):
            # One that goes to the background leaves a process that has ended with 0.
            if process.poll() or time.monotonic() > until:
                raise WorkloadError(f"the server {self._declaration['serve'][0]} did not start: {self.last_lines()}")
            time.sleep(0.1)
        for argv in self._declaration["fill"]:
            self.run(argv)

    def end_server(self) -> None:
        """End the server with all that it has started."""
        if self._declaration["end"]:
            # What does not end by its own command is ended all the same.
            with contextlib.suppress(WorkloadError, OSError):
                self.run(self._declaration["end"], STOP_SECONDS)
        processes.end_children(
            lambda pid, status, usage: None,
            first_signal=getattr(signal, self._declaration["stop"]),
            time_limit=STOP_SECONDS,
        )

    def remove_folder(self) -> "str | None":
        """Remove the server's directory; return a message about what is left, or None."""
        return users.remove_folder(self._folder, self._owner)

    def start(self, argv: "t.Sequence[str]") -> "subprocess.Popen[bytes]":
        """Start a command."""
        command, *arguments = [filled(argument, self._values) for argument in argv]
        return subprocess.Popen(
            [shutil.which(command, path=self._environment["PATH"]) or command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            cwd=self._folder,
            env=self._environment,
            preexec_fn=self._become_owner,
        )

    def run(self, argv: "t.Sequence[str]", seconds: float = STEP_SECONDS) -> None:
        """Run a command and wait for its end.

        Raises:
            WorkloadError: the command failed or took too long.
        """
        try:
            status = self.start(argv).wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise WorkloadError(f"{argv[0]} did not end within {seconds} s: {self.last_lines()}") from None
        if status != 0:
            raise WorkloadError(f"{argv[0]} failed with exit status {status}: {self.last_lines()}")

    def succeeds(self, argv: "t.Sequence[str]") -> bool:
        """Run a command, and return whether its exit status is 0."""
        return self.start(argv).wait(timeout=STEP_SECONDS) == 0

    def last_lines(self) -> str:
        """Return the end of the log as one line."""
        log = self._log.fileno()
        # With pread, not by seeking: the commands share the file offset and write there.
        text = os.pread(log, LAST_BYTES, max(0, os.fstat(log).st_size - LAST_BYTES)).decode("utf-8", "replace")
        return " | ".join(line.strip() for line in text.splitlines() if line.strip()) or "no output"

    def _become_owner(self) -> None:
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        if self._cpus:
            os.sched_setaffinity(0, self._cpus)
        users.become(self._owner)
        # After the change of user, which clears this setting.
        processes.die_with_parent(self._kill)
