# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user says of a host is checked before anything is measured, because no host sees it."""

from __future__ import annotations

import types

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.fetching import FetchingAction


class Action(FetchingAction):
    def run(self, tmp=None, task_vars=None):
        """Its callers call its parts."""


def stated(**arguments):
    action = Action.__new__(Action)
    action._task = types.SimpleNamespace(args=arguments)
    return list(action.stated().values())


def test_numbers_of_a_command_line_are_numbers():
    assert stated(price_per_hour="0.5", nominal_ghz="2.749", licence_per="core") == [0.5, "core", 2.749]
    assert stated() == [None] * 3


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("price_per_hour", ["0", -1, "nan"]),
        ("nominal_ghz", ["fast", 2749, "inf", [2.7], 10**400]),
        ("licence_per", ["socket"]),
    ],
)
def test_what_is_not_valid_is_named(name, values):
    for value in values:
        with pytest.raises(HostFailedError) as raised:
            stated(**{name: value})
        said = raised.value.answer["msg"]
        assert said.startswith(f"{name} is ") and "it must be " in said
