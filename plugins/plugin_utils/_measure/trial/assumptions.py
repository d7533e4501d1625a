# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a trial takes for granted, and can test: that an arm leaves nothing for the next period;
how much neighbouring periods resemble each other.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import distributions, ranks
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, units

MIN_UNITS = 8
LEVEL = 0.05


class CarryOver(t.NamedTuple):
    """Whether the period after a change of arm differs from one that follows its own arm.

    Attributes:
        log_ratio: of a period after a change to one without.
        p_value: of no such effect.
        units: how many blocks of groups of hosts it rests on.
    """

    log_ratio: float
    p_value: float
    units: int

    @property
    def is_seen(self) -> bool:
        """Whether it is there at the 5 % level."""
        return self.p_value < LEVEL


def carry_over(
    drawn: design.Design, arms: tuple[str, str], periods: units.Periods, metric: str, per: str | None = None
) -> CarryOver | None:
    """Test whether what an arm leaves behind shows in the next period; None where too little is known.

    In a block that begins with the arm in which the last one ended, only one of both arms follows another one. Hosts of
    a group are in opposite orders, so what a change leaves behind moves their differences apart: half of that distance
    is an estimate of it, and Student's t tests its mean.

    Args:
        drawn: the design, a switchback one.
        arms: the baseline and the candidate.
        periods: host -> its complete periods.
        metric: name of the metric.
        per: name of the metric that it is divided by, or None.
    """
    if drawn.name != design.SWITCHBACK:
        return None
    size = len({arm for scheduled in drawn.schedule.values() for arm in scheduled})
    log_ratios = units.of_hosts(drawn, arms, periods, metric, per)
    every = [log for ratios in log_ratios.values() for log in ratios.values()]
    mean = math.fsum(every) / len(every) if every else 0.0
    estimates = []
    for (_group, block), ratios in log_ratios.items():
        # Before the first block a host was in its own state, of which the lot says nothing.
        weights = {host: _changes(drawn.schedule[host], arms, block * size, size) for host in ratios} if block else {}
        total = sum(weight * weight for weight in weights.values())
        if total:
            estimates.append(math.fsum(weights[host] * (log - mean) for host, log in ratios.items()) / total)
    if len(estimates) < MIN_UNITS or len(set(estimates)) < 2:
        return None
    p_value = distributions.student_p_value(ranks.t_statistic(estimates), len(estimates) - 1)
    return CarryOver(ranks.mean(estimates), p_value, len(estimates))


def _changes(scheduled: t.Sequence[str], arms: tuple[str, str], first: int, size: int) -> int:
    """Return how many more periods of the candidate than of the baseline follow another arm, in a block of a host."""
    changed = [scheduled[place] for place in range(first, first + size) if scheduled[place] != scheduled[place - 1]]
    return changed.count(arms[1]) - changed.count(arms[0])


def autocorrelation(drawn: design.Design, periods: units.Periods, metric: str, per: str | None = None) -> float | None:
    """Return the correlation of neighbouring periods of a host, without what its arms do and what all hosts share;
    None where too little is known.

    Args:
        drawn: the design.
        periods: host -> its complete periods.
        metric: name of the metric.
        per: name of the metric that it is divided by, or None.
    """
    logs = {
        (host, period.number): (period.arm, math.log(ratio))
        for host in drawn.schedule
        for period in periods.get(host, ())
        if (ratio := units.value(period, metric, per)) is not None
    }
    rest = {key: log for key, (_arm, log) in logs.items()}
    # By turns, as effects of hosts with their arms and of periods overlap where periods are missing.
    for _turn in range(5):
        for part in (lambda key: (key[0], logs[key][0]), lambda key: key[1]):
            sums: dict[t.Any, list[float]] = {}
            for key, log in rest.items():
                sums.setdefault(part(key), []).append(log)
            means = {name: math.fsum(values) / len(values) for name, values in sums.items()}
            # What all hosts share shows only where there are several.
            rest = {key: log - means[part(key)] if len(sums[part(key)]) > 1 else log for key, log in rest.items()}
    pairs = [(log, rest[host, number + 1]) for (host, number), log in rest.items() if (host, number + 1) in rest]
    if len(pairs) < MIN_UNITS:
        return None
    scatter = math.sqrt(
        math.fsum(earlier * earlier for earlier, _next in pairs) * math.fsum(other * other for _earlier, other in pairs)
    )
    return math.fsum(earlier * other for earlier, other in pairs) / scatter if scatter else None
