# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pause after a switch: as long as the first block shows to be needed."""

from __future__ import annotations

import types

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import settling


class Host:
    """A host with a clock of its own, whose CPUs are busy for some time after each switch."""

    def __init__(self, busy_seconds, quiet=0.1, window=settling.WINDOW_SECONDS):
        self.now, self.until = 0.0, 0.0
        self.busy_seconds, self.quiet, self.window = busy_seconds, quiet, window

    def busy(self):
        self.sleep(self.window)
        return 2.0 if self.now <= self.until + 1e-9 else self.quiet

    def sleep(self, seconds):
        self.now += seconds


@pytest.mark.parametrize(
    ("host", "given", "seconds", "first"),
    [
        (Host(0.4), None, 0.6, 1.0),
        (Host(2.0), None, 3.0, 2.3),
        (Host(60.0), None, 5.0, 5.0),
        # One that is busy anyway is not waited for, nor are windows that take longer than they should.
        (Host(0.0, quiet=3.0), None, 0.2, 1.0),
        (Host(2.0), 0.3, 0.3, 0.3),
    ],
)
def test_the_pause_is_half_as_long_again_as_the_host_was_busier_than_before(monkeypatch, host, given, seconds, first):
    monkeypatch.setattr(settling, "time", types.SimpleNamespace(monotonic=lambda: host.now, sleep=host.sleep))
    waits, took = settling.Settling(given, host.busy), []
    for _switch in range(2):
        waits.before_switch()
        begun, host.until = host.now, host.now + host.busy_seconds
        waits.wait()
        took.append(host.now - begun)
    assert took == [pytest.approx(first, abs=0.11)] * 2
    assert waits.choose() == (given is None) and waits.seconds == pytest.approx(seconds, abs=0.16)
    # Without a switch nothing is chosen.
    assert not settling.Settling(None).choose()
