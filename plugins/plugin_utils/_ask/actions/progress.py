# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The progress of a running plan, as one line for the terminal."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema, text

# A host's progress has a few hundred bytes.
MAX_BYTES = 64 * 1024

_NUMBER = schema.or_null(schema.NUMBER)
_CHECKER = schema.Checker(
    schema.strict(
        ("phase",),
        phase=schema.text(1000),
        at=schema.MOMENT,
        block=schema.count(),
        samples=schema.count(),
        fraction=schema.SHARE,
        seconds_left=schema.SECONDS,
        arm=schema.or_null(schema.NAME),
        next=schema.or_null(schema.text(200)),
        last=schema.or_null(
            schema.whole(
                workload=schema.NAME,
                placement=schema.NAME,
                arm=schema.NAME,
                workers=schema.count(),
                metric=schema.strict(
                    ("name", "value", "unit"),
                    name=schema.NAME,
                    value=_NUMBER,
                    unit=schema.text(1000),
                    better=schema.one_of("higher", "lower"),
                ),
            )
        ),
    )
)


def parse(written: str) -> dict[str, t.Any] | None:
    """Parse the progress that a plan wrote; return None when it is not valid."""
    if len(written) > MAX_BYTES:
        return None
    try:
        progress: dict[str, t.Any] = text.parse(written)
        _CHECKER.check(progress)
    except text.BorderError:
        return None
    return progress


class Shown:
    """Which progress gets a line: the first one of each equal part of a plan after the first part.

    Args:
        lines: how many lines there are at most.
    """

    def __init__(self, lines: int) -> None:
        self._parts = lines + 1
        self._shown = 0

    def is_due(self, progress: t.Mapping[str, t.Any]) -> bool:
        """Return whether progress of :func:`parse` gets a line."""
        part = min(int((progress.get("fraction") or 0) * self._parts), self._parts - 1)
        if part <= self._shown:
            return False
        self._shown = part
        return True


def line(progress: dict[str, t.Any]) -> str:
    """Format progress as one line: share done, time left, phase, last value, what comes next.

    Args:
        progress: from ``parse``.
    """
    parts = [f"{100 * (progress.get('fraction') or 0):3.0f} %"]
    parts.append(f"block {int(progress.get('block') or 0)}, about {_length(progress.get('seconds_left') or 0)} left")
    if progress["phase"] != "measuring":
        parts.append(text.line(progress["phase"], 60))
    if progress.get("last"):
        parts.append("last: " + _last(progress["last"]))
    if progress.get("next"):
        parts.append(f"next: {text.line(progress['next'], 60)}")
    return ", ".join(parts)


def _last(last: dict[str, t.Any]) -> str:
    metric = last["metric"]
    where = f"{placements.short_title(last['placement'])}, {last['arm']}"
    return text.line(f"{last['workload']} {metric['name']} ({where}): {metric['value'] or 0:.4g} {metric['unit']}", 200)


def _length(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
