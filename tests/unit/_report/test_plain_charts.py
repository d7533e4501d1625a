# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts without vl-convert: every kind is drawn from any data, nothing lies outside the picture,
and no text becomes markup.
"""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import charts, plain_charts

ATTACK = "</text></svg><script>alert(1)</script>\"'&{{ 7 * 7 }}"
ARMS = ["SMT on", ATTACK]
SIDES = ("left is better", ATTACK)
SVG = "{http://www.w3.org/2000/svg}"


def curve(draw, values, *more):
    rows = [
        {"x": x, "arm": arm, "value": value, "low": None if x == 1 else value, "high": value}
        for x, value in enumerate(values, 1)
        for arm in ARMS
    ]
    return draw(rows, ARMS, ATTACK, *more, ATTACK)


def pictures(values):
    """A chart of each kind of these values, all above zero."""
    ratios = [
        {"label": ATTACK, "ratio": 0.9, "low": 0.8, "high": 20.0, "verdict": one, "text": ATTACK}
        for one in charts.LOOKS
    ]
    many = [
        {"label": ATTACK, "ratios": [0.5, 1.0, 1.2], "ratio": 1.0, "verdict": one, "text": ATTACK}
        for one in charts.VERDICTS
    ]
    sampled = [{"arm": arm, "value": value} for arm in ARMS for value in values]
    levels = [
        {"label": ATTACK, "arm": arm, "value": value, "low": value / 2, "high": value * 9, "text": ATTACK}
        for arm in ARMS
        for value in values
    ]
    drift = [
        {"index": place, "deviation": value / max(values) - 1, "arm": ARMS[place % 2]}
        for place, value in enumerate(values)
    ]
    usage = [{"label": ATTACK, "cpu": cpu, "usage": place / 7} for place, cpu in enumerate("01234567")]
    cores = [(ATTACK, [[0, 1], [2, 3]]), ("package 1", [[4, 5], [6, 7]])]
    line = [{"at": float(number), "value": value, "period": number // 2} for number, value in enumerate(values)]
    bands = [{"begin": 0.0, "end": 2.0, "arm": ARMS[0]}, {"begin": 2.0, "end": 4.0, "arm": ARMS[1]}]
    return [
        charts.forest(ratios, 0.01, SIDES, ATTACK),
        charts.spread(many, 0.01, SIDES, ATTACK),
        charts.bars(levels, ARMS, ATTACK, ATTACK),
        charts.histogram(sampled, ARMS, ATTACK, ATTACK),
        charts.sequence(drift, ARMS, ATTACK),
        charts.timeline(line, bands, ARMS, ATTACK, ATTACK),
        charts.usage_map(usage, list("01234567"), ATTACK),
        charts.topology(cores, {3}, ATTACK, {0: 0.5, 1: 1.0}),
        curve(charts.streams, values, 2),
        curve(charts.points, values, ATTACK),
    ]


VALUES = (
    [100.0, 101.5, 99.25, 130.0],
    [5.0] * 4,
    [9e18, 9e18, 9e18 * (1 - 1e-15)],
    [1e-29, 3e-29],
    [1.0, 1.0],
    [1e-6, 1e9],
)
DRAWN = [
    pytest.param(picture, id=f"{picture.kind}-{number}")
    for number, values in enumerate(VALUES)
    for picture in pictures(values)
]


@pytest.mark.parametrize("picture", DRAWN)
def test_a_picture_is_whole_and_its_texts_stay_texts(picture):
    svg = ElementTree.fromstring(plain_charts.draw(picture))
    assert svg.get("role") == "img" and svg.get("aria-label") == ATTACK
    assert {one.tag.removeprefix(SVG) for one in svg} <= {"text", "line", "rect", "circle", "polygon"}
    assert any(ATTACK[:20] in (one.text or "") for one in svg)
    width, height = float(svg.get("width")), float(svg.get("height"))
    for one in svg:
        across = [float(one.get(key)) for key in ("x", "x1", "x2", "cx") if one.get(key)]
        down = [float(one.get(key)) for key in ("y", "y1", "y2", "cy") if one.get(key)]
        pairs = [pair.split(",") for pair in one.get("points", "").split()]
        across, down = across + [float(x) for x, _y in pairs], down + [float(y) for _x, y in pairs]
        if one.tag == f"{SVG}text":
            room = charts.CHARACTER * len(one.text) * {"start": 0, "middle": 0.5, "end": 1}[one.get("text-anchor")]
            across += [across[0] - room, across[0] + charts.CHARACTER * len(one.text) - room]
        assert min(across) >= 0 and max(across) <= width and min(down) >= 0 and max(down) <= height, (
            ElementTree.tostring(one)
        )


def test_each_kind_of_chart_can_be_drawn():
    assert set(plain_charts.DRAWN) == set(charts.TEMPLATES) == {picture.kind for picture in pictures(VALUES[0])}


def test_places_are_those_of_the_numbers():
    """A bar is as long as its value, and an interval lies where the axis has its ends."""
    rows = [
        {"label": "x", "arm": "a", "value": value, "low": None, "high": None, "text": str(value)}
        for value in (50.0, 100.0)
    ]
    svg = ElementTree.fromstring(plain_charts.draw(charts.bars(rows[:1], ["a"], "u", "l")))
    twice = ElementTree.fromstring(
        plain_charts.draw(charts.bars([*rows[:1], {**rows[1], "label": "y"}], ["a"], "u", "l"))
    )
    bars = [float(one.get("width")) for one in twice if one.tag == f"{SVG}rect"]
    assert bars[1] == pytest.approx(2 * bars[0], abs=0.02) and len([one for one in svg if one.tag == f"{SVG}rect"]) == 1


def test_the_histogram_counts_each_sample_once():
    values = [1.0, 1.0, 2.0, 2.5, 4.0]
    svg = ElementTree.fromstring(
        plain_charts.draw(charts.histogram([{"arm": "a", "value": value} for value in values], ["a"], "u", "l"))
    )
    heights = [float(one.get("height")) for one in svg if one.tag == f"{SVG}rect"]
    assert sum(heights) == pytest.approx(plain_charts.BINS * len(values) / 2, abs=0.1)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0.1, 0.3), (-0.03, 0.02), (96.7, 108.2), (0, 16), (3, 3), (0, 0)])
def test_ticks_are_round_even_and_reach_over_all_values(low, high):
    ticks = plain_charts._ticks(low, high, 6)
    assert ticks[0] <= low + 1e-9 and ticks[-1] >= high - 1e-9 and len(ticks) <= 8
    steps = {f"{after - before:.6g}" for before, after in itertools.pairwise(ticks)}
    assert len(steps) == 1 and re.match(r"[0.]*[125]0*(\.0)?$", steps.pop())
