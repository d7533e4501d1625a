# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Process control: end a process with all its descendants,
even those that left its process group or session or lost their parent.
"""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import time
import typing as t

# Seconds that a process may take to exit after the first signal before it gets SIGKILL.
TERM_SECONDS = 1.0
# prctl(2): get a signal when the parent dies; become the parent of orphaned descendants (Linux 3.4).
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# No program that this process executes from now on gains privileges, by set-user-ID or by file capabilities (Linux
# 3.5).
PR_SET_NO_NEW_PRIVS = 38


# Seconds after which a command of the host, such as systemctl, is given up.
COMMAND_SECONDS = 60


def run(argv: "list[str]", seconds: float = COMMAND_SECONDS) -> "tuple[int, str, str]":
    """Run a command of the host without a shell; return its exit status, output and error output,
    as AnsibleModule.run_command does. Where it is not installed or cannot be run, the status is 127, and the error
    output a clause with the command's name that says which of both.

    Args:
        argv: the command.
        seconds: after which it is given up.
    """
    environment = {"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/bin:/sbin:/bin"}
    try:
        with subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
        ) as process:
            try:
                output, errors = process.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
    except (OSError, subprocess.SubprocessError) as error:
        # A script whose interpreter is missing is reported as missing itself.
        is_missing = isinstance(error, FileNotFoundError) and shutil.which(argv[0], path=environment["PATH"]) is None
        return 127, "", f"{argv[0]} {'is not installed' if is_missing else f'cannot be run: {error!s:.200}'}"
    return process.returncode, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace")


def die_with_parent(number: int) -> None:
    """Ask the kernel to send this process a signal when its parent dies. A change of user cancels it (prctl(2)).

    Args:
        number: the signal's number.
    """
    _prctl(PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent exits."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def gain_no_privileges() -> None:
    """Prevent this process and all its descendants from gaining privileges when they execute a program.

    Raises:
        OSError: the kernel refused.
    """
    if _prctl(PR_SET_NO_NEW_PRIVS, 1) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"PR_SET_NO_NEW_PRIVS: {os.strerror(number)}")


def end_children(
    reaped: "t.Callable[[int, int, resource.struct_rusage], object]",
    waiting: "t.Iterable[int]" = frozenset(),
    first_signal: int = signal.SIGTERM,
    time_limit: float = TERM_SECONDS,
) -> None:
    """End all children, and their descendants as these become children of this process,
    which must have called `adopt_orphans`.

    Args:
        reaped: called with (pid, wait status, resource usage) of each child that ended.
        waiting: pids of known children, for kernels that do not list children.
        first_signal: the signal that asks a child to exit.
        time_limit: seconds until SIGKILL follows.
    """
    left = set(waiting)
    begun = time.monotonic()
    asked: set[int] = set()
    while True:
        pids = children() or left
        if not pids:
            return
        late = time.monotonic() - begun >= time_limit
        for pid in pids:
            # Send it only once: servers shut down less gracefully after a second signal.
            if late or pid not in asked:
                os.kill(pid, signal.SIGKILL if late else first_signal)
                asked.add(pid)
        try:
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                left.discard(pid)
                reaped(pid, status, usage)
        except ChildProcessError:
            return
        time.sleep(0.01)


def children() -> "set[int]":
    """Return the pids of this process's children (proc(5): /proc/PID/task/TID/children, needs CONFIG_PROC_CHILDREN)."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as stream:
            return {int(pid) for pid in stream.read().split()}
    except OSError:
        return set()


def _prctl(option: int, value: int) -> int:
    status: int = ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
    return status
