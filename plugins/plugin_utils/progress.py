# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How far a plan is, as one line for a person at a terminal."""

from __future__ import annotations

import json
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils import charts
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.text import showable

# What a host sends as its progress is a few hundred bytes.
MAX_BYTES = 64 * 1024
# Beyond what a plan counts or measures.
MOST = 10**15
MOST_DIGITS = 30
PLACES = {
    "single": "one worker alone",
    "same_cpu": "two on one CPU",
    "siblings": "two on one core",
    "cores": "two on two cores",
    "one_per_core": "one per core",
    "all_threads": "all threads",
    "unpinned": "unpinned",
}


def parse(text: str) -> dict[str, t.Any] | None:
    """The progress a host has written, or None when it is not what a plan writes."""
    if len(text) > MAX_BYTES:
        return None
    try:
        told = json.loads(text, parse_constant=_no_number, parse_int=_integer, parse_float=_float)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def _no_number(word):
    raise ValueError(f"{word} is no number")


def _integer(digits):
    # Of thousands of digits Python makes no number, or only slowly.
    return _counted(int(digits[:MOST_DIGITS]))


def _float(digits):
    return _counted(float(digits))


def _counted(value):
    if not abs(value) < MOST:
        raise ValueError("no plan counts so far")
    return value


def line(told: dict[str, t.Any]) -> str:
    """One line: how far, how long still, what is being done, what was measured last.

    Args:
        told: as from ``parse``; any field may be missing or of a wrong type, since it comes from a host.
    """
    parts = ["%3.0f %%" % (100 * _number(told.get("fraction")))]
    parts.append("block %d, about %s left" % (_number(told.get("block")), _length(_number(told.get("seconds_left")))))
    if told.get("phase") != "measuring":
        parts.append(showable(str(told.get("phase")))[:60])
    last = told.get("last")
    if isinstance(last, dict) and isinstance(last.get("metric"), dict):
        parts.append("last: " + _last(last))
    return ", ".join(parts)


def _last(last):
    metric = last["metric"]
    place = str(last.get("placement"))
    where = "%s, %s" % (PLACES.get(place, place), charts.condition_title(str(last.get("condition"))))
    return showable("%s %s (%s): %.4g %s" % (last.get("workload"), metric.get("name"), where, _number(metric.get("value")), metric.get("unit")))[:200]


def _number(value):
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def _length(seconds):
    return "%d:%02d" % divmod(int(seconds), 60)
