# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers that are read on the host: what a command prints, or a sample of a file in Prometheus' text format,
such as the textfile collector reads.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/.
"""

from __future__ import annotations

import math
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.base import MetricSource
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.server import SourceError

MAX_VALUE = 1e100
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?[0-9]+)?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')


class Command(MetricSource):
    """What a command prints; it is asked for by its argv."""

    key, settings = "command", ("command",)
    about = "a list of arguments, run on the host at each check, that prints a number"

    def asked(self, entry: t.Mapping[str, t.Any]) -> tuple[str, ...]:
        """Return the argv."""
        command = entry.get("command") or []
        if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
            raise SourceError(
                f"command is {text.line(command, 80)}: it must be a list of arguments, such as [cat, /run/rate]"
            )
        return tuple(command)

    def command(self, asked: tuple[str, ...]) -> list[str]:
        """Return the argv."""
        return list(asked)

    def number(self, _asked: tuple[str, ...], printed: str) -> float | None:
        """Return the number, None where anything else was printed."""
        words = printed.split()
        return _number(words[0]) if len(words) == 1 else None


class File(MetricSource):
    """A sample of a file; it is asked for by the file and the sample's name with its labels, such as
    ``requests_total{code="200"}``.
    """

    key, settings = "file", ("file", "sample")
    about = "a file on the host in the text format of Prometheus, and the name of one of its samples with its labels"

    def asked(self, entry: t.Mapping[str, t.Any]) -> tuple[str, str]:
        """Return file and sample."""
        if bool(entry.get("file")) != bool(entry.get("sample")):
            raise SourceError(
                "file and sample belong together: the file on the host, and the name of one of its samples"
            )
        return str(entry.get("file") or ""), str(entry.get("sample") or "")

    def command(self, asked: tuple[str, str]) -> list[str]:
        """Return the argv that prints the file."""
        return ["cat", "--", asked[0]]

    def number(self, asked: tuple[str, str], printed: str) -> float | None:
        """Return the sample's value, None where there is none."""
        wanted = _key(f"{asked[1]} 0")
        for line in printed.splitlines():
            if wanted is not None and not line.startswith("#") and _key(line) == wanted:
                match = _SAMPLE.fullmatch(line.strip())
                return _number(match[3]) if match else None
        return None

    def title(self, asked: tuple[str, str]) -> str:
        """Return the sample and the file."""
        return f"{asked[1]} of {asked[0]}"


class Rate:
    """The rate of a number that only grows, between two readings.

    Attributes:
        resets: how often it fell, as after a restart of the service; no rate is known of such a time.
    """

    def __init__(self) -> None:
        self._last: tuple[float, float] | None = None
        self.resets = 0

    def feed(self, now: float, value: float | None) -> float | None:
        """Return the rate since the last reading, None where there is none.

        Args:
            now: seconds of a clock that is never set.
            value: the reading, None where it failed.
        """
        before, self._last = self._last, (now, value) if value is not None else None
        if before is None or value is None or now <= before[0]:
            return None
        if value < before[1]:
            self.resets += 1
            return None
        return (value - before[1]) / (now - before[0])


def _key(line: str) -> tuple[str, tuple[tuple[str, str], ...]] | None:
    """Return name and labels of a line, None where it is no sample."""
    match = _SAMPLE.fullmatch(line.strip())
    if not match:
        return None
    labels: list[tuple[str, str]] = _LABEL.findall(match[2] or "")
    return match[1], tuple(sorted(labels))


def _number(word: t.Any) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) and abs(value) <= MAX_VALUE else None


SOURCES = (Command(), File())
