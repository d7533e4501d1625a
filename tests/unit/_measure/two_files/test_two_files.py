# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two files of measurements: what is in each kind, what is refused, what belongs together and which way is better."""

import dataclasses
import json
import os

import pytest
from ansible_collections.threadwise.smt.plugins.filter.smt_compare import smt_compare
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.two_files import measurements, verdict
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.two_files.measurements import (
    MeasurementsError,
    Series,
)

HYPERFINE = {"results": [{"command": "a", "times": [0.5, 1]}, {"command": "b\x1b[1m", "times": [2]}]}
GO = """goos: linux
BenchmarkJoin-16   \t  186846\t      2183 ns/op\t    1024 B/op
BenchmarkJoin-16   \t  186846\t      2200 ns/op\t    1024 B/op
BenchmarkCopy/4k-16\t  1000\t 80.00 MB/s\t 3 things
PASS
"""


OF_GO = [Series("Join", "ns/op", "lower", (2183, 2200)), Series("Join", "B/op", "lower", (1024, 1024))]
OF_GO += [Series("Copy/4k", "MB/s", "higher", (80,)), Series("Copy/4k", "things", None, (3,))]


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
        (GO, OF_GO),
    ],
)
def test_what_files_have(content, series, tmp_path):
    assert [dataclasses.replace(one, beside=()) for one in read(tmp_path, content)] == series


