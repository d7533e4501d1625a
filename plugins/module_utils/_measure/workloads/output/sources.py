# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a metric's number is: in what a worker printed, in files that it left, or on the clock."""

import glob
import json
import math
import os
import re
import stat
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import users
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    Metric,
    UnreadableError,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.output import printed

# How many bytes of all files of a worker together are read: the same share of each file, from its end. And how many
# files at most.
FILES_LIMIT = 16 * 1024 * 1024
MAX_FILES = 1024
# The item of a path that stands for all items of a list or mapping; their numbers are summed.
ALL = "*"
UNIT, VALUE = "unit", "value"
# How many begins of a document that turn out to be none are tried: each costs time.
MAX_TRIED = 1000
_NUMBERS = r"-?[0-9][0-9.eE+-]*\s*[,\]]"
_DOCUMENT = rf"(?:\{{(?=\s*[\"}}])|\[(?=\s*(?:[\]{{\[\"]|{_NUMBERS}|true|false|null|NaN|-?Infinity)))"
_BEGIN = re.compile(rf"^[ \t]*{_DOCUMENT}|{_DOCUMENT}", re.MULTILINE)
_LINE_END = re.compile(r"[\r\n]")
_REST = re.compile(r"\S")


class Output:
    """What one worker printed and left, read once for all metrics.

    Args:
        worker: as ``runner.run`` returns it.
        directory: its working directory, which is read with the rights of its owner.
        owner: (uid, gid) of the worker, or None for the user of this process.
    """

    def __init__(self, worker: "t.Mapping[str, t.Any]", directory: str, owner: "tuple[int, int] | None" = None) -> None:
        self._worker, self._directory, self._owner = worker, directory, owner
        self._documents: t.Dict[t.Optional[str], t.List[t.Any]] = {}
        self._texts: t.Dict[t.Optional[str], t.Tuple[t.List[str], bool]] = {
            None: ([worker["output"], worker["errors"]], bool(worker.get("cut")))
        }

    def value(self, metric: Metric) -> float:
        """Return the number from a metric's source, NaN where there is none.

        Args:
            metric: its declaration, with another source than ``rate``.

        Raises:
            UnreadableError: it is not known what the number is.
        """
        if "clock" in metric:
            seconds: float = self._worker[metric["clock"]] * metric.get("scale", 1.0)
            return seconds
        if "json" in metric:
            return self._in_documents(metric)
        texts, _cut = self._of(metric.get("file"))
        if "quantile" in metric:
            matches = re.findall(metric["pattern"], "\n".join(texts))
            return _quantile(matches, metric["quantile"]) * metric.get("scale", 1.0)
        return next((value for value in (_matched(metric, text) for text in texts) if value is not None), math.nan)

    def _of(self, file: "str | None") -> "tuple[list[str], bool]":
        """Return the texts of a source in the order in which they are looked at, and whether their begin is lost."""
        if file not in self._texts:
            self._texts[file] = _files(self._directory, t.cast(str, file), self._owner)
        return self._texts[file]

    def _in_documents(self, metric: Metric) -> float:
        file = metric.get("file")
        texts, cut = self._of(file)
        if cut:
            raise UnreadableError(
                f"more than {FILES_LIMIT // 1024 // 1024} MiB of output, so the begin of its JSON is lost: let it"
                " print less"
            )
        if file not in self._documents:
            self._documents[file] = [document for text in reversed(texts) for document in documents(text)]
        for document in reversed(self._documents[file]):
            values = at_path(document, metric["json"])
            if values:
                _see_that_it_is_one(metric, len(at_path(document, _up_to_all(metric["json"]))))
                return _combined(metric, document, values)
        return math.nan


def in_json(text: str, path: "t.Sequence[str]") -> float:
    """Return the number at a path in the last JSON document of a text that has it, or NaN."""
    values = next(filter(None, (at_path(document, path) for document in reversed(documents(text)))), [])
    return _plain(values[0]) if len(values) == 1 else math.nan


def documents(text: str) -> "list[t.Any]":
    """Return the JSON objects and arrays in a text, in order; other text may be before, between and after them.

    What is inside of a damaged document is none, and neither is anything where the last one has no end.
    """
    read: list[t.Any] = []
    decoder = json.JSONDecoder()
    place, tried = 0, 0
    # The column where a line began with what is no document: what is right of it may be a part of that.
    damaged: t.Optional[int] = None
    while tried < MAX_TRIED:
        begin = _BEGIN.search(text, place)
        if not begin:
            return read
        at = begin.end() - 1
        place = begin.end()
        starts_line = begin.start() == 0 or text[begin.start() - 1] == "\n"
        column = at - begin.start()
        if damaged is not None and not (starts_line and column <= damaged):
            continue
        try:
            document, place = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated") or not _REST.search(text, error.pos):
                return []
            tried += 1
            damaged = column if starts_line else damaged
        except (ValueError, RecursionError):
            return []
        else:
            read.append(document)
            damaged = None
    return []


