# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waivers by the calendar: which day is the last one, wherever somebody wrote it and whoever looks."""

from __future__ import annotations

import datetime
import json

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import (
    compliance,
    compliance_report,
    rollout,
    waivers,
)

NEXT = {"reason": "the vendor counts threads", "owner": "jo"}
NO_CHANGE = {"running": None, "configured": None, "memory": False, "reboot": False}
at = datetime.datetime.fromisoformat


def zone(hours):
    return datetime.timezone(datetime.timedelta(hours=hours))


def written(until, quoted=False):
    """A waiver as a file of variables has it."""
    day = json.dumps(until) if quoted else until
    return yaml.safe_load(f"{{until: {day}, reason: {NEXT['reason']}, owner: {NEXT['owner']}}}")


def drifted(status="drifted"):
    found = compliance.refused("running: CPUs 2-3 are online", status, wanted="disabled", hardware_class="c1")
    return {**found, "change": {**NO_CHANGE, "running": {"state": "disabled"}}}


# What was written, the last day that it stands for, a moment on that day, and one after it.
CALENDAR = [
    ("2027-03-01", "2027-03-01", "2027-03-01T23:59:59+00:00", "2027-03-02T00:00:00+00:00"),
    # The same day for people who are on another one.
    ("2027-03-01", "2027-03-01", "2027-03-02T12:59:59+13:00", "2027-03-02T13:00:00+13:00"),
    ("2027-03-01", "2027-03-01", "2027-03-01T15:59:59-08:00", "2027-03-01T16:00:00-08:00"),
    ("2028-02-29", "2028-02-29", "2028-02-29T12:00:00+00:00", "2028-03-01T00:00:00+00:00"),
    # The hour that a clock of summer time has twice.
    ("2027-10-31", "2027-10-31", "2027-11-01T00:59:59+01:00", "2027-11-01T01:00:00+01:00"),
    # A moment stands for the day that it is in, of UTC.
    ("2027-03-01T00:00:00Z", "2027-03-01", "2027-03-01T23:59:59+00:00", "2027-03-02T00:00:00+00:00"),
    ("2027-03-01 18:00:00", "2027-03-01", "2027-03-01T23:59:59+00:00", "2027-03-02T00:00:00+00:00"),
    ("2027-03-01T23:30:00-05:00", "2027-03-02", "2027-03-02T23:59:59+00:00", "2027-03-03T00:00:00+00:00"),
    ("2027-03-01T00:30:00+09:00", "2027-02-28", "2027-02-28T23:59:59+00:00", "2027-03-01T00:00:00+00:00"),
    ("9999-12-31", "9999-12-31", "2027-03-01T00:00:00+00:00", None),
]


@pytest.mark.parametrize("quoted", [False, True], ids=["YAML's own", "text"])
@pytest.mark.parametrize(("until", "last", "during", "after"), CALENDAR)
def test_the_last_day_counts_and_days_are_those_of_utc(until, last, during, after, quoted):
    value = written(until, quoted)
    assert isinstance(value["until"], str if quoted else datetime.date)
    waiver = waivers.parse(value)
    assert waiver == waivers.Waiver(datetime.date.fromisoformat(last), **NEXT)
    assert waivers.applied(drifted(), waiver, at(during))["status"] == "waived"
    if after:
        found = waivers.applied(drifted(), waiver, at(after))
        assert (found["status"], found["waiver"]["state"], found["waiver"]["days_left"]) == ("drifted", "expired", -1)
        assert waivers.end(found["waiver"]) == at(after).timestamp()


@pytest.mark.parametrize(
    "until",
    [
        *("2027-3-1", "01.03.2027", "03/01/2027", "20270301", 20270301, 1803859200.0, "2027-W09-1", "2027-02-29"),
        *("2027-060", "2027-13-01", "0000-01-01", "tomorrow", "+30d", "", " ", True, [], {}, ["2027-03-01"]),
        *("2027-03-01T25:00:00Z", "2027-03-01T00:00:00Europe/Berlin", "2027-03-01T00:00:00+99:00", "9" * 5000),
        *("\u0662\u0660\u0662\u0667-03-01", "2027-03-01\x00", "2027-03-01\n2028-01-01"),
        datetime.datetime(1, 1, 1, tzinfo=zone(14)),
        datetime.datetime(9999, 12, 31, 23, tzinfo=zone(-5)),
    ],
)
def test_what_is_no_day_is_refused_and_waives_nothing(until):
    with pytest.raises(waivers.WaiverError) as failure:
        waivers.parse({"until": until, **NEXT})
    assert "until" in str(failure.value) and str(failure.value).isprintable() and len(str(failure.value)) < 300


