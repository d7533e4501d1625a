# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Processes that a tool started: ending one with all that it started itself."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import time

ENDING_SECONDS = 60


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process with all that it started, also those in sessions of their own, as Ansible's workers are.

    SIGTERM first: the laboratory ends the guest that it is making a snapshot of, which is no child of anybody's.
    """
    pids = [process.pid, *descendants(process.pid)]
    for number, seconds in ((signal.SIGTERM, ENDING_SECONDS), (signal.SIGKILL, 0)):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        until = time.monotonic() + seconds
        while any(map(lives, pids)) and time.monotonic() < until:
            process.poll()
            time.sleep(0.1)
    process.wait()


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
    found = parents.get(pid, [])
    for child in found:
        found.extend(parents.get(child, []))
    return found
