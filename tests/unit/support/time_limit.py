# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sample's time limit that waits for a state of its command."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import runner


def not_before(monkeypatch, done):
    """Extend the time limit of each sample by a second at a time until ``done()`` is true."""
    await_ends = runner._await_ends

    def patient(workers, start, timeout):
        while await_ends([worker for worker in workers if worker.end is None], start, timeout):
            if done():
                return True
            timeout += 1
        return False

    monkeypatch.setattr(runner, "_await_ends", patient)
