# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom a host asks for a reboot, and in which hours, as users write it."""

from __future__ import annotations

import calendar
import json
import shlex
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import request, settings, window
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import Slot, SlotError

URL = "https://lock.example.com/base"
FROM_2_TO_5 = {"from": "02:00", "to": "05:00"}


@pytest.mark.parametrize(
    ("given", "slot"),
    [
        ({"fleetlock": URL + "/"}, Slot(fleetlock=URL)),
        ({"fleetlock": "http://[::1]:8080"}, Slot(fleetlock="http://[::1]:8080")),
        ({"acquire": ["a", ""], "release": ["b"]}, Slot(acquire=("a", ""), release=("b",))),
        ({"kured": "/var/run/reboot-required"}, Slot(kured="/var/run/reboot-required")),
    ],
)
def test_what_is_a_slot(given, slot):
    assert settings.parse(given) == settings.parse(slot.plain) == slot


def test_what_is_empty_is_none():
    for parse in (settings.parse, window.parse, request.parse_alerts):
        assert parse(None) is None and parse({}) is None


MAPPING = "it must be a mapping"
NO_ADDRESS = "fleetlock is no address such as https://fleetlock.example.com"
MORE = "fleetlock has more in it than an address: leave out a user, a password, ? and #"
KURED = "kured must be the path of its sentinel below /run or /var/run"
QUERY = "query must be one of PromQL, such as"
ALERTS = {"prometheus": "http://p:9090", "query": "up"}


@pytest.mark.parametrize(
    ("parse", "given", "said"),
    [
        *((settings.parse, one, MAPPING) for one in (URL, {"fleetlock": URL, "kured": "/run/x"}, {"acquire": ["a"]})),
        (settings.parse, {"acquire": "a --now", "release": ["b"]}, "acquire must be a list of texts"),
        (settings.parse, {"acquire": ["a"], "release": []}, "release must be a list of texts"),
        (settings.parse, {"acquire": [1], "release": ["b"]}, "acquire must be a list of texts"),
        *((settings.parse, {"fleetlock": one}, NO_ADDRESS) for one in ("l.example.com", "ftp://l.example.com", 1)),
        *((settings.parse, {"fleetlock": f"https://{one}"}, NO_ADDRESS) for one in ("", "l:port", "l.example.com/a b")),
        *((settings.parse, {"fleetlock": f"https://{one}"}, MORE) for one in ("jo:secret@l", "l?token=secret")),
        *((settings.parse, {"kured": one}, KURED) for one in ("/etc/reboot-required", "/run/../etc/x", "reboot")),
        *((request.parse_alerts, one, MAPPING) for one in ("x", {"prometheus": "http://p:9090"})),
        *((request.parse_alerts, {**ALERTS, "query": one}, QUERY) for one in (" ", ["up"], "x" * 2001)),
        (request.parse_alerts, {**ALERTS, "prometheus": "p:9090"}, "prometheus is no address such as"),
        (request.parse_alerts, {**ALERTS, "prometheus": "http://me:secret@p"}, "prometheus has more in it than an"),
        *((window.parse, one, MAPPING) for one in ({"from": "02:00"}, {**FROM_2_TO_5, "zone": "UTC"}, ["02:00"])),
        *((window.parse, {"from": one, "to": "02:00"}, "it begins when it ends") for one in ("02:00", "24:00")),
        *((window.parse, {**FROM_2_TO_5, "from": one}, "its from must be a time of UTC") for one in (2, True, "2am")),
        (window.parse, {**FROM_2_TO_5, "to": "25:00"}, "its to must be a time of UTC"),
        *((window.parse, {**FROM_2_TO_5, "days": one}, "its days must be a list") for one in ([], ["saturday"], "sat")),
    ],
)
def test_what_is_none_is_refused_and_not_shown(parse, given, said):
    with pytest.raises(SlotError) as raised:
        parse(given)
    assert said in str(raised.value) and "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("group", "host", "said"),
    [
        *((one, "a", "smt_policy_group is ") for one in ("db_1", "", "x" * 254, "db\n")),
        *(("db", one, "the host's name ") for one in ("a b", "")),
    ],
)
def test_names_that_a_server_does_not_take(group, host, said):
    with pytest.raises(SlotError, match=said):
        settings.check(Slot(fleetlock=URL), group, host)
    settings.check(Slot(acquire=("a",), release=("b",)), group, host)
    settings.check(Slot(fleetlock=URL), "eu-1.db", "web_01:2222")


def test_the_command_that_releases_is_whole():
    plain = settings.release_command(Slot(fleetlock=URL), "db", "web01.example.com")
    assert '"' not in plain and "\\" not in plain
    *words, last = shlex.split(plain)
    assert words == ["ansible", "localhost", "-m", "threadwise.smt.smt_slot", "-a"]
    assert last == f"state=released slot=fleetlock={URL} group=db host=web01.example.com"
    for url, host in ((URL, "it's"), ("http://[::1]:8080", "a"), (URL, "a=b,c=d")):
        given = json.loads(shlex.split(settings.release_command(Slot(fleetlock=url), "db", host))[5])
        assert given == {"state": "released", "slot": {"fleetlock": url}, "group": "db", "host": host}
    pair = Slot(acquire=("a",), release=("consul lock", "$(id)"))
    assert shlex.split(settings.release_command(pair, "db", "h")) == list(pair.release)


def at(text):
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M")))


# 2026-11-28 is a Saturday.
@pytest.mark.parametrize(
    ("given", "moment", "hours"),
    [
        ({"days": ["sat", "sun"], **FROM_2_TO_5}, "2026-11-28 02:00", 0),
        ({"days": ["sat", "sun"], **FROM_2_TO_5}, "2026-11-28 05:00", 21),
        ({"days": ["Sat"], "from": "22:00", "to": "04:00"}, "2026-11-29 03:59", 0),
        ({"days": ["sat"], "from": "22:00", "to": "04:00"}, "2026-11-28 03:00", 19),
        ({"days": ["sun"], "from": "00:00", "to": "24:00"}, "2026-11-29 23:59", 0),
        ({"days": ["sun"], "from": "00:00", "to": "24:00"}, "2026-11-30 00:00", 6 * 24),
        ({"from": "9:30", "to": "10:00"}, "2026-11-30 09:00", 0.5),
        # 22:00 and 6:00 without quotes in YAML 1.1.
        ({"from": 22 * 60, "to": 6 * 60}, "2026-11-30 06:00", 16),
    ],
)
def test_when_a_window_is_open(given, moment, hours):
    assert window.parse(given).opens_in(at(moment)) == hours * 3600
