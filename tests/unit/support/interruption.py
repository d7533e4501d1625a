# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ending a playbook in the middle, as a terminal or a lost controller does."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "tools"))
from processes import descendants


def interrupt(process, number):
    """Send a signal to a process that leads its group and to all of the group, until the process has ended."""
    while process.poll() is None:
        os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)


def lose(process):
    """Kill a playbook with all that it started, as with the machine that it ran on."""
    if process.poll() is None:
        os.kill(process.pid, signal.SIGSTOP)
        for pid in (*descendants(process.pid), process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    process.wait()
