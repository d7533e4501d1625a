# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person sees while a plan runs; the host's words are data."""

from __future__ import annotations

import json

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import progress

METRIC = {"name": "throughput", "value": 78.04, "unit": "MB/s"}
LAST = {"workload": "gzip", "placement": "siblings", "arm": "SMT on", "metric": METRIC, "workers": 2}
PROGRESS = {"phase": "measuring", "block": 3, "fraction": 0.416, "seconds_left": 175, "last": LAST}
SO_FAR = " 42 %, block 3, about 2:55 left"
SHOWN = f"{SO_FAR}, last: gzip throughput (two on one core, SMT on): 78.04 MB/s"
NASTY = "\x1b[2J\n\u202e\x9b" + "x" * 200


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({}, SHOWN),
        ({"next": "SMT off\x1b[31m"}, f"{SHOWN}, next: SMT off\\x1b[31m"),
        ({"phase": "preparing", "last": None}, f"{SO_FAR}, preparing"),
    ],
)
def test_a_line_tells_how_far_and_what_was_measured_last(changed, line):
    assert progress.line({**PROGRESS, **changed}) == line


NUMBERS = ("Infinity", "-Infinity", "NaN", "1e400", "1e308", "1" + "0" * 15, "9" * 400, "-" + "9" * 5000)


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "null", "7", "[" * 5000, json.dumps(PROGRESS) + " " * progress.MAX_BYTES),
        *(f'{{"phase": "x", "fraction": {number}, "block": 1}}' for number in NUMBERS),
        *(json.dumps({**PROGRESS, **more}) for more in ({"block": "3"}, {"last": {}}, {"last": 7}, {"more": 1})),
        json.dumps({**PROGRESS, "phase": None}),
    ],
    ids=range(20),
)
def test_what_is_no_progress_is_none(text):
    assert progress.parse(text) is None


@pytest.mark.parametrize("field", ["fraction", "block", "seconds_left", "value"])
def test_each_number_that_json_can_hold_makes_a_short_line_or_none(field):
    before = f'"{field}": {json.dumps({**PROGRESS, **METRIC}[field])}'
    for value in ("9e14", "-9e14", "5e-324", "1e18", "9" * 15, "true", '"9"', "[9]", "{}", "null", "-0"):
        text = json.dumps(PROGRESS).replace(before, f'"{field}": {value}')
        parsed = progress.parse(text)
        assert text != json.dumps(PROGRESS) and (parsed is None or len(progress.line(parsed)) < 400), value


def test_hostile_words_make_one_harmless_line():
    last = {**LAST, "workload": NASTY, "placement": NASTY, "arm": NASTY, "metric": {**METRIC, "name": NASTY}}
    line = progress.line(progress.parse(json.dumps({**PROGRESS, "phase": NASTY, "last": last})))
    assert line.isprintable() and len(line) < 400


@pytest.mark.parametrize(
    ("lines", "fractions", "expected"),
    [
        (3, [0.0, 0.1, 0.26, 0.3, 0.55, 0.6, 0.8, 0.99, 1.0], [0.26, 0.55, 0.8]),
        (1, [0.0, 0.4, 0.6, 0.7, 1.0], [0.6]),
        (0, [0.0, 0.5, 1.0], []),
        # What was not seen in time gets no line later.
        (3, [0.1, 0.9, 0.95, None], [0.9]),
    ],
)
def test_each_part_of_a_plan_gets_a_line_once(lines, fractions, expected):
    shown = progress.Shown(lines)
    assert [one for one in fractions if shown.is_due({"phase": "measuring", "fraction": one})] == expected
