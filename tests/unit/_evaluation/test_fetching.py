# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user says of a host is checked before anything is measured, because no host sees it."""

from __future__ import annotations

import types

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation.fetching import FetchingAction


class Action(FetchingAction):
    def run(self, tmp=None, task_vars=None):
        """Its callers call its parts."""


def stated(**arguments):
    action = Action.__new__(Action)
    action._task = types.SimpleNamespace(args=arguments)
    return action.stated()


def test_numbers_of_a_command_line_are_numbers():
    assert stated(price_per_hour="0.5", nominal_ghz="2.749", licence_per="core") == {
        "price_per_hour": 0.5,
        "nominal_ghz": 2.749,
        "licence_per": "core",
    }
    assert stated() == {"price_per_hour": None, "nominal_ghz": None, "licence_per": None}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("price_per_hour", "0"),
        ("price_per_hour", -1),
        ("price_per_hour", "nan"),
        ("nominal_ghz", "fast"),
        ("nominal_ghz", 2749),
        ("nominal_ghz", "inf"),
        ("nominal_ghz", [2.7]),
        ("nominal_ghz", 10**400),
        ("licence_per", "socket"),
    ],
)
def test_what_is_not_valid_is_named(name, value):
    with pytest.raises(HostFailedError) as raised:
        stated(**{name: value})
    assert raised.value.answer["msg"].startswith(f"{name} is ") and "it must be " in raised.value.answer["msg"]