def at_path(document: object, path: "t.Iterable[str]") -> "list[t.Any]":
    """Return what is at a path in a document: one value, or those of all items where the path has ``*``.

    Args:
        document: plain data.
        path: keys of objects, indices of arrays from 0 (from -1 backwards), and ``*``.
    """
    values: list[t.Any] = [document]
    for key in path:
        values = [below for value in values for below in _below(value, key)]
    return values


def _below(value: object, key: str) -> "list[t.Any]":
    if isinstance(value, dict):
        return [value[key]] if key in value else list(value.values()) if key == ALL else []
    if not isinstance(value, list):
        return []
    if key == ALL:
        return value
    try:
        return [value[int(key)]]
    except (ValueError, IndexError):
        return []


def _up_to_all(path: "t.Sequence[str]") -> "t.Sequence[str]":
    return path[: path.index(ALL) + 1] if ALL in path else path


def _see_that_it_is_one(metric: Metric, count: int) -> None:
    if "one" in metric and count > 1:
        raise UnreadableError(f"{count} results, and one is measured: {metric['one']}")


def _combined(metric: Metric, document: object, raw_values: "list[t.Any]") -> float:
    """Return the sum, or the mean, of what is at a path, in the metric's unit."""
    units = at_path(document, metric["unit_at"]) if "unit_at" in metric else [None]
    unit = str(units[0]) if units and units[0] is not None else None
    values = [_of_document(value, unit, metric) for value in raw_values]
    return (
        math.fsum(values) / (len(values) if metric.get("mean") else 1) if all(map(math.isfinite, values)) else math.nan
    )


def _of_document(value: object, unit: "str | None", metric: Metric) -> float:
    text = value if isinstance(value, str) else repr(_plain(value))
    return printed.number(printed.Place("", text, "", unit), metric["unit"], metric.get("scale", 1.0))


def _plain(value: object) -> float:
    """Return a number of a document, NaN for another value."""
    try:
        return float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def _matched(metric: Metric, text: str) -> "float | None":
    """Return the number of the last line that matches, or None. Lines before it may show progress."""
    group = value_group(metric["pattern"])
    last: t.Optional[t.Match[str]] = None
    count = 0
    for match in re.finditer(metric["pattern"], text):
        if match.group(group) is not None:
            count += 1
            if last is None or _LINE_END.search(text, last.end(group), match.start(group)):
                last = match
    if last is None:
        return None
    _see_that_it_is_one(metric, count)
    begin, end = last.span(group)
    before, behind = text[max(0, begin - printed.CONTEXT) : begin], text[end : end + printed.CONTEXT]
    # A comma that the pattern names is one between columns.
    place = printed.Place(
        before[:-1] + " " if before.endswith(",") and ",(" in metric["pattern"] else before,
        last.group(group),
        " " + behind[1:] if behind.startswith(",") and ")," in metric["pattern"] else behind,
        last.groupdict().get(UNIT),
    )
    return printed.number(place, metric["unit"], metric.get("scale", 1.0))


def value_group(pattern: str) -> int:
    """Return which group of a pattern is the number: that named ``value``, else the first that is not the unit; 0 where
    there is none.
    """
    compiled = re.compile(pattern)
    names = compiled.groupindex
    others = [number for number in range(1, compiled.groups + 1) if number != names.get(UNIT)]
    return names.get(VALUE) or (others[0] if others else 0)


def _quantile(matches: "t.Sequence[t.Any]", share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed, or NaN."""
    pairs = [
        (_plain(match[0]), _plain(match[1])) if isinstance(match, tuple) else (_plain(match), 1.0) for match in matches
    ]
    if not all(math.isfinite(number) for pair in pairs for number in pair):
        return math.nan
    values = sorted(pairs)
    remaining = share * sum(count for _value, count in values)
    for value, count in values:
        remaining -= count
        if remaining <= 0:
            return value
    return math.nan


def _files(directory: str, pattern: str, owner: "tuple[int, int] | None") -> "tuple[list[str], bool]":
    """Return the text of the files that a worker left, and whether the begin of one is lost."""
    try:
        texts, cut = users.call(owner or (os.geteuid(), os.getegid()), _read, directory, pattern)
    except users.OtherUserError:
        return [], False
    return ["\n".join(texts)], cut


def _read(directory: str, pattern: str) -> "tuple[list[str], bool]":
    texts, cut = [], False
    paths = sorted(glob.glob(os.path.join(glob.escape(directory), pattern)))[:MAX_FILES]
    for path in paths:
        share = FILES_LIMIT // len(paths)
        try:
            # Skip what is not a regular file, such as a FIFO without a writer.
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
                status = os.fstat(stream.fileno())
                if stat.S_ISREG(status.st_mode):
                    stream.seek(max(0, status.st_size - share))
                    texts.append(stream.read(share).decode("utf-8", "replace"))
                    cut = cut or status.st_size > share
        except OSError:
            continue
    return texts, cut
