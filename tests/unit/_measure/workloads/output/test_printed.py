# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where numbers are found in what tools print, and what they are: units that change, times, parts of numbers."""

import json
import math

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import UnreadableError
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.output import printed, sources


def number(text, declared, before="", behind="", unit=None, scale=1.0):
    return printed.number(printed.Place(before, text, behind, unit), declared, scale)


UNITS = """
ms s 1e-3; us ms 1e-3; \u00b5s us 1; \u03bcs ns 1e3; msec us 1e3; seconds ms 1e3; m s 60; h min 60; us/op ns/op 1e3;
us ns/op 1e3; GB/s MB/s 1e3; kB/s MB/s 1e-3; MB/sec MB/s 1; MiB/s KiB/s 1024; GiB MiB/s 1024; MBps GB/s 1e-3;
Gbits/sec Mbit/s 1e3; Mbit/s MB/s 0.125; Kbytes/sec KB/s 1; kB/s KB/s 1; KB KiB/s 1; k requests/s 1e3; M kIOPS 1e3;
k keys/s 1e3; kreq/s req/s 1e3; ops/s Mops/s 1e-6; Mops/s kops/s 1e3; M MB/s 1
"""


@pytest.mark.parametrize(("unit", "declared", "factor"), [row.split() for row in UNITS.split(";")])
def test_a_unit_is_converted_to_that_of_the_metric(unit, declared, factor):
    assert printed.ratio(unit, declared) == pytest.approx(float(factor), rel=1e-12)
    assert number("2.5", declared, unit=unit) == pytest.approx(2.5 * float(factor), rel=1e-12)


@pytest.mark.parametrize(
    ("unit", "declared", "said"),
    [
        *((*units.split(), "is 1000 for some tools and 1024") for units in ("KB/s MB/s", "M B/s", "Kb KB")),
        *((*units.split(), "it is of something else") for units in ("ms MB/s", "MB/min MB/s", "requests/s s")),
        ("", "ms", "it is of something else"),
    ],
)
def test_a_unit_with_two_meanings_or_of_something_else_is_refused_where_it_was_asked_for(unit, declared, said):
    assert printed.ratio(unit, declared) is None or math.isnan(printed.ratio(unit, declared))
    with pytest.raises(UnreadableError, match=said):
        number("2.5", declared, unit=unit)


@pytest.mark.parametrize(
    ("behind", "declared", "value"),
    [
        (" GB/s\n", "MB/s", 2500),
        (" [ms] (mean)", "s", 0.0025),
        ("k requests/s", "requests/s", 2500),
        ("", "ms", 2.5),
        # What is no unit of the same thing says nothing.
        (" MB read", "requests/s", 2.5),
        (" min 0.22", "s", 2.5),
        (".\n", "s", 2.5),
    ],
)
def test_a_unit_that_follows_the_number_counts(behind, declared, value):
    assert number("2.5", declared, behind=behind) == pytest.approx(value)


BESIDE = """
0m1.250s s 1.25; 1m2.5s ms 62500; 1h2m3s s 3723; 1s500ms s 1.5; 2ms10us us 2010; 0:01.50 s 1.5; 1:02:03 s 3723;
12.5ms, us 12500; 950\u00b5s) ms 0.95; 12.31k requests/s 12310; 1.1GB/s MB/s 1100; 1.5e+06 1/s 1.5e6; .5 1/s 0.5
"""


@pytest.mark.parametrize(("text", "declared", "value"), [row.split() for row in BESIDE.split(";")])
def test_what_a_group_may_have_beside_digits(text, declared, value):
    assert number(text, declared) == pytest.approx(float(value), rel=1e-12)


@pytest.mark.parametrize("text", ["none", "", "inf", "nan", "-", "1.2.3", "0x1f"])
def test_what_is_no_number(text):
    assert math.isnan(number(text, "1/s"))


# What stands before a number, the number, what stands behind it, and the declared unit.
CUT = """
rate 12,|345| req/s|req/s; rate |12|,345 req/s|req/s; rate |12,345| req/s|req/s; |1,234,567||req/s; |12_345||req/s;
|12'345||req/s; 12\u202f|345||req/s; rate 12|3|.5 MB/s|MB/s; rate 123.|5| MB/s|MB/s; rate |1.5|e+06|1/s; rate -|5||1/s;
=-|5||1/s; total 1m|2.5|s|s; |1|m2.5s|s; elapsed 0:|01.50||s; |0|:01.50|s; |1_000x||1/s
"""


@pytest.mark.parametrize(
    ("before", "text", "behind", "declared"), [row.removeprefix(" ").strip("\n").split("|") for row in CUT.split(";")]
)
def test_a_part_of_a_number_is_refused(before, text, behind, declared):
    with pytest.raises(UnreadableError, match=r"was matched in a longer number|cannot be converted"):
        number(text, declared, before, behind)


@pytest.mark.parametrize(
    ("before", "text", "behind", "declared"),
    [("p99=", "12", ", p50=3", "ms"), ("+F:25:AES:", "12", "", "kB/s"), ("2024-05-", "12", "", "1")],
)
def test_what_stands_beside_a_number_is_not_always_a_part_of_it(before, text, behind, declared):
    assert number(text, declared, before, behind) == float(text)


def test_a_factor_beside_a_unit_that_is_converted():
    # The one says the same as the other.
    assert number("2.5", "us", behind=" ms", scale=1000.0) == pytest.approx(2500)
    # With the unit in the match it is the user's own.
    assert number("2.5", "us", unit="ms", scale=0.5) == pytest.approx(1250)
    # It is not known whether the factor was meant for another unit.
    for behind in (" us", " s"):
        with pytest.raises(UnreadableError, match="is followed by its unit"):
            number("2.5", "us", behind=behind, scale=1000.0)


