# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long one waits for a quiet host, and what is said of a busy one."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import environment
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import quiet


@pytest.mark.parametrize(
    ("given", "seconds"), [("10m", 600), ("90s", 90), ("1h", 3600), ("1.5 min", 90), (0, 0), ("0", 0), (30, 30)]
)
def test_times(given, seconds):
    assert quiet.seconds(given) == seconds


@pytest.mark.parametrize("given", ["", "-1", "10x", "25h", "m", True, [10], {}, "1e3", "nan", "10m\n10"])
def test_what_is_no_time_is_refused(given):
    with pytest.raises(quiet.QuietError, match="it must be a time such as 90s, 10m or 1h, at most a day"):
        quiet.seconds(given)


def test_what_widens_intervals_is_said_before_the_budget_is_spent():
    busy, governor = environment.announcement(7.0, 2, "powersave")
    assert busy.startswith("Busy now: other work wants 7.0 of 2 CPUs") and "smt_eval_wait_quiet=10m" in busy
    assert "powersave" in governor
    assert environment.announcement(0.2, 2, "performance") == environment.announcement(0.0, 2, None) == []


def test_more_processes_than_cpus_are_more_than_the_cpus_have(monkeypatch):
    monkeypatch.setattr(environment.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(environment.files.HostFs, "read", lambda _self, _path: "cpu  1 2\nprocs_running 8\n")
    wanted, cpus = environment.wanted_by_others()
    assert wanted >= 7.0 and cpus >= 1
