# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an arm does to a metric, the same wherever it stands: the metric's own change, and a word that says what that
means; and metrics of the same thing that point different ways.
"""

from __future__ import annotations

import math
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import change, wording

_DECIDED = {verdicts.GAIN, verdicts.LOSS}
# What a name says of how values were put together, not of what they are of.
_PUT_TOGETHER = re.compile(r"(?:^|_)(?:mean|avg|average|median|max|tail|[pq][0-9]+)(?=_|$)")

Comparison = t.Mapping[str, t.Any]


def fields(compared: Comparison, better: str) -> dict[str, t.Any]:
    """Return a metric's own change with its interval, as ``_page/change.py`` has it, and the word for its verdict.

    Args:
        compared: ``ratio``, ``ci_low``, ``ci_high`` and ``verdict``, as ``paired.compare`` returns them.
        better: ``higher`` or ``lower``.
    """
    return {**change.of(compared, better), "effect": wording.VERDICT_TITLES[compared["verdict"]]}


def said(comparison: Comparison) -> str:
    """Return a change with its interval and its word: ``+22 % (+10 to +35 %), worse``."""
    return f"{wording.change_and_interval(change.Change.read(comparison))}, {comparison['effect']}"


def disagreeing(comparisons: t.Sequence[Comparison]) -> list[list[Comparison]]:
    """Return the metrics of the same thing, such as its mean, median and tail, that point different ways in an arm.

    They have one unit and one direction; without a unit, names that differ only in how values were put together. One of
    them is decided. Others point somewhere also where they are not decided, by an estimate beyond the margin.

    Args:
        comparisons: comparisons of a trial, of which ``traffic`` is left out.
    """
    alike: dict[tuple[t.Any, ...], list[Comparison]] = {}
    for comparison in comparisons:
        subject = comparison["unit"] or _PUT_TOGETHER.sub("", comparison["metric"])
        alike.setdefault((comparison["candidate"], subject, comparison["better"], comparison["per"]), []).append(
            comparison
        )
    return [
        group
        for group in alike.values()
        if {_side(comparison) for comparison in group} >= _DECIDED
        and _DECIDED & {comparison["verdict"] for comparison in group}
    ]


def _side(comparison: Comparison) -> str | None:
    """Return the verdict that a comparison points to, None where it points nowhere."""
    if comparison["verdict"] in _DECIDED:
        return str(comparison["verdict"])
    if comparison["verdict"] == verdicts.EQUIVALENT or abs(math.log(comparison["ratio"])) <= math.log1p(
        comparison["margin"]
    ):
        return None
    return verdicts.GAIN if comparison["ratio"] > 1 else verdicts.LOSS
