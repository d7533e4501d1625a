# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measurements in files as people have them: numbers, columns of a CSV file, hyperfine's export, Go's benchmarks."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import re
import stat
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text

MAX_BYTES = 16 * 1024 * 1024
MAX_SERIES = 1000
HIGHER, LOWER = "higher", "lower"
_GO = re.compile(r"^Benchmark(\S+?)(?:-\d+)?[ \t]+\d+((?:[ \t]+[0-9.e+]+[ \t]+\S+)+)[ \t\r]*$", re.MULTILINE)
_GO_VALUE = re.compile(r"(\S+)\s+(\S+)")


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
    """

    name: str
    unit: str
    better: str | None
    values: tuple[float, ...]


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
        found = _series(content, column)
    except MeasurementsError as error:
        raise MeasurementsError(f"{text.line(path, 300)}: {error}") from None
    if not found:
        raise MeasurementsError(f"{text.line(path, 300)} has no numbers")
    if len(found) > MAX_SERIES:
        raise MeasurementsError(f"{text.line(path, 300)} has more than {MAX_SERIES} measurements")
    return found


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
        return _of_go(benchmarks)
    lines = [line for line in content.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    delimiter = next((one for one in ("\t", ";", ",") if any(one in line for line in lines)), None)
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
    if isinstance(document, list):
        return [Series("", "", None, tuple(_value(one, f"item {place}") for place, one in enumerate(document, 1)))]
    results = document.get("results")
    if not isinstance(results, list) or not all(
        isinstance(one, dict) and isinstance(one.get("times"), list) for one in results
    ):
        raise MeasurementsError("is neither a list of numbers nor an export of hyperfine (--export-json)")
    return [
        Series(
            text.line(one.get("command", ""), 100),
            "s",
            LOWER,
            tuple(_value(time, f"results, times {place}") for place, time in enumerate(one["times"], 1)),
        )
        for one in results
    ]


def _of_go(benchmarks: t.Iterable[re.Match[str]]) -> list[Series]:
    """Return the values of each benchmark and unit, without the number of CPUs, which differs with SMT off."""
    found: dict[tuple[str, str], list[float]] = {}
    for line in benchmarks:
        for value, unit in _GO_VALUE.findall(line[2]):
            found.setdefault((text.line(line[1], 100), text.line(unit, 40)), []).append(_value(value, line[1]))
    return [Series(name, unit, _better(unit), tuple(values)) for (name, unit), values in found.items()]


def _better(unit: str) -> str | None:
    """Return which way a unit of Go's benchmarks is better (https://go.dev/design/14313-benchmark-format)."""
    return LOWER if unit.endswith("/op") else HIGHER if unit in ("MB/s", "B/s") else None


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
    numeric = [name for place, name in enumerate(names) if body and not math.isnan(_number(body[0][place]))]
    chosen = [column] if column is not None else numeric
    if len(chosen) != 1 or names.count(chosen[0]) != 1:
        raise MeasurementsError(
            f"has the columns of numbers {text.line(', '.join(numeric), 300) or '(none)'}: choose one with"
            " -e smt_compare_column=NAME"
        )
    place = names.index(chosen[0])
    values = tuple(_value(row[place], f"row {number}, {chosen[0]}") for number, row in enumerate(body, 1))
    return [Series(text.line(chosen[0], 100) if has_names else "", "", None, values)] if values else []


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
