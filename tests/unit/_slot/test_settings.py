# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whom a host asks for a reboot."""

from __future__ import annotations

import json
import shlex

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._slot import settings
from ansible_collections.threadwise.smt.plugins.module_utils._slot.settings import Slot, SlotError

URL = "https://lock.example.com/base"


@pytest.mark.parametrize(
    ("given", "slot"),
    [
        (None, None),
        ({}, None),
        ({"fleetlock": URL + "/"}, Slot(fleetlock=URL)),
        ({"fleetlock": "http://[::1]:8080"}, Slot(fleetlock="http://[::1]:8080")),
        ({"acquire": ["a", ""], "release": ["b"]}, Slot(acquire=("a", ""), release=("b",))),
        ({"kured": "/var/run/reboot-required"}, Slot(kured="/var/run/reboot-required")),
    ],
)
def test_what_is_one(given, slot):
    assert settings.parse(given) == slot
    if slot is not None:
        assert settings.parse(slot.plain) == slot


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ("https://lock.example.com", "it must be a mapping"),
        ({"fleetlock": URL, "kured": "/run/x"}, "it must be a mapping"),
        ({"acquire": ["a"]}, "it must be a mapping"),
        ({"acquire": "a --now", "release": ["b"]}, "acquire must be a list"),
        ({"acquire": ["a"], "release": []}, "release must be a list"),
        ({"acquire": [1], "release": ["b"]}, "acquire must be a list"),
        ({"fleetlock": "lock.example.com"}, "no address"),
        ({"fleetlock": "ftp://lock.example.com"}, "no address"),
        ({"fleetlock": "https://"}, "no address"),
        ({"fleetlock": "https://lock.example.com:port"}, "no address"),
        ({"fleetlock": "https://lock.example.com/a b"}, "no address"),
        ({"fleetlock": 1}, "no address"),
        ({"fleetlock": "https://jo:secret@lock.example.com"}, "leave out a user"),
        ({"fleetlock": "https://lock.example.com?token=secret"}, "leave out a user"),
        ({"kured": "/etc/reboot-required"}, "below /run"),
        ({"kured": "/run/../etc/x"}, "below /run"),
        ({"kured": "reboot-required"}, "below /run"),
    ],
)
def test_what_is_none_is_refused_and_not_shown(given, part):
    with pytest.raises(SlotError, match=part) as raised:
        settings.parse(given)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("group", "host", "part"),
    [
        ("db_1", "a", "smt_policy_group is"),
        ("", "a", "smt_policy_group is"),
        ("x" * 254, "a", "smt_policy_group is"),
        ("db\n", "a", "smt_policy_group is"),
        ("db", "a b", "the host's name"),
        ("db", "", "the host's name"),
    ],
)
def test_names_that_a_server_does_not_take(group, host, part):
    with pytest.raises(SlotError, match=part):
        settings.check(Slot(fleetlock=URL), group, host)
    settings.check(Slot(acquire=("a",), release=("b",)), group, host)


def test_names_that_it_takes():
    settings.check(Slot(fleetlock=URL), "eu-1.db", "web_01:2222")


def test_the_command_that_releases_is_whole():
    plain = settings.release_command(Slot(fleetlock=URL), "db", "web01.example.com")
    assert '"' not in plain and "\\" not in plain
    words = shlex.split(plain)
    assert words[:5] == ["ansible", "localhost", "-m", "threadwise.smt.smt_slot", "-a"]
    assert words[5] == f"state=released slot=fleetlock={URL} group=db host=web01.example.com"
    for url, host in ((URL, "it's"), ("http://[::1]:8080", "a"), (URL, "a=b,c=d")):
        given = json.loads(shlex.split(settings.release_command(Slot(fleetlock=url), "db", host))[5])
        assert given == {"state": "released", "slot": {"fleetlock": url}, "group": "db", "host": host}
    pair = Slot(acquire=("a",), release=("consul lock", "$(id)"))
    assert shlex.split(settings.release_command(pair, "db", "h")) == list(pair.release)
