# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person sees while a plan runs; the host's words are data."""

from __future__ import annotations

import json

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import progress

PROGRESS = {
    "phase": "measuring",
    "block": 3,
    "fraction": 0.416,
    "seconds_left": 175,
    "last": {
        "workload": "gzip",
        "placement": "siblings",
        "arm": "SMT on",
        "metric": {"name": "throughput", "value": 78.04, "unit": "MB/s"},
        "workers": 2,
    },
}


def test_a_line_tells_how_far_and_what_was_measured_last():
    assert (
        progress.line(PROGRESS)
        == " 42 %, block 3, about 2:55 left, last: gzip throughput (two on one core, SMT on): 78.04 MB/s"
    )


def test_what_comes_next_is_said():
    line = progress.line(dict(PROGRESS, next="SMT off\x1b[31m"))
    assert line.endswith("78.04 MB/s, next: SMT off\\x1b[31m"), line


def test_a_phase_without_samples_is_named():
    assert progress.line(dict(PROGRESS, phase="preparing", last=None)) == " 42 %, block 3, about 2:55 left, preparing"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "7", "[" * 5000, " " * (progress.MAX_BYTES + 1)]
    + [
        f'{{"fraction": {number}, "block": 1}}'
        for number in (
            "Infinity",
            "-Infinity",
            "NaN",
            "1e400",
            "-1e400",
            "1e308",
            "1" + "0" * 15,
            "9" * 400,
            "-" + "9" * 5000,
        )
    ],
)
def test_what_is_no_progress_is_none(text):
    assert progress.parse(text) is None


@pytest.mark.parametrize(
    "value", ["9e14", "-9e14", "5e-324", "1e18", "9" * 15, "-" + "9" * 15, "true", '"9"', "[9]", "{}", "null", "-0"]
)
@pytest.mark.parametrize("field", ["fraction", "block", "seconds_left", "value"])
def test_each_number_that_json_can_hold_makes_a_short_line_or_none(field, value):
    actual = json.dumps(PROGRESS).replace(
        f'"{field}": {json.dumps({**PROGRESS, **PROGRESS["last"]["metric"]}[field])}', f'"{field}": {value}'
    )
    assert actual != json.dumps(PROGRESS)
    parsed = progress.parse(actual)
    assert parsed is None or len(progress.line(parsed)) < 400


@pytest.mark.parametrize("more", [{"block": "3"}, {"last": {}}, {"last": 7}, {"more": 1}, {"phase": None}])
def test_what_no_plan_writes_is_none(more):
    assert progress.parse(json.dumps({**PROGRESS, **more})) is None


def test_hostile_words_make_one_harmless_line():
    nasty = "\x1b[2J\n\u202e\x9b" + "x" * 200
    last = {
        **PROGRESS["last"],
        "workload": nasty,
        "placement": nasty,
        "arm": nasty,
        "metric": {"name": nasty, "value": 7, "unit": nasty},
    }
    line = progress.line(progress.parse(json.dumps({**PROGRESS, "phase": nasty, "last": last})))
    assert line.isprintable() and len(line) < 400


@pytest.mark.parametrize(
    ("lines", "fractions", "expected"),
    [
        (3, [0.0, 0.1, 0.26, 0.3, 0.55, 0.6, 0.8, 0.99, 1.0], [0.26, 0.55, 0.8]),
        (1, [0.0, 0.4, 0.6, 0.7, 1.0], [0.6]),
        (0, [0.0, 0.5, 1.0], []),
        # What was not seen in time gets no line later.
        (3, [0.1, 0.9, 0.95], [0.9]),
    ],
)
def test_each_part_of_a_plan_gets_a_line_once(lines, fractions, expected):
    shown = progress.Shown(lines)
    assert [
        fraction for fraction in fractions if shown.is_due({"phase": "measuring", "fraction": fraction})
    ] == expected


def test_progress_without_a_fraction_gets_no_line():
    assert not progress.Shown(3).is_due({"phase": "starting"})
