# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pause after a switch: as long as the first block shows to be needed."""

from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import settling


class Host:
    """A host with a clock of its own, whose CPUs are busy for some time after each switch."""

    def __init__(self, busy_seconds, quiet=0.1, window=settling.WINDOW_SECONDS):
        self.now, self.until = 0.0, 0.0
        self.busy_seconds, self.quiet, self.window = busy_seconds, quiet, window

    def switch(self):
        self.until = self.now + self.busy_seconds

    def busy(self):
        self.sleep(self.window)
        return 2.0 if self.now <= self.until + 1e-9 else self.quiet

    def sleep(self, seconds):
        self.now += seconds


def chosen(host, monkeypatch, seconds=None):
    """The pause after two switches of a first block, and the seconds that each of these took."""
    monkeypatch.setattr(settling, "time", types.SimpleNamespace(monotonic=lambda: host.now, sleep=host.sleep))
    waits = settling.Settling(seconds, host.busy)
    took = []
    for _switch in range(2):
        waits.before_switch()
        host.switch()
        begun = host.now
        waits.wait()
        took.append(round(host.now - begun, 6))
    return waits.choose(), waits.seconds, took


@pytest.mark.parametrize(
    ("busy_seconds", "seconds", "first"),
    [(0.0, 0.2, 1.0), (0.4, 0.6, 1.0), (2.0, 3.0, 2.3), (60.0, 5.0, 5.0)],
)
def test_the_pause_is_half_as_long_again_as_the_host_was_busier_than_before(monkeypatch, busy_seconds, seconds, first):
    assert chosen(Host(busy_seconds), monkeypatch) == (
        True,
        pytest.approx(seconds, abs=0.16),
        [pytest.approx(first, abs=0.11)] * 2,
    )


def test_a_host_that_is_busy_anyway_is_not_waited_for(monkeypatch):
    assert chosen(Host(0.0, quiet=3.0), monkeypatch)[1] == 0.2


def test_windows_that_take_longer_than_they_should_are_no_time_that_the_host_needs(monkeypatch):
    assert chosen(Host(0.0, window=0.3), monkeypatch)[1] == 0.2


def test_a_pause_that_is_given_is_kept(monkeypatch):
    assert chosen(Host(2.0), monkeypatch, 0.3) == (False, 0.3, [0.3, 0.3])


def test_without_a_switch_nothing_is_chosen():
    assert not settling.Settling(None).choose()


def test_a_busy_process_of_this_machine_is_seen():
    cpu = min(os.sched_getaffinity(0))
    spinner = subprocess.Popen(
        [sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{cpu}])\nprint(flush=True)\nwhile True: pass"],
        stdout=subprocess.PIPE,
    )
    try:
        spinner.stdout.readline()
        seen = max(settling.busy_cpus() for _window in range(20))
    finally:
        spinner.kill()
        spinner.communicate()
    assert seen > 0.4
