# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a source of a trial's metrics has to offer.

A source is one file of this folder with ``SOURCES``, a tuple of them; the registry finds it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema

# Longer than any trial.
ENDLESS: float = schema.MAX_SECONDS
# A server gives at most 11,000 in one answer.
MAX_POINTS = 10_000


class NotKnownError(Exception):
    """How far back a query counts is not known; the message says why."""


class Path(t.NamedTuple):
    """How far back a query counts.

    Attributes:
        seconds: the greatest age of a sample that is a part of its value; at most ENDLESS.
        said: what makes it so old, a clause each, from the query to the scrape.
    """

    seconds: float = 0.0
    said: tuple[str, ...] = ()


class Series(t.NamedTuple):
    """The points of a metric.

    Attributes:
        points: (seconds since the epoch, value), in the order of time, without those that are no finite number.
        expected: how many there should be.
    """

    points: tuple[tuple[float, float], ...]
    expected: int


class Asked:
    """What a range query asks for, in milliseconds, as servers keep time.

    Args:
        begin: the first moment.
        end: the last moment.
        step: seconds between two points; more where there would be too many.

    Attributes:
        expected: how many points there should be.
    """

    def __init__(self, begin: datetime.datetime, end: datetime.datetime, step: float) -> None:
        self._begin, self._end = (round(moment.timestamp() * 1000) for moment in (begin, end))
        seconds = (self._end - self._begin) / 1000
        self._step = round(max(step, math.ceil(seconds / MAX_POINTS)) * 1000)
        self.expected = (self._end - self._begin) // self._step + 1

    @property
    def fields(self) -> dict[str, str]:
        """The fields of the request."""
        return {
            name: f"{value / 1000:.3f}"
            for name, value in (("start", self._begin), ("end", self._end), ("step", self._step))
        }

    def has(self, moment: float) -> bool:
        """Return whether a moment is one of those asked for; a server may say any number."""
        return self._begin - 1 <= moment * 1000 <= self._end + 1


class Server(t.Protocol):
    """Who is asked for numbers of one host, over the network. What it is asked for has the form of its source."""

    def at_most(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Limit the time of all questions within a block together."""

    def instant(self, asked: t.Any) -> float:
        """Return the number now; raise SourceError where there is none."""

    def over(self, asked: t.Any, begin: datetime.datetime, end: datetime.datetime, step: float) -> Series:
        """Return the points between two moments, a step of seconds apart; raise SourceError where there are none."""

    def looks_back(self, asked: t.Any, declared: float | None) -> Path:
        """Return how far back a value counts, with what the user declares of it, in seconds; raise NotKnownError."""


class MetricSource:
    """A source of numbers. Its server is asked for them, or a command on the host prints them.

    Attributes:
        key: the setting of a metric that names it.
        settings: all settings of it, that one first.
        about: what their values are, for the documentation.
    """

    key: t.ClassVar[str]
    settings: t.ClassVar[tuple[str, ...]]
    about: t.ClassVar[str]

    def asked(self, entry: t.Mapping[str, t.Any]) -> t.Hashable:
        """Return what it is asked for, from the settings of a metric; raise SourceError where they are not valid.

        It is called for a metric of another source as well.
        """
        return str(entry.get(self.key) or "")

    def connect(self, _get: t.Callable[[str], t.Any]) -> Server | None:
        """Return the server as the variables of `variables.NAMES` say, None where it is read on the host."""
        return None

    def command(self, _asked: t.Any) -> list[str]:
        """Return the argv that a check runs on the host; none where a server is asked."""
        return []

    def number(self, _asked: t.Any, _printed: str) -> float | None:
        """Return the number in what the command printed, None where it has none."""
        return None

    def title(self, asked: t.Any) -> str:
        """Return what is read on the host, for a sentence."""
        return " ".join(asked)


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where a number comes from.

    Attributes:
        source: the source.
        asked: what it is asked for.
        counter: whether the number only grows, and its rate counts.
    """

    source: MetricSource
    asked: t.Any
    counter: bool = False

    @property
    def command(self) -> list[str]:
        """The argv that reads it on the host; none where a server is asked."""
        return self.source.command(self.asked)


def span(seconds: float) -> str:
    """Return a duration for people, such as ``2 min 15 s``; it is exact to a tenth of a second."""
    if seconds >= ENDLESS:
        return "without an end"
    minutes, rest = divmod(round(seconds, 1), 60)
    return " ".join(
        filter(None, [f"{minutes:.0f} min" if minutes else "", f"{rest:.3g} s" if rest or not minutes else ""])
    )
