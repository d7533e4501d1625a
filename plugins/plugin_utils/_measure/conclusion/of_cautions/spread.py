# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the typical value of a metric and its mean, or its tail, say opposite things.

A verdict is about typical values. A few slow answers hardly move these, and may be what users feel.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

MEAN = "mean"
# What names of metrics end in.
_MEDIAN = re.compile(r"(?:\A|_)(?:median|p50|typical)\Z")
_MEAN = re.compile(r"(?:\A|_)(?:mean|average|avg)\Z")
_TAIL = re.compile(r"(?:\A|_)(?:p9[0-9]+|max|maximum|worst)\Z")
# The kinds of values of which the first is typical beside the second.
_BESIDE = ((_MEDIAN, _MEAN), (_MEDIAN, _TAIL), (_MEAN, _TAIL))


class Spread(t.NamedTuple):
    """Where the typical value of a metric and another value of the same thing change in opposite directions.

    Attributes:
        baseline: title of the arm.
        candidate: likewise.
        change: of the typical value of ``metric``, which has a verdict.
        against: ``mean``, or the other metric.
        against_change: its change, which is beyond the margin, or has a verdict, too.
    """

    workload: str
    title: str
    parameter: float | None
    placement: str
    metric: str
    baseline: str
    candidate: str
    change: float
    against: str
    against_change: float


def find(comparisons: t.Iterable[Comparison]) -> list[Spread]:
    """Return where typical values and means or tails disagree in sign, of arms at the widest measured placement.

    Args:
        comparisons: from :func:`comparisons.compare_host`.
    """
    of_arms = host_comparisons.at_widest(comparisons, every_metric=True)
    decided = [comparison for comparison in of_arms if comparison.is_called and not comparison.confounded]
    apart = []
    for comparison in decided:
        change = comparison.change.value
        place = *comparison.work, comparison.placement, comparison.sides, comparison.better
        if comparison.mean_change * change < 0 and abs(comparison.mean_change) > comparison.margin:
            apart.append(_spread(comparison, MEAN, comparison.mean_change))
        apart += [
            _spread(comparison, other.metric, other.change.value)
            for typical, pattern in _BESIDE
            if typical.search(comparison.metric)
            for other in decided
            if pattern.search(other.metric)
            and not other.primary
            and (*other.work, other.placement, other.sides, other.better) == place
            and _is_of_the_same(typical.sub("", comparison.metric), pattern.sub("", other.metric))
            and other.change.value * change < 0
        ]
    return apart


def _is_of_the_same(name: str, other: str) -> bool:
    """Return whether two values are of the same thing, by what is left of their names: that of a query, and that of a
    connection are not.
    """
    return name == other or not name or not other


def caution(spread: Spread) -> str:
    """Return a sentence about one of these.

    Args:
        spread: from :func:`find`.
    """
    typical, other = (
        f"{_verb(change)} by {wording.percent(abs(change))}" for change in (spread.change, spread.against_change)
    )
    kind = "mean" if _MEAN.search(spread.against) else "tail"
    what = kind if spread.against == MEAN else f"{kind} ({spread.against})"
    return (
        f"{spread.title}, {spread.candidate} against {spread.baseline}: the typical {spread.metric}"
        f" {typical}, the {what} {other}. The verdict is about the typical value."
    )


def _spread(comparison: Comparison, against: str, change: float) -> Spread:
    return Spread(
        comparison.workload,
        comparison.title,
        comparison.parameter,
        comparison.placement,
        comparison.metric,
        comparison.baseline.arm_title,
        comparison.candidate.arm_title,
        comparison.change.value,
        against,
        change,
    )


def _verb(change: float) -> str:
    return "rises" if change > 0 else "falls"
