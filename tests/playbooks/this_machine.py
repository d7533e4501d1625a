# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""This machine, for tests that evaluate it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import tempfile

# What an evaluation of this machine takes at least.
SHORT = {
    "smt_eval_arms": ["as_found"],
    "smt_eval_probe": "never",
    "smt_eval_budget": 1,
    "smt_eval_workloads": ["gzip"],
    "smt_eval_placements": ["single"],
    "smt_eval_sample_seconds": 0.05,
}


@contextlib.contextmanager
def this_machine():
    """No other test evaluates this machine at the same time: one evaluation at a time is all that a host allows."""
    with open(
        pathlib.Path(tempfile.gettempdir(), f"threadwise-smt-tests-{os.geteuid()}.lock"), "w", encoding="ascii"
    ) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
