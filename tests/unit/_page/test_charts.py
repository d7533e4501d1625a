# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts: every kind is drawn from any data, nothing lies outside, no two texts touch, and no text becomes markup."""

import itertools
import re

import markup
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import canvas, charts

ATTACK = "</text></svg><script>alert(1)</script>\"'&{{ 7 * 7 }}"
LONG = "\u6e2c\u8a66 " + "every word of this name is kept " * 4 + "W" * 60
ARMS = ["SMT on", ATTACK, LONG]
SIDES = ("left is better", ATTACK)


def curve(values):
    return [
        charts.Point(arm, value, None if x == 1 else value, value, x)
        for x, value in enumerate(values, 1)
        for arm in ARMS
    ]


def changes(values):
    return [
        charts.Point(arm, value / max(values) - 1, None if x == 1 else -0.5, 0.25, x)
        for x, value in enumerate(values, 1)
        for arm in ARMS[1:]
    ]


def failing(values):
    return [*curve(values), charts.Point(ARMS[0], None, None, None, len(values) + 1)]


def pictures(values):
    """A chart of each kind of these values, all above zero."""
    ratios = [charts.RatioRow(LONG, ATTACK, "lower", 0.9, one, 0.8, 20.0) for one in charts.LOOKS]
    many = [
        charts.RatioRow(ATTACK, ATTACK, better, 1.0, one, ratios=[0.5, 1.0, 1.2])
        for one, better in zip(charts.VERDICTS, itertools.cycle(["higher", "lower"]))
    ]
    sampled = [(arm, value) for arm in ARMS for value in values]
    levels = [charts.Bar(arm, value, value / 2, value * 9, ATTACK, ATTACK) for arm in ARMS for value in values]
    drift = [charts.Deviation(n, value / max(values) - 1, ARMS[n % 3]) for n, value in enumerate(values)]
    usage = [charts.Share(LONG, cpu, int(cpu) / 7) for cpu in "01234567"]
    cores = [(ATTACK, [[0, 1], [2, 3]]), ("package 1", [[4, 5], [6, 7]])]
    line = [charts.Reading(float(number), value, number // 2) for number, value in enumerate(values)]
    bands = [charts.Band(0.0, 2.0, ARMS[0]), charts.Band(2.0, 4.0, ARMS[1])]
    return [
        ("forest", charts.forest(ratios, 0.01, SIDES, ATTACK)),
        ("spread", charts.spread(many, 0.01, SIDES, ATTACK)),
        ("bars", charts.bars(levels, ARMS, ATTACK, ATTACK)),
        ("histogram", charts.histogram(*charts.bins(sampled, ARMS), ARMS, ATTACK, ATTACK)),
        ("sequence", charts.sequence(drift, ARMS, ATTACK)),
        ("timeline", charts.timeline(line, bands, ARMS, ATTACK, ATTACK)),
        ("usage_map", charts.usage_map(usage, list("01234567"), ATTACK)),
        ("topology", charts.topology(cores, {3}, ATTACK)),
        ("topology-usage", charts.topology([(LONG, [range(20)]), *cores], {3}, ATTACK, {0: 0.5, 1: 1.0})),
        ("streams", charts.streams(curve(values), [], ARMS, LONG, 2, ATTACK)),
        ("streams-last", charts.streams(curve(values), [], ARMS, LONG, len(values), ATTACK)),
        ("streams-changes", charts.streams(curve(values), changes(values), ARMS, LONG, len(values), ATTACK)),
        ("points", charts.points(curve(values), ARMS, LONG, ATTACK, ATTACK)),
        ("points-limit", charts.points(failing(values), ARMS, LONG, ATTACK, ATTACK, (min(values), "limit 1 s"))),
    ]


VALUES = ([100.0, 101.5, 99.25, 130.0], [9e18, 9e18, 9e18 * (1 - 1e-15)], [1e-29, 3e-29], [1.0, 1.0], [1e-6, 1e9])
DRAWN = [pytest.param(one, id=f"{kind}-{n}") for n, values in enumerate(VALUES) for kind, one in pictures(values)]


def extent(drawn):
    """The least and the greatest coordinates that a path reaches, ((x, x), (y, y))."""
    x = y = 0.0
    across, down = [], []
    for command, numbers in re.findall(r"([MLHVmlhvz])([^A-Za-z]*)", drawn.replace("Z", "z")):
        values = [float(number) for number in re.findall(r"-?[0-9.]+", numbers)]
        for dx, dy in zip(values[::2], values[1::2]) if command in "MLml" else ():
            x, y = (dx, dy) if command in "ML" else (x + dx, y + dy)
            across.append(x)
            down.append(y)
        for value in values if command in "HVhv" else ():
            x, y = {"H": (value, y), "V": (x, value), "h": (x + value, y), "v": (x, y + value)}[command]
            across.append(x)
            down.append(y)
    return (min(across), max(across)), (min(down), max(down))


def texts(svg):
    """The boxes of all texts of a picture, as wide as they are in the widest font: left, right, upper, lower."""

    def walk(element, anchor):
        for one in element:
            own = one.get("text-anchor", anchor)
            if one.tag == "text":
                wide, x, y = canvas.width(one.text), float(one.get("x")), float(one.get("y"))
                left = x - wide * {"start": 0, "middle": 0.5, "end": 1}[own]
                yield one.text, (left, left + wide, y - 0.75 * canvas.FONT, y + 0.2 * canvas.FONT)
            yield from walk(one, own)

    return list(walk(svg, "start"))


@pytest.mark.parametrize("picture", DRAWN)
def test_a_picture_is_whole_its_texts_stay_texts_none_is_shortened_and_no_two_of_them_touch(picture):
    svg = markup.picture(picture.svg)
    assert svg.get("role") == "img" and svg.get("aria-label") == picture.label == ATTACK
    assert {one.tag for one in svg.iter()} <= {"svg", "g", "text", "path", "title"}
    left, top, width, height = map(float, svg.get("viewBox").split())
    assert (left, top, width) == (0, 0, canvas.WIDTH)
    shown = texts(svg)
    boxes = [(one[:2], one[2:]) for _text, one in shown] + [extent(one.get("d")) for one in svg.iter("path")]
    for across, down in boxes:
        assert min(across) >= -0.1 and max(across) <= width + 0.1 and min(down) >= -0.1 and max(down) <= height
    for (text, one), (other_text, other) in itertools.combinations(shown, 2):
        apart = one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
        assert apart, (text, one, other_text, other)
    words = "".join(text for text, _box in shown).replace(" ", "")
    said = [one.text for one in svg.iter("title")]
    assert len(said) >= 2 and all(re.search("[0-9]", title) for title in said)
    assert "\u2026" not in words and (LONG.replace(" ", "") in words or ATTACK.replace(" ", "") in words)


def test_a_bar_is_as_long_as_its_value():
    rows = [charts.Bar("a", value, None, None, str(value), str(value)) for value in (50.0, 100.0)]
    svg = markup.picture(charts.bars(rows, ["a"], "u", "l").svg)
    bars = [extent(one.get("d"))[0] for group in svg if group.find("title") is not None for one in group.iter("path")]
    (start, short), (_start, long) = bars
    assert long - start == pytest.approx(2 * (short - start), abs=0.2)


def test_the_histogram_counts_each_sample_once():
    rows = [("b" if value > 3 else "a", value) for value in (1.0, 1.0, 2.0, 2.5, 4.0)]
    counted = charts.bins(rows, ["a", "b"])
    assert counted == ([1.0, 2.0, 3.0, 4.0, 5.0], {"a": [2, 2, 0, 0], "b": [0, 0, 0, 1]})
