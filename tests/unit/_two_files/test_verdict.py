# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two files compared: what belongs together, which way is better, and that the sign is that of the truth."""

from __future__ import annotations

import math
import random

import pytest
from ansible_collections.threadwise.smt.plugins.filter.smt_compare import smt_compare
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._two_files import verdict
from ansible_collections.threadwise.smt.plugins.plugin_utils._two_files.measurements import MeasurementsError, Series

SLOW, FAST = (10.0, 10.1, 9.9, 10.2, 10.0), (8.0, 8.1, 7.9, 8.0, 8.2)


def compared(before, after, better=None):
    return verdict.compared(before, after, better, 0.01, 0.95)


def timed(*values, name="a", unit="s", better="lower"):
    return Series(name, unit, better, values)


def test_a_comparison_is_that_of_the_filter():
    (one,) = compared([timed(*SLOW)], [timed(*FAST)])["comparisons"]
    judged = smt_compare(list(SLOW), list(FAST), better="lower")
    assert {key: one[key] for key in judged} == judged
    assert one["verdict"] == "gain" and one["change"] < 0 and one["before_value"] > one["after_value"]


def test_what_a_terminal_shows():
    document = compared([timed(*SLOW, 9.0)], [timed(*FAST)])
    shown = verdict.lines(document, lambda value: f"{value:.1f}")
    assert shown[0].startswith("a: 10.1 -> 8.1 s, −19.9 % (") and shown[0].endswith("better, n = 5")
    assert shown[1:] == [verdict.ORDER, "a has 1 value more on one side, which is left out."]
    few = verdict.lines(compared([timed(1.0, 1.1)], [timed(2.0, 2.1)]), str)
    assert "not decided, n = 2" in few[0] and "2 blocks are too few" in few[1]


def test_one_measurement_on_each_side_is_compared_whatever_its_name():
    (one,) = compared([timed(*SLOW, name="on")], [timed(*FAST, name="off")])["comparisons"]
    assert one["name"] == "on -> off"


def test_several_are_compared_by_name_and_unit_as_one_family():
    before = [timed(*SLOW), timed(*SLOW, name="b"), timed(*SLOW, unit="B/op"), timed(0.0, unit="allocs/op")]
    after = [timed(*FAST, name="c"), timed(*FAST), timed(*FAST, unit="B/op"), timed(0.0, unit="allocs/op")]
    document = compared(before, after)
    assert [(one["name"], one["unit"], one["family"]) for one in document["comparisons"]] == [
        ("a", "s", 2),
        ("a", "B/op", 2),
    ]
    assert document["not_compared"] == ["b s", "a allocs/op", "c s"]


def test_what_is_not_known_is_not_said():
    unknown = timed(*SLOW, name="x", unit="", better=None)
    with pytest.raises(MeasurementsError, match="it is not known which way x is better: set smt_compare_better"):
        compared([unknown], [unknown])
    assert compared([unknown], [unknown], "higher")["comparisons"][0]["verdict"] == "equivalent"
    with pytest.raises(MeasurementsError, match="nothing in common: a s, b s before, and c s after"):
        compared([timed(1.0), timed(1.0, name="b")], [timed(1.0, name="c")])
    with pytest.raises(MeasurementsError, match="different units: s and ms"):
        compared([timed(1.0)], [timed(1.0, unit="ms")])
    with pytest.raises(MeasurementsError, match="a name twice"):
        compared([timed(1.0), timed(2.0)], [timed(1.0)])
    with pytest.raises(paired.SampleError, match="has no ratio"):
        compared([timed(0.0)], [timed(0.0)])


def test_two_hundred_truths_never_have_the_wrong_sign():
    source = random.Random(3)
    said = 0
    for _case in range(200):
        truth = math.exp(source.uniform(-0.5, 0.5))
        better, scale = source.choice(["higher", "lower"]), math.exp(source.uniform(-12, 12))
        counts = [source.randint(4, 15), source.randint(4, 15)]
        sides = [
            timed(*(scale * factor * math.exp(source.gauss(0, 0.02)) for _run in range(count)), better=better)
            for factor, count in zip((1.0, truth), counts)
        ]
        (one,) = compared([sides[0]], [sides[1]])["comparisons"]
        if one["verdict"] in ("gain", "loss"):
            said += 1
            assert one["verdict"] == ("gain" if (truth > 1) == (better == "higher") else "loss")
    assert said > 120
