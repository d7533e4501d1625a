# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements in files as people have them: numbers, columns of a CSV file, hyperfine's export, Go's benchmarks."""

from __future__ import annotations

import collections
import csv
import dataclasses
import io
import itertools
import json
import math
import os
import re
import stat
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text

MAX_BYTES = 16 * 1024 * 1024
MAX_SERIES = 1000
HIGHER, LOWER = "higher", "lower"
# A benchmark, or what holds for those below it.
_GO = re.compile(
    r"^(?:Benchmark(\S+?)(-\d+)?[ \t]+\d+((?:[ \t]+[-+.0-9A-Za-z]+[ \t]+\S+)+)|(pkg|goos|goarch|cpu): (.*?))[ \t\r]*$",
    re.MULTILINE,
)
_GO_VALUE = re.compile(r"(\S+)\s+(\S+)")
_GO_BETTER = re.compile(r"^Unit[ \t]+(\S+)[ \t].*?\bbetter=(higher|lower)\b", re.MULTILINE)
_GO_FAILED = re.compile(r"--- FAIL: \S+|^FAIL\b.*|^panic: .*", re.MULTILINE)
_TIME = "(?:ns|us|\u00b5s|\u03bcs|ms|s|sec|min|hr?)"
_COST = re.compile(rf"{_TIME}/(?!{_TIME}$)\S+|(?:[kKMG]i?)?B/op|allocs/op")
# Not MB/sec, JMH's rate of allocation.
_RATE = re.compile(rf"(?!{_TIME}/)[^/]*[^/\s]/(?!sec){_TIME}")
# Columns of Google Benchmark and criterion; of summaries, those of hyperfine and pytest-benchmark are times.
_TIMES, _RATES = {"real_time", "cpu_time", "sample_measured_value"}, {"items_per_second", "bytes_per_second"}
_SUMMARY, _OF_TIMES = {"mean", "median", "min", "max", "user", "system"}, ({"command", "stddev"}, {"iqr", "ops"})
_NO_NAMES = ("error_occurred", "error_message", "unit", "time_unit", "outliers")
# What stands beside measurements: what was set for them, and what only counts them.
_SET = re.compile(r"|pkg|goos|goarch|cpu|n|size|param\b.*|(num_?)?(threads|cpus|cores|clients|jobs)", re.IGNORECASE)
_COUNTED = re.compile(r"iter|run|rep|round|block|sample|trial|index|time", re.IGNORECASE)
# Name (all of it in one), unit, which way is better, value, and what stands beside it.
Row = tuple[tuple[str, ...], str, str | None, float, dict[str, str]]


class MeasurementsError(Exception):
    """A file that cannot be used; the message names it, the place and the way out."""


@dataclasses.dataclass(frozen=True)
class Series:
    """The values of one measurement, in the order taken.

    Attributes:
        name: what was measured; empty where the file does not say it.
        unit: the unit; empty where the file does not say it.
        better: ``higher``, ``lower``, or None where the file does not say it.
        values: the numbers.
        beside: what stands beside each number, by its name; empty where nothing does.
    """

    name: str
    unit: str
    better: str | None
    values: tuple[float, ...]
    beside: tuple[dict[str, str], ...] = ()


def read(path: str, column: str | None = None) -> list[Series]:
    """Return what a file has, in its order.

    Args:
        path: the file.
        column: of a CSV file, the column with the numbers.

    Raises:
        MeasurementsError: the file cannot be read, or has no measurements.
    """
    content = _content(path)
    try:
        series = _series(content, column)
    except MeasurementsError as error:
        raise MeasurementsError(f"{text.line(path, 300)}: {error}") from None
    if not series:
        raise MeasurementsError(f"{text.line(path, 300)} has no numbers")
    if len(series) > MAX_SERIES:
        raise MeasurementsError(f"{text.line(path, 300)} has more than {MAX_SERIES} measurements")
    return series


def _content(path: str) -> str:
    try:
        # Not one without an end, such as a FIFO without a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise MeasurementsError(f"{text.line(path, 300)} is no regular file")
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise MeasurementsError(f"{text.line(path, 300)} cannot be read: {reason}") from None
    if len(data) > MAX_BYTES:
        raise MeasurementsError(f"{text.line(path, 300)} has more than {MAX_BYTES // 1024 // 1024} MiB")
    return data.decode("utf-8-sig", "replace")