HYPERFINE = '{\n  "results": [\n    {\n      "command": "awk \'{x}\'",\n      "mean": 0.25\n    }\n  ]\n}\n'


def found_in(output="", errors="", directory="/nowhere", cut=False, **source):
    metric = {"name": "rate", "unit": "1/s", "better": "higher", "aggregate": "sum", **source}
    worker = {"output": output, "errors": errors, "wall_seconds": 2.0, "cpu_seconds": 1.0, "cut": cut}
    return sources.Output(worker, str(directory)).value(metric)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("no document", []),
        ('[{"a": 1}, 2]\n', [[{"a": 1}, 2]]),
        ('{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        ("Benchmark 1: awk '{print $1}' [x] {\n" + HYPERFINE, [json.loads(HYPERFINE)]),
        ("[ 10%] done\n[12:00:01] [INFO] {x}\n" + HYPERFINE + "bye {}\n", [json.loads(HYPERFINE), {}]),
        ('50 %\r100 %\r{"a": 1}', [{"a": 1}]),
        # Nothing inside of what is damaged, and nothing at all where the end is missing.
        ('{"a": 1,, "b": {"a": 2}}\n', []),
        ('{\n  "a": 1,,\n  "b":\n  {"a": 2}\n}\n{"a": 3}\n', [{"a": 3}]),
        ('{"a": 1}\n{"b": {"a": 2}, ', []),
        ("[" * 100000, []),
        ('{"a" ' * 5000 + "\n" + '{"a": 1}', [{"a": 1}]),
        ('{"a" 1}\n' * 2000 + '{"a": 1}', []),
    ],
)
def test_documents_among_other_text(text, found):
    assert sources.documents(text) == found


DOCUMENT = {
    "jobs": [{"iops": 2, "name": "a", "read": {"iops": 5}}, {"iops": 3, "name": "b", "write": {"iops": 7}}],
    "of": {"a": 5, "b": 6},
    "odd": {"*": 7, "b": 6},
    "none": [],
    "text": "2.5",
    "truth": True,
    "null": None,
    "mixed": [1, None],
}
PATHS = """
jobs 0 iops: 2; jobs -1 iops: 3; jobs * iops: 5; jobs * * iops: 12; of *: 11; odd *: 7; none *: nan; jobs * name: nan;
jobs 2 iops: nan; jobs x iops: nan; jobs *: nan; text: 2.5; truth: nan; null: nan; mixed *: nan
"""


@pytest.mark.parametrize(("path", "number"), [row.split(":") for row in PATHS.split(";")])
def test_paths(path, number):
    assert found_in(json.dumps(DOCUMENT), json=path.split()) == pytest.approx(float(number), nan_ok=True)


def test_the_last_document_that_has_the_path_counts():
    lines = '{"rate": 1}\n{"rate": 2}\n{"other": 3}\n'
    assert found_in(lines, json=["rate"]) == 2
    # What perf stat -j prints, it prints to standard error.
    assert found_in("no document", errors='{"counter-found_in" : "7.5"}\n', json=["counter-found_in"]) == 7.5
    assert found_in('{"rate": 1}', errors='{"rate": 2}', json=["rate"]) == 1


def test_a_document_without_its_begin_is_not_read():
    with pytest.raises(UnreadableError, match="more than 16 MiB of output, so the begin of its JSON is lost"):
        found_in('{"rate": 1}', cut=True, json=["rate"])
    assert found_in("rate 1", cut=True, pattern=r"rate (\S+)") == 1


@pytest.mark.parametrize(
    ("output", "errors", "pattern", "number"),
    [
        ("rate 1\nrate 2\n", "", r"rate (\S+)", 2),
        # The first one of a line: zstd prints the speeds of both ways.
        ("1 MB/s, 7 MB/s\r2 MB/s, 9 MB/s\n", "", r"([0-9.]+) MB/s", 2),
        ("done\n", "rate 6\rrate 7\n", r"rate (\S+)", 7),
        ("rate 1\nnone\n", "", r"rate (\d+)|none", 1),
        ("rate 1.5k\n", "", r"rate ([0-9.]+)(?P<unit>[kM]?)", 1500),
        ("nothing", "", r"rate (\S+)", math.nan),
    ],
)
def test_what_a_pattern_finds(output, errors, pattern, number):
    if "?P<unit>" in pattern:
        assert found_in(output, errors, pattern=pattern, unit="requests/s") == number
    else:
        assert found_in(output, errors, pattern=pattern) == pytest.approx(number, nan_ok=True)


def test_numbers_in_files_that_the_worker_left(tmp_path):
    (tmp_path / "result.json").write_text('[{"score": 3}, {"score": 4}]')
    (tmp_path / "log.txt").write_text("rate 1\nrate 8\n")
    assert found_in('[{"score": 9}]', directory=tmp_path, file="*.json", json=["*", "score"], scale=0.5) == 3.5
    assert found_in(directory=tmp_path, file="log.txt", pattern=r"rate (\d+)") == 8
    assert math.isnan(found_in(directory=tmp_path, file="other", pattern=r"rate (\d+)"))


def test_the_unit_beside_a_number_in_a_document():
    source = {"json": ["score"], "unit_at": ["unit"], "unit": "ns"}
    assert found_in('{"score": 3, "unit": "us"}', **source) == pytest.approx(3000)
    assert found_in('{"score": "1.5ms"}', **source) == pytest.approx(1_500_000)
    with pytest.raises(UnreadableError, match="cannot be converted to 'ns'"):
        found_in('{"score": 3, "unit": "ops/s"}', **source)
