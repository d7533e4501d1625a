# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hours in which hosts may be rebooted."""

from __future__ import annotations

import calendar
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._slot import settings, window

HOUR = 3600


def at(text):
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M")))


# 2026-11-28 is a Saturday.
@pytest.mark.parametrize(
    ("given", "moment", "hours"),
    [
        ({"days": ["sat", "sun"], "from": "02:00", "to": "05:00"}, "2026-11-28 02:00", 0),
        ({"days": ["sat", "sun"], "from": "02:00", "to": "05:00"}, "2026-11-28 01:00", 1),
        ({"days": ["sat", "sun"], "from": "02:00", "to": "05:00"}, "2026-11-28 05:00", 21),
        ({"days": ["sat"], "from": "02:00", "to": "05:00"}, "2026-11-28 05:00", 7 * 24 - 3),
        ({"days": ["Sat"], "from": "22:00", "to": "04:00"}, "2026-11-29 03:59", 0),
        ({"days": ["sat"], "from": "22:00", "to": "04:00"}, "2026-11-28 03:00", 19),
        ({"days": ["sun"], "from": "00:00", "to": "24:00"}, "2026-11-29 23:59", 0),
        ({"days": ["sun"], "from": "00:00", "to": "24:00"}, "2026-11-30 00:00", 6 * 24),
        ({"from": "9:30", "to": "10:00"}, "2026-11-30 09:00", 0.5),
        # 22:00 and 6:00 without quotes in YAML 1.1.
        ({"from": 22 * 60, "to": "06:00"}, "2026-11-30 05:00", 0),
        ({"from": 22 * 60, "to": 6 * 60}, "2026-11-30 06:00", 16),
    ],
)
def test_when_it_is_open(given, moment, hours):
    assert window.parse(given).opens_in(at(moment)) == hours * HOUR


def test_the_moment_is_said_in_utc():
    found = window.parse({"days": ["sun"], "from": "02:00", "to": "03:00"})
    assert found.opens_at(at("2026-11-28 12:00")) == "Sun 2026-11-29 02:00 UTC"


def test_an_empty_one_is_none():
    assert window.parse(None) is None and window.parse({}) is None


@pytest.mark.parametrize(
    "given",
    [
        {"from": "02:00"},
        {"from": "02:00", "to": "03:00", "zone": "UTC"},
        ["02:00", "03:00"],
        {"from": "02:00", "to": "02:00"},
        {"from": "24:00", "to": "02:00"},
        {"from": 2, "to": 5},
        {"from": True, "to": "05:00"},
        {"from": "2am", "to": "5am"},
        {"from": "02:00", "to": "25:00"},
        {"from": "02:00", "to": "05:00", "days": []},
        {"from": "02:00", "to": "05:00", "days": ["saturday night"]},
        {"from": "02:00", "to": "05:00", "days": "sat"},
    ],
)
def test_what_is_none_is_refused(given):
    with pytest.raises(settings.SlotError):
        window.parse(given)
