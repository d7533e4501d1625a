# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an arm does to a metric, the same wherever it stands: the metric's own change, and a word that says what that
means; and metrics of the same thing that point different ways.
"""

from __future__ import annotations

import dataclasses
import math
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Judged
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial.records import Metric

_DECIDED = {verdicts.GAIN, verdicts.LOSS}
# What a name says of how values were put together, not of what they are of.
_PUT_TOGETHER = re.compile(r"(?:^|_)(?:mean|avg|average|median|max|tail|[pq][0-9]+)(?=_|$)")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An arm against the baseline in one metric.

    Attributes:
        metric: the metric.
        baseline: name of the arm.
        candidate: likewise.
        judged: what was found.
        points: the units' ratios, in their order, turned so that above 1 is better.
        adjusted: the same for the traffic, see :func:`evidence.without_traffic`, or None.
        hosts: how many have a value, where that was asked for (:func:`evidence.by_hosts`).
        turned_by: each host without which the others say something else: name -> their verdict; empty where nothing is
            decided.
        more_hosts: how many more it takes until no host turns it alone; None where none does or no number is known.
    """

    metric: Metric
    baseline: str
    candidate: str
    judged: Judged
    points: list[float]
    adjusted: Judged | None
    hosts: int = 0
    turned_by: dict[str, str] = dataclasses.field(default_factory=dict)
    more_hosts: int | None = None

    def described(self) -> dict[str, t.Any]:
        """Return it as plain data."""
        adjusted = self.adjusted and {
            **{name: getattr(self.adjusted, name) for name in ("ratio", "ci_low", "ci_high", "n", "verdict")},
            **_in_words(self.adjusted),
        }
        return {
            **self.judged.described(),
            **_in_words(self.judged),
            "metric": self.metric.name,
            "unit": self.metric.unit,
            "better": self.metric.better,
            "primary": self.metric.is_primary,
            "per": self.metric.per,
            **{name: getattr(self, name) for name in ("baseline", "candidate", "points")},
            "adjusted": adjusted,
            **{name: getattr(self, name) for name in ("hosts", "turned_by", "more_hosts")},
        }


def _in_words(judged: Judged) -> dict[str, t.Any]:
    """Return a metric's own change with its interval, and the word for its verdict."""
    return {**judged.change.described(), "effect": judged.word}


def disagreeing(comparisons: t.Sequence[Comparison]) -> list[list[Comparison]]:
    """Return the metrics of the same thing, such as its mean, median and tail, that point different ways in an arm.

    They have one unit and one direction; without a unit, names that differ only in how values were put together. One of
    them is decided. Others point somewhere also where they are not decided, by an estimate beyond the margin.

    Args:
        comparisons: comparisons of a trial, of which ``traffic`` is left out.
    """
    alike: dict[tuple[t.Any, ...], list[Comparison]] = {}
    for comparison in comparisons:
        metric = comparison.metric
        subject = metric.unit or _PUT_TOGETHER.sub("", metric.name)
        alike.setdefault((comparison.candidate, subject, metric.better, metric.per), []).append(comparison)
    return [
        group
        for group in alike.values()
        if {_side(comparison.judged) for comparison in group} >= _DECIDED
        and any(comparison.judged.is_called for comparison in group)
    ]


def _side(judged: Judged) -> str | None:
    """Return the verdict that a comparison points to, None where it points nowhere."""
    if judged.is_called:
        return judged.verdict
    if judged.verdict == verdicts.EQUIVALENT or abs(math.log(judged.ratio)) <= math.log1p(judged.margin):
        return None
    return verdicts.GAIN if judged.ratio > 1 else verdicts.LOSS
