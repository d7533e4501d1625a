# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guardrails: beyond for long enough, or not known for too long."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial import guardrails


def fed(values, above=None, below=None, seconds=0.0):
    """What a guardrail says of a value each ten seconds."""
    guard = guardrails.Guard("errors", above, below, seconds, blind_seconds=60.0)
    return [guard.feed(10.0 * number, value, "it did not answer") for number, value in enumerate(values)]


def test_at_once_without_a_time():
    assert fed([0.5, 1.5], above=1.0) == [None, "the guardrail errors was breached: above 1 (1.5)"]
    assert fed([1.0, 0.5], below=1.0) == [None, "the guardrail errors was breached: below 1 (0.5)"]


def test_only_what_lasts():
    assert fed([2.0, 2.0, 0.5, 2.0, 2.0, 2.0], above=1.0, seconds=20.0)[:5] == [None] * 5
    assert fed([2.0, 2.0, 2.0], above=1.0, seconds=20.0)[2] == "the guardrail errors was breached: above 1 for 20 s (2)"


def test_a_value_that_is_missing_does_not_end_what_lasts():
    assert fed([2.0, None, None], above=1.0, seconds=20.0)[2] == "the guardrail errors was breached: above 1 for 20 s"


def test_nothing_known_for_too_long():
    said = fed([0.5] + [None] * 7, above=1.0)
    assert said[:7] == [None] * 7
    assert said[7] == "nothing was known of errors for 60 s: it did not answer"


@pytest.mark.parametrize("value", [0.5, None])
def test_a_gap_that_ends_in_time_is_none(value):
    assert fed([value] + [None] * 5 + [0.5] + [None] * 5, above=1.0) == [None] * 12