def _series(content: str, column: str | None) -> list[Series]:
    if content.lstrip()[:1] in ("{", "["):
        return _of_document(content)
    benchmarks = list(_GO.finditer(content))
    if benchmarks:
        return _of_go(content, benchmarks)
    lines = [line for line in content.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    # Google Benchmark writes what it runs on above its CSV.
    lines = lines[next((at for at, line in enumerate(lines) if line.startswith("name,iterations,")), 0) :]
    delimiter = next((separator for separator in ("\t", ";", ",") if separator in "".join(lines[:1])), None)
    words = [line.split() for line in lines]
    if not delimiter and len({len(row) for row in words}) == 1 < len(words[0]) and _is_text(words[0][0]):
        lines, delimiter = ["\t".join(row) for row in words], "\t"
    if delimiter or column:
        return _of_csv(lines, delimiter or ",", column)
    # The name of a column stands above it.
    name, rows = (lines[0].strip(), lines[1:]) if lines and math.isnan(_number(lines[0].split()[0])) else ("", lines)
    values = [_value(word, f"line {number}") for number, line in enumerate(rows, 1) for word in line.split()]
    return [Series(text.line(name, 100), "", None, tuple(values))] if values else []


def _of_document(content: str) -> list[Series]:
    """Return a list of numbers, or the runs of each command that hyperfine exported."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise MeasurementsError("begins as JSON and is none") from None
    if isinstance(document, list) and not any(isinstance(value, dict) for value in document):
        return [Series("", "", None, tuple(_value(value, f"item {place}") for place, value in enumerate(document, 1)))]
    results = document.get("results") if isinstance(document, dict) else None
    if not isinstance(results, list) or not all(
        isinstance(result, dict) and isinstance(result.get("times"), list) for result in results
    ):
        raise MeasurementsError("is neither a list of numbers nor an export of hyperfine: take the CSV of other tools")
    for result in results:
        codes = result.get("exit_codes", [])
        _see_that_it_worked(result.get("command", ""), "exit codes", codes if isinstance(codes, list) else [codes])
    return [
        Series(
            text.line(result.get("command", ""), 100),
            "s",
            LOWER,
            tuple(_value(time, f"results, times {place}") for place, time in enumerate(result["times"], 1)),
        )
        for result in results
    ]


def _see_that_it_worked(name: object, what: str, statuses: t.Iterable[t.Any]) -> None:
    """Refuse a measurement of which its tool said anything but nothing, 0 or false: it failed."""
    failed = [
        "null" if value is None else str(value) for value in statuses if str(value).lower() not in ("", "0", "false")
    ]
    if failed:
        shown = text.line(", ".join(failed), 200)
        raise MeasurementsError(f"{text.line(name, 100)} failed ({what} {shown}): measure it again, or leave it out")


def _of_go(content: str, lines: t.Iterable[re.Match[str]]) -> list[Series]:
    """Return the values of each benchmark and unit. The number of CPUs stands beside them: it differs with SMT off."""
    _see_that_it_worked("a benchmark", "it printed", _GO_FAILED.findall(content))
    directions = dict(_GO_BETTER.findall(content))
    rows, settings = [], {"": ""}
    for line in lines:
        settings = {**settings, line[4] or "": line[5] or line[2] or ""}
        for value, unit in _GO_VALUE.findall(line[3] or ""):
            rows.append(((line[1],), unit, directions.get(unit) or _better(unit), _value(value, line[1]), settings))
    return _grouped(rows)


def by_setting(*sides: t.Sequence[Series]) -> t.Sequence[t.Sequence[Series]]:
    """Return both sides with a series for each setting, known as one or coming back, by which values of one differ."""
    every = [series for side in sides for series in side]
    keys = []
    for key in {key: None for series in every for columns in series.beside for key in columns}:
        counts = [collections.Counter(columns.get(key, "") for columns in series.beside) for series in every]
        least = [min(count.values()) for count in counts if len(count) > 1]
        if least and (_SET.fullmatch(key) or (min(least) > 1 and not _COUNTED.search(key))):
            keys.append(key)

    def rows(side: t.Iterable[Series]) -> t.Iterator[Row]:
        for series in side:
            for value, columns in zip(series.values, series.beside or itertools.repeat({})):
                setting = [f" {key}={columns[key]}" if key else columns[key] for key in keys if key in columns]
                yield ("".join([series.name, *setting]),), series.unit, series.better, value, {}

    return [_grouped(rows(side)) for side in sides] if keys else sides


def _grouped(rows: t.Iterable[Row]) -> list[Series]:
    """Return a series of all rows with the same name, unit and direction."""
    by_name: dict[tuple[tuple[str, ...], str, str | None], list[tuple[float, dict[str, str]]]] = {}
    for name, unit, better, value, columns in rows:
        by_name.setdefault((name, unit, better), []).append((value, columns))
    return [
        Series(text.line(" ".join(filter(None, name)), 100), text.line(unit, 40), better, *zip(*values))
        for (name, unit, better), values in by_name.items()
    ]


def _better(unit: str) -> str | None:
    """Return which way a unit of cost, or of a rate, is better (https://go.dev/design/14313-benchmark-format)."""
    return LOWER if _COST.fullmatch(unit) else HIGHER if _RATE.fullmatch(unit) else None


def _of_csv(lines: list[str], delimiter: str, column: str | None) -> list[Series]:
    try:
        rows = list(csv.reader(io.StringIO("\n".join(lines)), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise MeasurementsError(f"is no CSV file: {error}") from None
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise MeasurementsError(f"is neither a list of numbers nor a CSV file: not each line has {width} columns")
    has_names = all(math.isnan(_number(cell)) for cell in rows[0])
    names = [cell.strip() for cell in rows[0]] if has_names else [str(place) for place in range(1, width + 1)]
    body = rows[1:] if has_names else rows
    if names[:2] == ["name", "iterations"]:
        for row in body:
            _see_that_it_worked(row[0], "it said", row[8:10])
        # Statistics stand beside what they are of, and those of complexity have no iterations.
        statistics = {f"{row[0]}_{kind}" for row in body for kind in ("mean", "median", "stddev", "cv")}
        body = [row for row in body if row[1] and row[0] not in statistics]
    numeric = [name for place, name in enumerate(names) if body and not math.isnan(_number(body[0][place]))]
    chosen = [column] if column is not None else numeric
    if len(chosen) != 1 or names.count(chosen[0]) != 1:
        raise MeasurementsError(
            f"has the columns of numbers {text.line(', '.join(numeric), 300) or '(none)'}: choose one with"
            " -e smt_compare_column=NAME"
        )
    return _grouped(_named(chosen[0], names, body))


def _named(column: str, names: list[str], rows: list[list[str]]) -> t.Iterator[Row]:
    """Yield the number of each row with the row's text as its name, and with its other numbers beside it."""
    is_time = column in _TIMES or (column in _SUMMARY and any(tool <= set(names) for tool in _OF_TIMES))
    better = LOWER if is_time else HIGHER if column in _RATES else _better(column)
    place, unit_of = names.index(column), ("unit", "time_unit") if column in _TIMES else ("unit",)
    # criterion writes the time of so many iterations together.
    per = names.index("iteration_count") if column == "sample_measured_value" and "iteration_count" in names else 0
    others = [at for at, name in enumerate(names) if at != place and name.lower() not in _NO_NAMES]
    texts = [at for at in others if any(_is_text(row[at]) for row in rows)]
    for number, row in enumerate(rows, 1):
        given = _number(row[place]) / (_number(row[per]) or math.nan) if per else row[place]
        value = _value(given, f"row {number}, {column}")
        unit = next((cell for name, cell in zip(names, row) if name.lower() in unit_of), "")
        name = tuple(row[at].strip() for at in texts)
        columns = {names[at]: row[at] for at in others if at not in texts}
        yield name if any(name) else (column,), unit, _better(unit) or better, value, columns


def _is_text(cell: str) -> bool:
    return math.isnan(_number(cell)) and cell.strip().lower() not in ("", "nan")


def _value(given: t.Any, where: str) -> float:
    value = given if isinstance(given, (int, float)) and not isinstance(given, bool) else _number(given)
    if not math.isfinite(value):
        raise MeasurementsError(f"{text.line(where, 100)}: {text.line(ascii(given), 60)} is no number")
    return float(value)


def _number(given: t.Any) -> float:
    """Return a number as programs write it, NaN for anything else."""
    try:
        return float(given) if isinstance(given, str) and "_" not in given else math.nan
    except ValueError:
        return math.nan
