# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the units of a trial say: comparisons of each arm with the baseline,
and the planned looks at the primary metric.

The two sides of a unit are its log-ratio, half to each side of nothing. The test on ranks of ``statistics/ranks.py``
then is a signed-rank test: it only asks whether the signs of the differences, which the lot has drawn, go with their
sizes. Levels that differ between hosts and times of the day do not count.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import (
    decisions,
    schedule,
    spending,
    verdicts,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.ranks import Paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Judged
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import leave_one_out
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import units
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial.effects import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial.records import Metric, Trial

CONFIDENCE = 0.95


@dataclasses.dataclass(frozen=True)
class Looks:
    """The looks at a trial so far.

    Attributes:
        taken: in their order; their blocks are units.
        decided: candidate -> the outcome that ended its comparison, a verdict or ``futile``.
    """

    taken: tuple[spending.Look, ...] = ()
    decided: dict[str, str] = dataclasses.field(default_factory=dict)


def compare(trial: Trial, periods: units.Periods, taken: t.Sequence[spending.Look] = ()) -> list[Comparison]:
    """Compare each candidate with the baseline in each metric.

    The primary metric decides, by looks at it alone. So its comparisons are a family of their own, and their intervals
    agree with what a look decides; all other metrics are a second family, which cannot undo it.

    Args:
        trial: the trial.
        periods: host -> its complete periods.
        taken: the looks so far.

    Returns:
        Each. Metrics without a unit of evidence are left out.
    """
    of_primary, of_others = (
        _family(trial, periods, [metric for metric in trial.metrics if metric.is_primary == is_primary], taken)
        for is_primary in (True, False)
    )
    return [*of_primary, *of_others]


def by_hosts(trial: Trial, periods: units.Periods, comparisons: t.Sequence[Comparison]) -> list[Comparison]:
    """Add to comparisons which hosts alone turn their verdicts: each host is left out in turn, and the rest is judged
    by the same test at the same level.

    Args:
        trial: the trial.
        periods: host -> its complete periods.
        comparisons: of :func:`compare`.
    """
    return [_by_hosts(trial, periods, comparison) for comparison in comparisons]


def _by_hosts(trial: Trial, periods: units.Periods, comparison: Comparison) -> Comparison:
    metric, judged = comparison.metric, comparison.judged
    without = units.without_each(trial.design, (trial.arms[0], comparison.candidate), periods, metric.name, metric.per)
    level, margin, sign = (
        1 - judged.interval_confidence,
        math.log1p(trial.margin),
        _sign(metric),
    )
    points = [math.log(ratio) for ratio in comparison.points]
    a_host = judged.n / len(without)

    def hosts_for(log_ratios: leave_one_out.Logs) -> int | None:
        count = leave_one_out.needed(log_ratios, level, margin)
        return None if count is None else math.ceil(count / a_host)

    turned: dict[str, str] = {}
    counts: list[int | None] = []
    for host, log_ratios in without.items() if judged.verdict != verdicts.INCONCLUSIVE else ():
        rest = [sign * log_ratio for log_ratio in log_ratios]
        others = (
            verdicts.INCONCLUSIVE
            if len(rest) < verdicts.MIN_BLOCKS
            else leave_one_out.verdict([-log / 2 for log in rest], [log / 2 for log in rest], level, margin)
        )
        if others != judged.verdict:
            turned[host] = others
            counts.append(hosts_for(rest if len(rest) > 1 else points))
    more = leave_one_out.more(turned, counts, hosts_for(points), len(without)) if turned else None
    return dataclasses.replace(comparison, hosts=len(without), turned_by=turned, more_hosts=more)


def look(trial: Trial, periods: units.Periods, over: t.Mapping[int, int], before: Looks) -> Looks:
    """Take a look at the primary metric if one is due.

    Args:
        trial: the trial.
        periods: host -> its complete periods.
        over: group -> how many of its blocks are over, from ``units.blocks_over``.
        before: the looks before this one.

    Returns:
        The looks, with this one and what it decided if it was due.
    """
    if len(before.decided) == len(trial.arms) - 1:
        return before
    primary = next(metric for metric in trial.metrics if metric.is_primary)
    ratios = {
        arm: [
            unit.log_ratio
            for unit in units.of_metric(trial.design, (trial.arms[0], arm), periods, primary.name, primary.per)
            # Others still wait for a host of their group.
            if unit.block < over[unit.group]
        ]
        for arm in trial.arms[1:]
    }
    planned = schedule.Schedule()
    planned.looks = list(before.taken)
    more = max(0, trial.units - sum(over.values()))
    # What was lost is no evidence: a look is at the units that have a value.
    if not planned.take(max(map(len, ratios.values())), more):
        return before
    decided = dict(before.decided)
    for arm, of_arm in ratios.items():
        if arm in decided or len(of_arm) < verdicts.MIN_BLOCKS:
            continue
        comparison = Paired.of_values(*_sides(of_arm), better=primary.better)
        outcome = decisions.decide(
            comparison, planned.looks, (1 - CONFIDENCE) / (len(trial.arms) - 1), trial.margin, more
        )
        if outcome is not None:
            decided[arm] = outcome
    return Looks(tuple(planned.looks), decided)


def without_traffic(log_ratios: t.Sequence[float], traffic: t.Sequence[float]) -> list[float]:
    """Return log-ratios without what goes along with the traffic:
    residuals of a regression through the origin on the traffic's log-ratios.

    Swapping two arms' names in a unit changes the signs of both its log-ratios. The product of both, and so the
    regression's slope, stays as it is, and the residual changes its sign: the test stays as exact as without the
    traffic, as long as the traffic does not depend on the arm.

    Args:
        log_ratios: of the units.
        traffic: the traffic's, of the same units.
    """
    weight = math.fsum(log_ratio * log_ratio for log_ratio in traffic)
    slope = math.fsum(log_ratio * other for log_ratio, other in zip(log_ratios, traffic)) / weight if weight else 0.0
    return [log_ratio - slope * other for log_ratio, other in zip(log_ratios, traffic)]


def _family(
    trial: Trial, periods: units.Periods, metrics: t.Sequence[Metric], taken: t.Sequence[spending.Look]
) -> list[Comparison]:
    """Return the comparisons of some metrics, corrected for their number."""
    measured = [
        (metric, arm, units.of_metric(trial.design, (trial.arms[0], arm), periods, metric.name, metric.per))
        for metric in metrics
        for arm in trial.arms[1:]
    ]
    measured = [(metric, arm, of_metric) for metric, arm, of_metric in measured if of_metric]
    if not measured:
        return []
    family = [(*_sides([unit.log_ratio for unit in of_metric]), metric.better) for metric, _arm, of_metric in measured]
    results = paired.compare_family(
        family,
        trial.margin,
        CONFIDENCE,
        [tuple(taken)] * len(family),
        [metric.is_primary for metric, _arm, _of_metric in measured],
    )
    return [
        Comparison(
            metric,
            trial.arms[0],
            arm,
            result,
            [math.exp(_sign(metric) * unit.log_ratio) for unit in of_metric],
            _adjusted(trial, periods, metric, arm, of_metric),
        )
        for (metric, arm, of_metric), result in zip(measured, results)
    ]


def _adjusted(
    trial: Trial, periods: units.Periods, metric: Metric, arm: str, of_metric: t.Sequence[units.Unit]
) -> Judged | None:
    """Return the comparison of the primary metric without what goes along with the traffic,
    None where nothing is known of it.
    """
    if not metric.is_primary or trial.traffic is None or trial.traffic == metric.name:
        return None
    traffic = {
        (unit.group, unit.block): unit.log_ratio
        for unit in units.of_metric(trial.design, (trial.arms[0], arm), periods, trial.traffic)
    }
    both = [
        (unit.log_ratio, traffic[unit.group, unit.block]) for unit in of_metric if (unit.group, unit.block) in traffic
    ]
    if not both:
        return None
    rest = without_traffic(*(list(side) for side in zip(*both)))
    return paired.compare(*_sides(rest), better=metric.better, margin=trial.margin, confidence=CONFIDENCE)


def _sign(metric: Metric) -> float:
    return 1.0 if metric.better == "higher" else -1.0


def _sides(log_ratios: t.Sequence[float]) -> tuple[list[float], list[float]]:
    halves = [units.limited(log_ratio) / 2 for log_ratio in log_ratios]
    return [math.exp(-half) for half in halves], [math.exp(half) for half in halves]
