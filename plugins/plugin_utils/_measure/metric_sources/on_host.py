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

MAX_VALUE = 1e100
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+-?[0-9]+)?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')


def command_for_file(path: str) -> list[str]:
    """Return the argv that prints a file."""
    return ["cat", "--", path]


def of_command(printed: str) -> float | None:
    """Return the number that a command printed, None where it printed anything else."""
    words = printed.split()
    return _number(words[0]) if len(words) == 1 else None


def of_file(printed: str, sample: str) -> float | None:
    """Return the value of a sample of a file, None where it has none.

    Args:
        printed: the file's content.
        sample: the sample's name with its labels, such as ``requests_total{code="200"}``.
    """
    wanted = _key(f"{sample} 0")
    for line in printed.splitlines():
        if wanted is not None and not line.startswith("#") and _key(line) == wanted:
            match = _SAMPLE.fullmatch(line.strip())
            return _number(match[3]) if match else None
    return None


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
