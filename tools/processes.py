# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that a tool started: ending them with all that they started themselves."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time

ENDING_SECONDS = 60


def end_children() -> None:
    """End all that this process started, also what is in sessions of its own, as Ansible's workers are.

    Whoever is ended by a signal may not know yet what it has just started: the signal may come before Popen returns.

    SIGTERM first: the laboratory ends the guest that it is making a snapshot of, which is no child of anybody's.
    """
    pids = descendants(os.getpid())
    for number, seconds in ((signal.SIGTERM, ENDING_SECONDS), (signal.SIGKILL, 0)):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + seconds
        while any(map(lives, pids)) and time.monotonic() < until:
            time.sleep(0.1)


def lives(pid: int) -> bool:
    """Return whether there is such a process, and it is no zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def descendants(pid: int) -> list[int]:
    """Pids of the children of a process, their children, and so on."""
    parents: dict[int, list[int]] = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name before the last bracket may hold anything; behind it stand state and parent.
            parents.setdefault(int(stat.read_text(errors="replace").rpartition(")")[2].split()[1]), []).append(
                int(stat.parent.name)
            )
    pids = parents.get(pid, [])
    for child in pids:
        pids.extend(parents.get(child, []))
    return pids
