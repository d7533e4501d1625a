# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where numbers are found: in documents among other text, in the last line that matches, in files."""

from __future__ import annotations

import json
import math

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import UnreadableError
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.output import sources

HYPERFINE = '{\n  "results": [\n    {\n      "command": "awk \'{x}\'",\n      "mean": 0.25\n    }\n  ]\n}\n'


def value(output="", errors="", directory="/nowhere", cut=False, **source):
    metric = {"name": "rate", "unit": "1/s", "better": "higher", "aggregate": "sum", **source}
    worker = {"output": output, "errors": errors, "wall_seconds": 2.0, "cpu_seconds": 1.0, "cut": cut}
    return sources.Output(worker, str(directory)).value(metric)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("no document", []),
        ('{"a": 1}', [{"a": 1}]),
        ('[{"a": 1}, 2]\n', [[{"a": 1}, 2]]),
        ('{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        ('{"a": 1}{"a": 2}', [{"a": 1}, {"a": 2}]),
        ("Benchmark 1: awk '{print $1}' [x] {\n" + HYPERFINE, [json.loads(HYPERFINE)]),
        ("[ 10%] done\n[12:00:01] [INFO] {x}\n" + HYPERFINE + "bye {}\n", [json.loads(HYPERFINE), {}]),
        ('INFO [main] {"a": 1}\n', [{"a": 1}]),
        ('50 %\r100 %\r{"a": 1}', [{"a": 1}]),
        # Nothing inside of what is damaged, and nothing at all where the end is missing.
        ('{"a": 1,, "b": {"a": 2}}\n', []),
        ('{\n  "a": 1,,\n  "b":\n  {"a": 2}\n}\n{"a": 3}\n', [{"a": 3}]),
        ('{"a": 1}\n{"b": {"a": 2}, ', []),
        ('{"b": {"a": 2}, "c": "x', []),
        ("[" * 100000, []),
        ('{"a": ' * 50000, []),
        ('{"x' * 50000, []),
        ('{"a" ' * 5000 + "\n" + '{"a": 1}', [{"a": 1}]),
        ('{"a" 1}\n' * 2000 + '{"a": 1}', []),
        ("[" + "9" * 5000 + "]", []),
    ],
)
def test_documents_among_other_text(text, found):
    assert sources.documents(text) == found


def test_a_document_of_sixteen_mebibytes_is_read_whole():
    text = json.dumps({"jobs": [{"iops": 2, "x": "y" * 1000} for _job in range(16000)]}, indent=1)
    assert len(text) > 16_000_000
    assert value(text, json=["jobs", "*", "iops"]) == 32000


@pytest.mark.parametrize(
    ("path", "number"),
    [
        (["jobs", "0", "iops"], 2),
        (["jobs", "-1", "iops"], 3),
        (["jobs", "*", "iops"], 5),
        (["jobs", "*", "*", "iops"], 12),
        (["of", "*"], 11),
        (["odd", "*"], 7),
        (["none", "*"], math.nan),
        (["jobs", "*", "name"], math.nan),
        (["jobs", "2", "iops"], math.nan),
        (["jobs", "x", "iops"], math.nan),
        (["jobs", "*"], math.nan),
        (["text"], 2.5),
        (["truth"], math.nan),
        (["null"], math.nan),
        (["mixed", "*"], math.nan),
    ],
)
def test_paths(path, number):
    document = {
        "jobs": [{"iops": 2, "name": "a", "read": {"iops": 5}}, {"iops": 3, "name": "b", "write": {"iops": 7}}],
        "of": {"a": 5, "b": 6},
        "odd": {"*": 7, "b": 6},
        "none": [],
        "text": "2.5",
        "truth": True,
        "null": None,
        "mixed": [1, None],
    }
    assert value(json.dumps(document), json=path) == pytest.approx(number, nan_ok=True)


def test_the_last_document_that_has_the_path_counts():
    lines = '{"rate": 1}\n{"rate": 2}\n{"other": 3}\n'
    assert value(lines, json=["rate"]) == 2
    # What perf stat -j prints, it prints to standard error.
    assert value("no document", errors='{"counter-value" : "7.5"}\n', json=["counter-value"]) == 7.5
    assert value('{"rate": 1}', errors='{"rate": 2}', json=["rate"]) == 1


