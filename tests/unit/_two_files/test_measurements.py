# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of measurements: what is in each kind, and what is refused with the reason."""

from __future__ import annotations

import json
import os

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._two_files import measurements
from ansible_collections.threadwise.smt.plugins.plugin_utils._two_files.measurements import Series

HYPERFINE = {"results": [{"command": "a", "times": [0.5, 1]}, {"command": "b\x1b[1m", "times": [2]}]}
GO = """goos: linux
BenchmarkJoin-16   \t  186846\t      2183 ns/op\t    1024 B/op\t       1 allocs/op
BenchmarkJoin-16   \t  186846\t      2200 ns/op\t    1024 B/op\t       1 allocs/op
BenchmarkCopy/4k-16\t  1000\t  12.5 ns/op\t 80.00 MB/s\t 3 things
PASS
"""


def read(tmp_path, content, column=None):
    (tmp_path / "file").write_text(content, encoding="utf-8")
    return measurements.read(str(tmp_path / "file"), column)


@pytest.mark.parametrize(
    ("content", "series"),
    [
        ("1\n2.5\n\n# three\n3e-1 4\n", [Series("", "", None, (1, 2.5, 0.3, 4))]),
        ("\ufefftime\n1\n2\n", [Series("time", "", None, (1, 2))]),
        ('[1, 2.5, "3"]', [Series("", "", None, (1, 2.5, 3))]),
        ("a,b\nx,1\ny,2\n", [Series("b", "", None, (1, 2))]),
        ("x;1\ny;2\n", [Series("", "", None, (1, 2))]),
        ("a\tb\nx\t1\n", [Series("b", "", None, (1,))]),
        (
            json.dumps(HYPERFINE),
            [Series("a", "s", "lower", (0.5, 1)), Series("b\ufffd[1m", "s", "lower", (2,))],
        ),
        (
            GO,
            [
                Series("Join", "ns/op", "lower", (2183, 2200)),
                Series("Join", "B/op", "lower", (1024, 1024)),
                Series("Join", "allocs/op", "lower", (1, 1)),
                Series("Copy/4k", "ns/op", "lower", (12.5,)),
                Series("Copy/4k", "MB/s", "higher", (80,)),
                Series("Copy/4k", "things", None, (3,)),
            ],
        ),
    ],
)
def test_what_files_have(content, series, tmp_path):
    found = read(tmp_path, content)
    assert [(one.unit, one.better, one.values) for one in found] == [
        (one.unit, one.better, one.values) for one in series
    ]
    assert [one.name for one in found if "[1m" not in one.name] == [one.name for one in series if "[1m" not in one.name]
    assert not any("\x1b" in one.name for one in found)


def test_the_column_that_was_chosen(tmp_path):
    content = "command,mean,median\nx,1,2\ny,3,4\n"
    assert read(tmp_path, content, "median") == [Series("median", "", None, (2, 4))]
    for column, reason in ((None, "has the columns of numbers mean, median: choose one"), ("max", "choose one with")):
        with pytest.raises(measurements.MeasurementsError, match=reason):
            read(tmp_path, content, column)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "has no numbers"),
        ("# nothing\n", "has no numbers"),
        ("1\n2 x\n", "line 2: 'x' is no number"),
        ("1\nnan\n", "line 2: 'nan' is no number"),
        ("1_000\n2\n3 inf", "line 2: 'inf' is no number"),
        # A decimal comma makes two columns.
        ("12,5\n12,6\n", "has the columns of numbers 1, 2: choose one"),
        ("1,234,5\n12,6\n", "not each line has 3 columns"),
        ("a,b\nx,1\ny,z\n", "row 2, b: 'z' is no number"),
        ('a,b\n"x,1\n', "is no CSV file"),
        ("{", "begins as JSON and is none"),
        ("[" * 100000, "begins as JSON and is none"),
        ('{"results": [{"mean": 1}]}', "is neither a list of numbers nor an export of hyperfine"),
        ('{"results": [{"command": "a", "times": [true]}]}', "results, times 1: True is no number"),
        ("[1, null]", "item 2: None is no number"),
        ("[1, [2]]", r"item 2: \[2\] is no number"),
    ],
)
def test_what_is_refused(content, reason, tmp_path):
    with pytest.raises(measurements.MeasurementsError, match=reason):
        read(tmp_path, content)


def test_what_is_no_file_or_too_large(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    for path, reason in (
        ("fifo", "is no regular file"),
        ("none", "cannot be read: No such file"),
        (".", "Is a directory"),
    ):
        with pytest.raises(measurements.MeasurementsError, match=reason):
            measurements.read(str(tmp_path / path))
    with pytest.raises(measurements.MeasurementsError, match="cannot be read"):
        measurements.read("a\0b")
    monkeypatch.setattr(measurements, "MAX_BYTES", 10)
    with pytest.raises(measurements.MeasurementsError, match="has more than 0 MiB"):
        read(tmp_path, "1\n" * 10)
