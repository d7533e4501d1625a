# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of measurements: what is in each kind, and what is refused with the reason."""

import dataclasses
import json
import os

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.two_files import measurements
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.two_files.measurements import Series

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
        ("a,b\nx,1\ny,2\nx,3\n", [Series("x", "", None, (1, 3)), Series("y", "", None, (2,))]),
        ("x;1\nx;2\n", [Series("x", "", None, (1, 2))]),
        ("a\tb\n\t1\n", [Series("b", "", None, (1,))]),
        (json.dumps(HYPERFINE), [Series("a", "s", "lower", (0.5, 1)), Series("b\\x1b[1m", "s", "lower", (2,))]),
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
    assert [dataclasses.replace(one, beside=()) for one in read(tmp_path, content)] == series


@pytest.mark.parametrize(
    ("unit", "better"),
    [
        *((unit, "lower") for unit in ("ns/op", "\u00b5s/op", "s/op", "ms/req", "B/op", "KiB/op", "allocs/op")),
        *((unit, "higher") for unit in ("MB/s", "B/s", "req/s", "ops/ms", "ops/us")),
        *((unit, None) for unit in ("p99-us", "MB/sec", "hits/op", "rows/op", "things", "ns", "ms/s", "/s", "")),
    ],
)
def test_which_way_a_unit_is_better(unit, better, tmp_path):
    (one,) = read(tmp_path, f"BenchmarkA-2 1 3 {unit}\n" if unit else "1\n2\n")
    assert (one.unit, one.better) == (unit, better)
    # What the file says of a unit is before what the unit says (golang.org/x/perf/benchfmt).
    if unit:
        (one,) = read(tmp_path, f"Unit {unit} assume=nothing better=higher\nBenchmarkA-2 1 3 {unit}\n")
        assert one.better == "higher"


# Google Benchmark with --benchmark_out_format=csv and --benchmark_repetitions=2: its preamble, and its aggregates.
GOOGLE = """2026-11-29T10:00:00+00:00
Running ./bench
Run on (2 X 2445.41 MHz CPU s)
Load Average: 0.10, 0.20, 0.30
name,iterations,real_time,cpu_time,time_unit,bytes_per_second,items_per_second,label,error_occurred,error_message
"BM_a<x,y>/8",1000,40.1,39.9,ns,,2.5e+07,,,
"BM_a<x,y>/8",1000,39.9,39.7,ns,,2.6e+07,,,
"BM_a<x,y>/8_mean",2,40.0,39.8,ns,,2.55e+07,,,
"BM_a<x,y>/8_stddev",2,0.1,0.1,ns,,1e+05,,,
"BM_b",100,1.5,1.4,ms,,6e+05,,,
"BM_mean",100,1.0,1.0,ms,,5e+05,,,
"BM_a_BigO",,3.0,3.0,N,,,,,
"BM_a_RMS",,5,5,%,,,,,
"""
# -rff x.csv -rf csv; a score of one sample has no error.
JMH = """"Benchmark","Mode","Threads","Samples","Score","Score Error (99.9%)","Unit","Param: size"
"x.A.sum","thrpt",1,10,1000.5,2.5,"ops/s",10
"x.A.sum","thrpt",1,10,100.5,NaN,"ops/s",100
"x.B.lat","avgt",1,10,2.5,0.1,"us/op",
"""
CRITERION = """group,function,value,throughput_num,throughput_type,sample_measured_value,unit,iteration_count
fib,fib 20,,,,1000.0,ns,100
fib,fib 20,,,,4000.0,ns,200
"""


@pytest.mark.parametrize(
    ("content", "column", "series"),
    [
        (
            GOOGLE,
            "real_time",
            [
                ("BM_a<x,y>/8", "ns", "lower", (40.1, 39.9)),
                ("BM_b", "ms", "lower", (1.5,)),
                ("BM_mean", "ms", "lower", (1,)),
            ],
        ),
        (
            GOOGLE,
            "items_per_second",
            [
                ("BM_a<x,y>/8", "", "higher", (25e6, 26e6)),
                ("BM_b", "", "higher", (6e5,)),
                ("BM_mean", "", "higher", (5e5,)),
            ],
        ),
        (
            JMH,
            "Score",
            [("x.A.sum thrpt", "ops/s", "higher", (1000.5, 100.5)), ("x.B.lat avgt", "us/op", "lower", (2.5,))],
        ),
        (CRITERION, "sample_measured_value", [("fib fib 20", "ns", "lower", (10, 20))]),
        (
            "command,mean,stddev,median\na,1.5,,2\nb,3,,4\n",
            "median",
            [("a", "", "lower", (2,)), ("b", "", "lower", (4,))],
        ),
        ("mean,median\n1,2\n3,4\n", "median", [("median", "", None, (2, 4))]),
        ("host,req/s,ms\na,5,1\n", "req/s", [("a", "", "higher", (5,))]),
        (
            "x,y,v\na,,1\n,a,2\na b,,3\na,b,4\n",
            "v",
            [("a", "", None, (float(v),)) for v in (1, 2)] + [("a b", "", None, (float(v),)) for v in (3, 4)],
        ),
    ],
)
def test_rows_of_other_names_are_other_series(content, column, series, tmp_path):
    assert [(one.name, one.unit, one.better, one.values) for one in read(tmp_path, content, column)] == series


