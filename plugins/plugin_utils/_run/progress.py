# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a plan is, as one line for a person at a terminal."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import schema, text

# What a host sends as its progress is a few hundred bytes.
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
        condition=schema.or_null(schema.NAME),
        last=schema.or_null(
            schema.whole(
                workload=schema.NAME,
                placement=schema.NAME,
                condition=schema.NAME,
                workers=schema.count(),
                metric=schema.strict(
                    ("name", "value", "unit"), name=schema.NAME, value=_NUMBER, unit=schema.text(1000), better=schema.one_of("higher", "lower")
                ),
            )
        ),
    )
)
PLACES = {
    "single": "one worker alone",
    "same_cpu": "two on one CPU",
    "siblings": "two on one core",
    "cores": "two on two cores",
    "one_per_core": "one per core",
    "all_threads": "all threads",
    "unpinned": "unpinned",
}


def parse(written: str) -> dict[str, t.Any] | None:
    """The progress a host has written, or None when it is not what a plan writes."""
    if len(written) > MAX_BYTES:
        return None
    try:
        told: dict[str, t.Any] = text.parse(written)
        _CHECKER.check(told)
    except text.BorderError:
        return None
    return told


def line(told: dict[str, t.Any]) -> str:
    """One line: how far, how long still, what is being done, what was measured last.

    Args:
        told: as from ``parse``.
    """
    parts = [f"{100 * (told.get('fraction') or 0):3.0f} %"]
    parts.append(f"block {int(told.get('block') or 0)}, about {_length(told.get('seconds_left') or 0)} left")
    if told["phase"] != "measuring":
        parts.append(text.line(told["phase"], 60))
    if told.get("last"):
        parts.append("last: " + _last(told["last"]))
    return ", ".join(parts)


def _last(last: dict[str, t.Any]) -> str:
    metric = last["metric"]
    where = f"{PLACES.get(last['placement'], last['placement'])}, {arms.title(last['condition'])}"
    return text.line(f"{last['workload']} {metric['name']} ({where}): {metric['value'] or 0:.4g} {metric['unit']}", 200)


def _length(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"
