# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Guardrails: beyond for long enough, or not known for too long."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import guardrails


@pytest.mark.parametrize(
    ("values", "limits", "said"),
    [
        ([0.5, 1.5], {"above": 1.0}, "the guardrail errors was breached: above 1 (1.5)"),
        ([1.0, 0.5], {"below": 1.0}, "the guardrail errors was breached: below 1 (0.5)"),
        ([2.0, 2.0, 2.0], {"above": 1.0, "seconds": 20.0}, "the guardrail errors was breached: above 1 for 20 s (2)"),
        ([2.0, 2.0, 0.5, 2.0, 2.0], {"above": 1.0, "seconds": 20.0}, None),
        # A value that is missing does not end what lasts.
        ([2.0, None, None], {"above": 1.0, "seconds": 20.0}, "the guardrail errors was breached: above 1 for 20 s"),
        ([0.5, *[None] * 7], {"above": 1.0}, "nothing was known of errors for 60 s: it did not answer"),
        ([0.5, *[None] * 5, 0.5, *[None] * 5], {"above": 1.0}, None),
        ([*[None] * 6, 0.5, *[None] * 5], {"above": 1.0}, None),
    ],
)
def test_what_a_guardrail_says_of_a_value_each_ten_seconds(values, limits, said):
    guard = guardrails.Guard("errors", **{"above": None, "below": None, "seconds": 0.0, **limits}, blind_seconds=60.0)
    found = [guard.feed(10.0 * number, value, "it did not answer") for number, value in enumerate(values)]
    assert found == [*[None] * (len(values) - 1), said]
