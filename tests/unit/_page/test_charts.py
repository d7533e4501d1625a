# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Charts: every kind is drawn from any data, nothing lies outside the picture, no two texts touch, whoever points at a
mark reads its numbers, and no text becomes markup.
"""

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
        {"x": x, "arm": arm, "value": value, "low": None if x == 1 else value, "high": value}
        for x, value in enumerate(values, 1)
        for arm in ARMS
    ]


def changes(values):
    """Each value against the greatest, up to so many percent as they are apart."""
    return [
        {"x": x, "arm": arm, "value": value / max(values) - 1, "low": None if x == 1 else -0.5, "high": 0.25}
        for x, value in enumerate(values, 1)
        for arm in ARMS[1:]
    ]


def failing(values):
    return [*curve(values), {"x": len(values) + 1, "arm": ARMS[0], "value": None, "low": None, "high": None}]


def pictures(values):
    """A chart of each kind of these values, all above zero."""
    ratios = [
        {"label": LONG, "better": "lower", "ratio": 0.9, "low": 0.8, "high": 20.0, "verdict": one, "text": ATTACK}
        for one in charts.LOOKS
    ]
    many = [
        {"label": ATTACK, "better": better, "ratios": [0.5, 1.0, 1.2], "ratio": 1.0, "verdict": one, "text": ATTACK}
        for one, better in zip(charts.VERDICTS, itertools.cycle(["higher", "lower"]))
    ]
    sampled = [{"arm": arm, "value": value} for arm in ARMS for value in values]
    levels = [
        {"label": ATTACK, "arm": arm, "value": value, "low": value / 2, "high": value * 9, "text": ATTACK}
        for arm in ARMS
        for value in values
    ]
    drift = [
        {"index": place, "deviation": value / max(values) - 1, "arm": ARMS[place % 3]}
        for place, value in enumerate(values)
    ]
    usage = [{"label": LONG, "cpu": cpu, "usage": place / 7} for place, cpu in enumerate("01234567")]
    cores = [(ATTACK, [[0, 1], [2, 3]]), ("package 1", [[4, 5], [6, 7]])]
    line = [{"at": float(number), "value": value, "period": number // 2} for number, value in enumerate(values)]
    bands = [{"begin": 0.0, "end": 2.0, "arm": ARMS[0]}, {"begin": 2.0, "end": 4.0, "arm": ARMS[1]}]
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


VALUES = (
    [100.0, 101.5, 99.25, 130.0],
    [5.0] * 4,
    [9e18, 9e18, 9e18 * (1 - 1e-15)],
    [1e-29, 3e-29],
    [1.0, 1.0],
    [1e-6, 1e9],
)
DRAWN = [
    pytest.param(picture, id=f"{kind}-{number}")
    for number, values in enumerate(VALUES)
    for kind, picture in pictures(values)
]


def extent(drawn):
    """The least and the greatest coordinates that a path reaches, ((x, x), (y, y))."""
    x = y = 0.0
    across, down = [], []
    for command, numbers in re.findall(r"([MLHVmlhvz])([^A-Za-z]*)", drawn.replace("Z", "z")):
        values = [float(number) for number in re.findall(r"-?[0-9.]+", numbers)]
        if command in "ML":
            across += values[::2]
            down += values[1::2]
            x, y = values[-2:]
        if command in "ml":
            x, y = x + values[0], y + values[1]
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
    assert "\u2026" not in words and (LONG.replace(" ", "") in words or ATTACK.replace(" ", "") in words)


COUNTS = {"forest": 6, "spread": 5 * (3 + 1), "bars": 3 * 4, "histogram": 3 * 3, "sequence": 4, "timeline": 2 + 4}
COUNTS.update({"usage_map": 8, "topology": 8, "topology-usage": 20 + 8, "streams": 3 * 4, "points": 3 * 4})
COUNTS.update({"streams-changes": 3 * 4 + 2 * 4, "points-limit": 3 * 4 + 1})


@pytest.mark.parametrize(("kind", "count"), COUNTS.items())
def test_every_mark_says_its_numbers(kind, count):
    said = titles(dict(pictures(VALUES[0]))[kind])
    assert len(said) == count and all(re.search("[0-9]", title) for title in said)


def titles(picture):
    return [one.text for one in markup.picture(picture.svg).iter("title")]


def test_titles_are_those_of_the_marks():
    rows = [{"label": "alone", "arm": "a", "value": 50.0, "low": 49.0, "high": 51.5, "text": "50"}]
    assert titles(charts.bars(rows, ["a"], "u", "l")) == ["alone, a: 50.00 (49.00 to 51.50)"]
    rows = [{"index": index, "deviation": (index - 2) / 100, "arm": "a"} for index in range(4)]
    assert titles(charts.sequence(rows, ["a"], "l")) == ["0: \u22122.00 %", "1: \u22121.00 %", "2: 0 %", "3: +1.00 %"]


def test_a_bar_is_as_long_as_its_value():
    of_arm = {"arm": "a", "low": None, "high": None}
    rows = [{**of_arm, "label": str(value), "value": value, "text": str(value)} for value in (50.0, 100.0)]
    svg = markup.picture(charts.bars(rows, ["a"], "u", "l").svg)
    bars = [extent(one.get("d"))[0] for group in svg if group.find("title") is not None for one in group.iter("path")]
    (start, short), (_start, long) = bars
    assert long - start == pytest.approx(2 * (short - start), abs=0.2)


def test_the_histogram_counts_each_sample_once():
    rows = [{"arm": "b" if value > 3 else "a", "value": value} for value in (1.0, 1.0, 2.0, 2.5, 4.0)]
    counted = charts.bins(rows, ["a", "b"])
    assert counted == ([1.0, 2.0, 3.0, 4.0, 5.0], {"a": [2, 2, 0, 0], "b": [0, 0, 0, 1]})
    said = titles(charts.histogram(*counted, ["a", "b"], "u", "l"))
    assert "1.000 to 2.000" in said[0] and sum(int(title.rpartition(": ")[2]) for title in said) == len(rows)


def test_what_is_beyond_the_scale_is_marked_with_its_value():
    times = {20: 5.0, 40: 9.0, 60: 60.0, 80: 400.0}
    rows = [{"x": x, "arm": "a", "value": value, "low": None, "high": None} for x, value in times.items()]
    svg = charts.points(rows, ["a"], "p99 [ms]", "clients", "l", (10.0, "limit 10 ms")).svg
    found = [(one.text, parent) for parent in markup.picture(svg).iter() for one in parent.findall("title")]
    shapes = [mark.get("d").partition("l")[2].partition("v")[0] for _title, mark in found]
    assert [title.partition(":")[0] for title, _mark in found] == [f"a, {x} clients" for x in times]
    assert shapes[0] == shapes[1] != shapes[2] == shapes[3]
    assert [text for text in ("5.000", "9.000", "60.00", "400.0") if f">{text}<" in svg] == ["60.00", "400.0"]
