# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a running plan, as one line for the terminal."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import (
    UNSET,
    Count,
    Name,
    Number,
    Unset,
    at_most,
)

# A host's progress has a few hundred bytes.
MAX_BYTES = 64 * 1024


class MetricSeen(parts.Part, frozen=True):
    """A value."""

    name: Name
    value: Number | None
    unit: t.Annotated[str, at_most(1000)]
    better: parts.Better | Unset = UNSET


class Last(parts.Part, frozen=True):
    """What was measured last."""

    workload: Name
    placement: Name
    arm: Name
    workers: Count
    metric: MetricSeen


class Progress(parts.Part, frozen=True):
    """The progress of a plan."""

    phase: t.Annotated[str, at_most(1000)]
    at: parts.Moment | Unset = UNSET
    block: Count | Unset = UNSET
    samples: Count | Unset = UNSET
    fraction: parts.Share | Unset = UNSET
    seconds_left: parts.Seconds | Unset = UNSET
    arm: Name | Unset | None = UNSET
    next: t.Annotated[str, at_most(200)] | Unset | None = UNSET
    last: Last | Unset | None = UNSET


def parse(written: str) -> Progress | None:
    """Parse the progress that a plan wrote; return None when it is not valid."""
    if len(written) > MAX_BYTES:
        return None
    try:
        return parts.decoded(written, Progress)
    except text.BorderError:
        return None


class Shown:
    """Which progress gets a line: the first one of each equal part of a plan after the first part.

    Args:
        lines: how many lines there are at most.
    """

    def __init__(self, lines: int) -> None:
        self._parts = lines + 1
        self._shown = 0

    def is_due(self, progress: Progress) -> bool:
        """Return whether progress of :func:`parse` gets a line."""
        part = min(int((progress.fraction or 0) * self._parts), self._parts - 1)
        if part <= self._shown:
            return False
        self._shown = part
        return True


def line(progress: Progress) -> str:
    """Format progress as one line: share done, time left, phase, last value, what comes next.

    Args:
        progress: from ``parse``.
    """
    said = [f"{100 * (progress.fraction or 0):3.0f} %"]
    said.append(f"block {progress.block or 0}, about {_length(progress.seconds_left or 0)} left")
    if progress.phase != "measuring":
        said.append(text.line(progress.phase, 60))
    if progress.last:
        said.append("last: " + _last(progress.last))
    if progress.next:
        said.append(f"next: {text.line(progress.next, 60)}")
    return ", ".join(said)


def _last(last: Last) -> str:
    metric = last.metric
    where = f"{placements.short_title(last.placement)}, {last.arm}"
    return text.line(f"{last.workload} {metric.name} ({where}): {metric.value or 0:.4g} {metric.unit}", 200)


def _length(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
