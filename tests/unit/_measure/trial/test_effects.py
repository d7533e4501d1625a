# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One effect has one number: the metric's own change, its interval in the same direction, and a word."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import effects

LOSS = {"ratio": 0.8, "ci_low": 0.75, "ci_high": 0.9, "verdict": "loss"}


@pytest.mark.parametrize(
    ("better", "compared", "said"),
    [
        ("higher", LOSS, "−20 % (−25 to −10 %), worse"),
        ("lower", LOSS, "+25 % (+11 to +33 %), worse"),
        (
            "lower",
            {**LOSS, "ci_low": None, "ci_high": None, "verdict": "inconclusive"},
            "+25 % (no interval), not decided",
        ),
    ],
)
def test_a_change_is_that_of_the_metric_and_its_interval_has_its_direction(better, compared, said):
    assert effects.said(effects.fields(compared, better)) == said


def side(ratio, verdict="inconclusive", metric="p99", **other):
    about = {"candidate": "smt_off", "unit": "", "better": "lower", "per": None, "margin": 0.01}
    return {**about, "metric": metric, "ratio": ratio, "verdict": verdict, **other}


MEDIAN = side(1.2, "gain", "median_response")


@pytest.mark.parametrize(
    ("other", "disagree"),
    [
        (side(0.7, "loss", "p99_response"), True),
        # An estimate that is not decided points somewhere only beyond the margin.
        (side(0.95, metric="p99_response"), True),
        (side(0.995, metric="p99_response"), False),
        (side(1.3, "gain", "p99_response"), False),
        (side(0.999, "equivalent", "p99_response"), False),
        # These are of different things.
        (side(0.7, "loss", "p99_wait"), False),
        (side(0.7, "loss", "p99_response", unit="s"), False),
        (side(0.7, "loss", "p99_response", better="higher"), False),
    ],
)
def test_metrics_of_one_thing_that_point_different_ways_disagree(other, disagree):
    assert effects.disagreeing([MEDIAN, other]) == ([[MEDIAN, other]] if disagree else [])
    assert effects.disagreeing([{**MEDIAN, "verdict": "inconclusive"}, side(0.9, metric="p99_response")]) == []
