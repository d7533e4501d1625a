# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long one waits for a quiet host, and what is said of a busy one."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import environment
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure import quiet


@pytest.mark.parametrize(
    ("given", "seconds"), [("10m", 600), ("90s", 90), ("1h", 3600), ("1.5 min", 90), (0, 0), ("0", 0), (30, 30)]
)
def test_times(given, seconds):
    assert quiet.seconds(given) == seconds


@pytest.mark.parametrize("given", ["", "-1", "10x", "25h", "m", True, [10], {}, "1e3", "nan", "10m\n10"])
def test_what_is_no_time_is_refused(given):
    with pytest.raises(quiet.QuietError, match="it must be a time such as 90s, 10m or 1h, at most a day, or 0"):
        quiet.seconds(given)


def test_what_widens_intervals_is_said_before_the_budget_is_spent(monkeypatch):
    busy, governor = environment.announcement(7.0, 2, "powersave")
    assert "7.0 of 2 CPUs" in busy and "smt_eval_wait_quiet=10m" in busy and "powersave" in governor
    assert environment.announcement(0.2, 2, "performance") == environment.announcement(0.0, 2, None) == []
    assert quiet.is_busy(0.2) and not quiet.is_busy(0.05)
    # More processes than CPUs want more than the CPUs have.
    monkeypatch.setattr(environment.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(environment.files.HostFs, "read", lambda _self, _path: "cpu  1 2\nprocs_running 8\n")
    assert environment.wanted_by_others()[0] >= 7.0