def test_a_document_without_its_begin_is_not_read():
    with pytest.raises(UnreadableError, match="more than 16 MiB of output, so the begin of its JSON is lost"):
        value('{"rate": 1}', cut=True, json=["rate"])
    assert value("rate 1", cut=True, pattern=r"rate (\S+)") == 1


@pytest.mark.parametrize(
    ("output", "errors", "pattern", "number"),
    [
        ("rate 1\nrate 2\n", "", r"rate (\S+)", 2),
        ("rate 1\rrate 2\rrate 3", "", r"rate (\S+)", 3),
        # The first one of a line: zstd prints the speeds of both ways.
        ("1 MB/s, 7 MB/s\r2 MB/s, 9 MB/s\n", "", r"([0-9.]+) MB/s", 2),
        ("rate 5\n", "rate 7\n", r"rate (\S+)", 5),
        ("done\n", "rate 6\rrate 7\n", r"rate (\S+)", 7),
        ("a 1\nrate\n 2\n", "", r"(?s)rate.*?(\d+)", 2),
        ("rate 1\nnone\n", "", r"rate (\d+)|none", 1),
        ("p50 1 rate 2\n", "", r"p50 (\d+) rate (?P<value>\d+)", 2),
        ("rate 1.5k\n", "", r"rate ([0-9.]+)(?P<unit>[kM]?)", 1500),
        ("a,1,2.5,3\n", "", r"^\w+,[^,]*,([0-9.]+),", 2.5),
        ("nothing", "", r"rate (\S+)", math.nan),
    ],
)
def test_what_a_pattern_finds(output, errors, pattern, number):
    if "?P<unit>" in pattern:
        assert value(output, errors, pattern=pattern, unit="requests/s") == number
    else:
        assert value(output, errors, pattern=pattern) == pytest.approx(number, nan_ok=True)


def test_numbers_in_files_that_the_worker_left(tmp_path):
    (tmp_path / "result.json").write_text('[{"score": 3}, {"score": 4}]')
    (tmp_path / "log.txt").write_text("rate 1\nrate 8\n")
    assert value('[{"score": 9}]', directory=tmp_path, file="*.json", json=["*", "score"], scale=0.5) == 3.5
    assert value(directory=tmp_path, file="log.txt", pattern=r"rate (\d+)") == 8
    assert math.isnan(value(directory=tmp_path, file="other", pattern=r"rate (\d+)"))


def test_a_document_in_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "FILES_LIMIT", 20)
    (tmp_path / "result.json").write_text('{"rate": 1, "x": "' + "y" * 50 + '"}')
    with pytest.raises(UnreadableError, match="the begin of its JSON is lost"):
        value(directory=tmp_path, file="result.json", json=["rate"])


def test_a_tool_that_prints_more_than_one_result():
    assert value('[{"score": 3}]', json=["*", "score"], one="choose one") == 3
    assert value('[{"scores": [3, 5]}]', json=["*", "scores", "*"], one="choose one", mean=True) == 4
    for output, source in (
        ('[{"score": 3}, {"score": 4}]', {"json": ["*", "score"]}),
        ("3 op\n4 op", {"pattern": r"(\d+) op"}),
    ):
        with pytest.raises(UnreadableError, match="2 results, and one is measured: choose one"):
            value(output, one="choose one", **source)


def test_the_unit_beside_a_number_in_a_document():
    source = {"json": ["score"], "unit_at": ["unit"], "unit": "ns"}
    assert value('{"score": 3, "unit": "us"}', **source) == pytest.approx(3000)
    assert value('{"score": "1.5ms"}', **source) == pytest.approx(1_500_000)
    with pytest.raises(UnreadableError, match="cannot be converted to 'ns'"):
        value('{"score": 3, "unit": "ops/s"}', **source)


def test_the_clock_in_another_unit():
    assert value(clock="wall_seconds", scale=1000.0) == 2000