def exits(*codes):
    return json.dumps({"results": [{"command": "a", "times": [1, 2, 3], "exit_codes": codes or None}]})


@pytest.mark.parametrize(
    ("content", "column", "reason"),
    [
        # What failed, with what the tool said.
        *((exits(*codes), None, f"failed.* {said}") for codes, said in (((1, 1, 1), "1, 1, 1"), ((0, 2, 0), "2"))),
        *((exits(*codes), None, "failed.* null") for codes in ((0, None, 0), ())),
        (
            GO + "BenchmarkX-16 \t--- FAIL: BenchmarkX-16\n    x_test.go:9: no\n",
            None,
            "failed.* --- FAIL: BenchmarkX-16",
        ),
        (GO + "exit status 1\nFAIL\texample.com/x\t3.1s\n", None, "failed.* FAIL example.com/x"),
        (GO + "panic: runtime error\n", None, "failed.* panic: runtime error"),
        (GOOGLE + '"BM_c",,,,,,,,true,"no such file"\n', "real_time", "failed.* true, no such file"),
        # A result without a number.
        (JMH.replace("2.5,0.1", "NaN,NaN"), "Score", "row 3, Score: 'NaN' is no number"),
        ("BenchmarkA-2 1 NaN ns/op\n", None, "A: 'NaN' is no number"),
        (CRITERION.replace(",200", ",0"), "sample_measured_value", "row 2, sample_measured_value: nan is no number"),
        ('[{"benchmark": "x.A", "primaryMetric": {"score": 1}}]', None, "neither a list of numbers nor an export"),
        ("", None, "has no numbers"),
        ("# nothing\n", None, "has no numbers"),
        ("1\n2 x\n", None, "line 2: 'x' is no number"),
        ("1\nnan\n", None, "line 2: 'nan' is no number"),
        ("1_000\n2\n3 inf", None, "line 2: 'inf' is no number"),
        # A decimal comma makes two columns.
        ("12,5\n12,6\n", None, "the columns of numbers 1, 2: choose one"),
        ("1,234,5\n12,6\n", None, "not each line has 3 columns"),
        ("a,b\nx,1\ny,z\n", None, "row 2, b: 'z' is no number"),
        ('a,b\n"x,1\n', None, "is no CSV file"),
        ("{", None, "begins as JSON and is none"),
        ("[" * 100000, None, "begins as JSON and is none"),
        ('{"results": [{"mean": 1}]}', None, "neither a list of numbers nor an export"),
        ('{"results": [{"command": "a", "times": [true]}]}', None, "results, times 1: True is no number"),
        ("[1, null]", None, "item 2: None is no number"),
        ("[1, [2]]", None, r"item 2: \[2\] is no number"),
        ("mean,median\n1,2\n3,4\n", None, "the columns of numbers mean, median: choose one"),
        ("mean,median\n1,2\n3,4\n", "max", "choose one with"),
    ],
)
def test_what_is_refused(content, column, reason, tmp_path):
    with pytest.raises(measurements.MeasurementsError, match=reason):
        read(tmp_path, content, column)


def test_what_is_no_file_or_too_large(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_text("1\n" * 10)
    monkeypatch.setattr(measurements, "MAX_BYTES", 10)
    for path, reason in (
        ("fifo", "is no regular file"),
        ("none", "cannot be read: No such file"),
        (".", "Is a directory"),
        ("a\0b", "cannot be read"),
        ("large", "has more than 0 MiB"),
    ):
        with pytest.raises(measurements.MeasurementsError, match=reason):
            measurements.read(f"{tmp_path}/{path}")