@pytest.mark.parametrize(
    ("unit", "better"),
    [
        *((unit, "lower") for unit in ("ns/op", "\u00b5s/op", "ms/req", "KiB/op", "allocs/op")),
        *((unit, "higher") for unit in ("MB/s", "req/s", "ops/us")),
        *((unit, None) for unit in ("p99-us", "hits/op", "things", "ns", "ms/s", "/s", "")),
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
"BM_mean",100,1.0,1.0,ms,,5e+05,,,
"BM_a_BigO",,3.0,3.0,N,,,,,
"BM_a_RMS",,5,5,%,,,,,
"""
A = "BM_a<x,y>/8"
# -rff x.csv -rf csv; a score of one sample has no error.
JMH = """"Benchmark","Mode","Threads","Samples","Score","Score Error (99.9%)","Unit","Param: size"
"x.A","thrpt",1,10,1000.5,2.5,"ops/s",10
"x.A","thrpt",1,10,100.5,NaN,"ops/s",100
"x.B","avgt",1,10,2.5,0.1,"us/op",
"""
CRITERION = """group,function,value,throughput_num,throughput_type,sample_measured_value,unit,iteration_count
fib,fib 20,,,,1000.0,ns,100
fib,fib 20,,,,4000.0,ns,200
"""


@pytest.mark.parametrize(
    ("content", "column", "series"),
    [
        (GOOGLE, "real_time", [(A, "ns", "lower", (40.1, 39.9)), ("BM_mean", "ms", "lower", (1,))]),
        (GOOGLE, "items_per_second", [(A, "", "higher", (25e6, 26e6)), ("BM_mean", "", "higher", (5e5,))]),
        (JMH, "Score", [("x.A thrpt", "ops/s", "higher", (1000.5, 100.5)), ("x.B avgt", "us/op", "lower", (2.5,))]),
        (CRITERION, "sample_measured_value", [("fib fib 20", "ns", "lower", (10, 20))]),
        ("command,mean,stddev,median\na,1.5,,2\n", "median", [("a", "", "lower", (2,))]),
        ("mean,median\n1,2\n3,4\n", "median", [("median", "", None, (2, 4))]),
        ("host,req/s,ms\na,5,1\n", "req/s", [("a", "", "higher", (5,))]),
        ("x,y,v\na,,1\n,a,2\n", "v", [("a", "", None, (1,)), ("a", "", None, (2,))]),
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
        (GO + "BenchmarkX-16 \t--- FAIL: BenchmarkX-16\n    x.go:9: no\n", None, "failed.* --- FAIL: BenchmarkX-16"),
        (GO + "exit status 1\nFAIL\texample.com/x\t3.1s\n", None, "failed.* FAIL example.com/x"),
        (GO + "panic: runtime error\n", None, "failed.* panic: runtime error"),
        (GOOGLE + '"BM_c",,,,,,,,true,"no such file"\n', "real_time", "failed.* true, no such file"),
        # A result without a number.
        (JMH.replace("2.5,0.1", "NaN,NaN"), "Score", "row 3, Score: 'NaN' is no number"),
        ("BenchmarkA-2 1 NaN ns/op\n", None, "A: 'NaN' is no number"),
        (CRITERION.replace(",200", ",0"), "sample_measured_value", "row 2, sample_measured_value: nan is no number"),
        ('[{"benchmark": "x.A", "primaryMetric": {"score": 1}}]', None, "neither a list of numbers nor an export"),
        ("", None, "has no numbers"),
        ("1\n2 x\n", None, "line 2: 'x' is no number"),
        # A decimal comma makes two columns.
        ("12,5\n12,6\n", None, "the columns of numbers 1, 2: choose one"),
        ("1,234,5\n12,6\n", None, "not each line has 3 columns"),
        ("a,b\nx,1\ny,z\n", None, "row 2, b: 'z' is no number"),
        ('a,b\n"x,1\n', None, "is no CSV file"),
        ("[" * 100000, None, "begins as JSON and is none"),
        ('{"results": [{"command": "a", "times": [true]}]}', None, "results, times 1: True is no number"),
        ("[1, null]", None, "item 2: None is no number"),
        ("mean,median\n1,2\n3,4\n", None, "the columns of numbers mean, median: choose one"),
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


SLOW, FAST = (10.0, 10.1, 9.9, 10.2, 10.0), (8.0, 8.1, 7.9, 8.0, 8.2)


def of(before, after, better=None):
    return verdict.compared(before, after, better, 0.01, 0.95)


def compared(*given):
    return of(*given).described()


def timed(*values, name="a", unit="s", better="lower"):
    return Series(name, unit, better, values)


def test_a_comparison_is_that_of_the_filter():
    (one,) = compared([timed(*SLOW)], [timed(*FAST)])["comparisons"]
    judged = smt_compare(list(SLOW), list(FAST), better="lower")
    assert {key: one[key] for key in judged} == judged
    assert one["verdict"] == "gain" and one["change"] < 0 and one["before_value"] > one["after_value"]
    # Of one measurement on each side the name does not matter.
    (one,) = compared([timed(*SLOW, name="on")], [timed(*FAST, name="off")])["comparisons"]
    assert one["name"] == "on -> off"


def test_what_a_terminal_shows():
    shown = verdict.lines(of([timed(*SLOW, 9.0)], [timed(*FAST)]), lambda value: f"{value:.1f}")
    assert shown[0].startswith("a: 10.1 -> 8.1 s, −19.9 % (") and shown[0].endswith("better, n = 5")
    assert shown[1:] == [verdict.ORDER, "a has 1 value more on one side, which is left out."]
    few = verdict.lines(of([timed(1.0, 1.1)], [timed(2.0, 2.1)]), str)
    assert few[0].endswith("not decided, n = 2") and "2 blocks are too few" in few[1]


def test_several_are_compared_by_name_and_unit_as_one_family():
    before = [timed(*SLOW), timed(*SLOW, name="b"), timed(*SLOW, unit="B/op"), timed(0.0, unit="allocs/op")]
    after = [timed(*FAST, name="c"), timed(*FAST), timed(*FAST, unit="B/op"), timed(0.0, unit="allocs/op")]
    document = compared(before, after)
    found = [(one["name"], one["unit"], one["family"]) for one in document["comparisons"]]
    assert found == [("a", "s", 2), ("a", "B/op", 2)]
    assert document["not_compared"] == ["b s", "a allocs/op", "c s"]


def go(*names, factor=1.0, unit="ns/op"):
    """Return what Go printed of benchmarks, with -count 5."""
    return "".join(f"Benchmark{name} 10 {factor * slow:.3f} {unit}\n" for slow in SLOW for name in names)


def csv(header, *rows, factor=1.0):
    """Return a CSV file in which each row is measured five times."""
    return "\n".join([header, *(f"{row},{factor * slow:.3f}" for slow in SLOW for row in rows)])


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        # -cpu 1,2,4
        (go("A", "A-2", "A-4"), go("A", "A-2", "A-4"), ["A", "A-2", "A-4"]),
        (go("A/n-8-16", "A/n-9-16"), go("A/n-8-8", "A/n-9-8"), ["A/n-8", "A/n-9"]),
        # Without SMT all of them run on fewer CPUs.
        (go("A-16", "B-16"), go("A-8", "B-8"), ["A", "B"]),
        # One side with -cpu 1,16.
        (go("A-16"), go("A", "A-16"), ["A-16"]),
        # A number at the end is a part of the name where GOMAXPROCS is 1.
        (go("A/8", "A/n-8", "A/n-9"), go("A/8", "A/n-8", "A/n-9"), ["A/8", "A/n-8", "A/n-9"]),
        (f"pkg: x\n{go('A-2')}pkg: y\n{go('A-2')}", f"pkg: x\n{go('A-2')}pkg: y\n{go('A-2')}", ["A pkg=x", "A pkg=y"]),
        (csv("n,threads,v", "a,1", "a,2"), csv("n,threads,v", "a,1", "a,2"), ["a threads=1", "a threads=2"]),
        (csv("threads,v", "1", "2", "4"), csv("threads,v", "1", "2"), ["v threads=1", "v threads=2"]),
        # What differs between the files alone is no setting of one.
        (csv("n,threads,v", "a,16", "b,16"), csv("n,threads,v", "a,8", "b,8"), ["a", "b"]),
        (csv("n,iterations,v", "a,10", "b,20"), csv("n,iterations,v", "a,5", "b,50"), ["a", "b"]),
        # Names that one file lacks, and a name that all rows have.
        (csv("n,v", "a", "b"), csv("n,v", "b", "c"), ["b"]),
        (csv("n,v", "on"), csv("n,v", "off"), ["on -> off"]),
        ("i,req,v\n1,10,5\n2,10,6\n3,11,5\n4,12,5", "i,req,v\n1,10,5\n2,10,6\n3,11,5\n4,12,5", ["v"]),
    ],
)
def test_what_tells_measurements_apart_makes_them_several(before, after, names, tmp_path):
    sides = []
    for name, content in (("before", before), ("after", after)):
        (tmp_path / name).write_text(content, encoding="utf-8")
        sides.append(measurements.read(str(tmp_path / name), "v" if "v" in content.partition("\n")[0] else None))
    assert [one["name"] for one in compared(*sides, "lower")["comparisons"]] == names


def test_the_option_is_for_what_has_no_direction_of_its_own():
    before = [timed(*SLOW), timed(*SLOW, unit="req/s", better="higher"), timed(*SLOW, unit="p99", better=None)]
    after = [timed(*FAST), timed(*FAST, unit="req/s", better="higher"), timed(*FAST, unit="p99", better=None)]
    for better, last in (("lower", "gain"), ("higher", "loss")):
        found = compared(before, after, better)["comparisons"]
        assert [one["verdict"] for one in found] == ["gain", "loss", last]
        # What was taken from the option is shown, and nothing else.
        (said,) = compared(before, after, better)["cautions"][1:]
        assert better in said and "p99" in said and "req/s" not in said


UNKNOWN = timed(*SLOW, name="x", unit="", better=None)


@pytest.mark.parametrize(
    ("before", "after", "error", "reason"),
    [
        ([UNKNOWN], [UNKNOWN], MeasurementsError, "which way x is better: set smt_compare_better"),
        ([timed(1.0), timed(1.0, name="b")], [timed(1.0, name="c")], MeasurementsError, "a s, b s before, and c s "),
        ([timed(1.0)], [timed(1.0, unit="ms")], MeasurementsError, "different units: s and ms"),
        ([timed(1.0), timed(2.0)], [timed(1.0)], MeasurementsError, "a name twice"),
        ([timed(0.0)], [timed(0.0)], paired.SampleError, "has no ratio"),
    ],
)
def test_what_is_not_known_is_not_said(before, after, error, reason):
    with pytest.raises(error, match=reason):
        compared(before, after)
