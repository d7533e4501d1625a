# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ending a playbook in the middle, as a terminal or a lost controller does."""

from __future__ import annotations

import contextlib
import os
import subprocess


def interrupt(process, number):
    """Send a signal to a process that leads its group and to all of the group, until the process has ended.

    A worker of Ansible that ends by Ctrl-C may hold a lock that its main process then waits for: a person presses the
    keys again.
    """
    while process.poll() is None:
        os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
