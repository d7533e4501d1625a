# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A process and what it started, ended whole: also what has left its parent, its group or its session."""

from __future__ import annotations

import ctypes
import os
import signal
import time

# How long a process may take to follow a polite signal before it gets SIGKILL.
TERM_SECONDS = 1.0
# prctl(2): be signalled when the parent dies; become the parent of descendants whose own parent has gone (Linux 3.4).
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# No program that this process executes from now on gives it rights, by set-user-ID or by capabilities of its file (Linux 3.5).
PR_SET_NO_NEW_PRIVS = 38


def die_with_parent(number):
    """Have the kernel send this process a signal when its parent dies. A change of user takes it away again (prctl(2))."""
    _prctl(PR_SET_PDEATHSIG, number)


def adopt_orphans():
    """Become the parent of every descendant whose own parent ends."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def gain_no_privileges():
    """Have this process and all its descendants never gain rights by what they execute.

    Raises:
        OSError: the kernel does not do so.
    """
    if _prctl(PR_SET_NO_NEW_PRIVS, 1) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"PR_SET_NO_NEW_PRIVS: {os.strerror(number)}")


def end_children(reaped, waiting=frozenset(), polite=signal.SIGTERM, patience=TERM_SECONDS):
    """End all children, and theirs as they become children of this process, which has to adopt orphans.

    Args:
        reaped: called with (pid, status, rusage) of each that ended.
        waiting: pids known to be children, for a kernel that does not list them.
        polite: the signal that asks; SIGKILL follows after ``patience`` seconds.
    """
    left = set(waiting)
    begun = time.monotonic()
    asked = set()
    while True:
        pids = children() or left
        if not pids:
            return
        late = time.monotonic() - begun >= patience
        for pid in pids:
            # Asked once: a server takes a second request for impatience.
            if late or pid not in asked:
                os.kill(pid, signal.SIGKILL if late else polite)
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


def children():
    """Pids (a set) of this process's children (proc(5): /proc/PID/task/TID/children, needs CONFIG_PROC_CHILDREN)."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
            return {int(pid) for pid in listed.read().split()}
    except OSError:
        return set()


def _prctl(option, value):
    return ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)
