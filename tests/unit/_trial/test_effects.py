# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One effect has one number: the metric's own change, its interval in the same direction, and a word."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial import effects

LOSS = {"ratio": 0.8, "ci_low": 0.75, "ci_high": 0.9, "verdict": "loss"}


@pytest.mark.parametrize(
    ("better", "said"), [("higher", "−20 % (−25 to −10 %), worse"), ("lower", "+25 % (+11 to +33 %), worse")]
)
def test_a_change_is_that_of_the_metric_and_its_interval_has_its_direction(better, said):
    found = effects.fields(LOSS, better)
    assert effects.said(found) == said
    assert found["change_low"] < found["change"] < found["change_high"] and found["effect"] == "worse"


def test_a_change_without_an_interval():
    found = effects.fields({**LOSS, "ci_low": None, "ci_high": None, "verdict": "inconclusive"}, "lower")
    assert (
        effects.said(found) == "+25 % (no interval), not decided"
        and found["change_low"] is found["change_high"] is None
    )


def test_an_estimate_that_is_not_decided_points_somewhere_only_beyond_the_margin():
    def side(ratio):
        return {
            "candidate": "smt_off", "metric": "p99", "unit": "s", "better": "lower", "per": None,
            "ratio": ratio, "verdict": "inconclusive", "margin": 0.01, "effect": "not decided",
        }  # fmt: skip

    decided = {**side(1.2), "metric": "p50", "verdict": "gain", "effect": "better"}
    assert effects.disagreeing([decided, side(0.95)]) == [[decided, side(0.95)]]
    assert effects.disagreeing([decided, side(0.995)]) == [] == effects.disagreeing([side(1.2), side(0.9)])