@pytest.mark.parametrize("name", ["until", "reason", "owner"])
@pytest.mark.parametrize("change", ["missing", None, "", " \n", 7, ["x"], {"a": 1}])
def test_a_waiver_says_until_when_why_and_who(name, change):
    value = written("2027-03-01")
    value.pop(name) if change == "missing" else value.update({name: change})
    with pytest.raises(waivers.WaiverError, match=name):
        waivers.parse(value)


@pytest.mark.parametrize("value", ["2027-03-01", True, 1, ["2027-03-01"], {**written("2027-03-01"), "untill": 1}])
def test_what_is_no_waiver_is_refused(value):
    with pytest.raises(waivers.WaiverError, match="smt_policy_waiver"):
        waivers.parse(value)


@pytest.mark.parametrize("value", [None, False, "", {}])
def test_a_host_of_a_group_with_a_waiver_may_have_none(value):
    assert waivers.parse(value) is None


def test_a_hostile_reason_is_one_line_that_can_be_read():
    reason = "a\x1b[31m\n<b>{{ 1 }}\u202e" + "x" * 9000
    found = waivers.parse({"until": "2027-03-01", "reason": reason, "owner": "\x07o\u2028p"})
    assert all(text.isprintable() and len(text) <= waivers.MAX_TEXT for text in (found.reason, found.owner))


@pytest.mark.parametrize(
    ("days", "state", "words"),
    [
        (31, "valid", "waived until 2027-03-01 (UTC) by jo: the vendor counts threads"),
        (30, "ending", "waived until 2027-03-01 (UTC, 30 more days) by jo: the vendor counts threads"),
        (1, "ending", "waived until 2027-03-01 (UTC, 1 more day) by jo: the vendor counts threads"),
        (0, "ending", "waived until 2027-03-01 (UTC, its last day) by jo: the vendor counts threads"),
        (-1, "expired", "its waiver ended with 2027-03-01 (UTC) by jo: the vendor counts threads"),
    ],
)
def test_a_waiver_is_named_thirty_days_before_it_ends(days, state, words):
    now = at("2027-03-01T12:00:00+00:00") - datetime.timedelta(days=days)
    found = waivers.applied(drifted(), waivers.parse(written("2027-03-01")), now)
    assert found["waiver"] == {"until": "2027-03-01", "state": state, "days_left": days, **NEXT}
    assert found["sentence"] == f"running: CPUs 2-3 are online. {words}"
    said = compliance_report.sentence([("a", found), ("b", drifted("compliant"))])
    assert ("a (2027-03-01)" in said) == (state != "valid")
    assert compliance_report.exit_worthy([("a", found)]) == (state == "expired")


@pytest.mark.parametrize("status", [one for one in compliance.STATUSES if one not in ("drifted", "waived")])
def test_a_waiver_excuses_a_difference_and_nothing_else_and_keeps_its_host_as_it_is(status):
    waiver = waivers.parse(written("2027-03-01"))
    before = {**drifted(status), "pending_rollback": {"since": None, "back_to": None}}
    before["change"]["reboot"] = True
    found = waivers.applied(before, waiver, at("2026-03-01T00:00:00+00:00"))
    assert (found["status"], found["sentence"], found["change"]) == (status, before["sentence"], NO_CHANGE)
    assert not rollout.is_pending(found, reboot_ok=True)
    over = waivers.applied(before, waiver, at("2027-03-02T00:00:00+00:00"))
    assert over["change"] == before["change"] and rollout.is_pending(over, True) == (status == "compliant")


def test_a_notice_of_a_fleet_names_a_few():
    waiver, now = waivers.parse(written("2027-03-01")), at("2027-02-20T00:00:00+00:00")
    fleet = [(f"h{number}", waivers.applied(drifted(), waiver, now)) for number in range(9)]
    assert waivers.notice(fleet, 2) == "Waivers that end within 30 days: h0 (2027-03-01), h1 (2027-03-01) and 7 more."
    over = [("h", waivers.applied(drifted(), waiver, at("2027-03-02T00:00:00+00:00")))]
    assert waivers.notice(over, 2) == "Waivers that ended: h (2027-03-01)."
    assert waivers.notice([("h", waivers.applied(drifted("compliant"), waiver, now))], 2) == ""
