# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the periods of hosts to the units of evidence of a trial, never from single scrapes: points of one period
resemble each other too much to count as many.

The unit of a switchback trial is a block of a group of hosts: the mean over its hosts of the log-ratio of both arms,
each host with itself. That of a parallel trial is a group: the difference of the hosts' differences between before and
after.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design

# What a metric has to be for its logarithm, as in _measure/analysis/paired.py.
LEAST, MOST = 1e-100, 1e100
# A host may say anything. A difference of differences of such numbers is beyond what can be computed with, and counts
# as the largest that is not.
MAX_LOG = math.log(MOST)


class Period(t.NamedTuple):
    """What a host's metrics were in a period.

    Attributes:
        number: of the period, from 0.
        arm: the name of its arm.
        values: metric -> value, without those that have none.
    """

    number: int
    arm: str
    values: t.Mapping[str, float]


class Unit(t.NamedTuple):
    """One unit of evidence about two arms.

    Attributes:
        group: the number of the group of hosts.
        block: the number of the block, from 0; 0 in a parallel trial.
        log_ratio: of the candidate to the baseline.
        hosts: those that it is made of.
    """

    group: int
    block: int
    log_ratio: float
    hosts: tuple[str, ...]


Periods = t.Mapping[str, t.Sequence[Period]]


def value(period: Period, metric: str, per: str | None) -> float | None:
    """Return a metric of a period, divided by another one if it is given per that;
    None where there is no positive number.

    Args:
        period: the period.
        metric: name of the metric.
        per: name of the metric that it is divided by, or None.
    """
    number = period.values.get(metric)
    if number is not None and per is not None:
        divisor = period.values.get(per)
        number = number / divisor if divisor else None
    return number if number is not None and LEAST <= number <= MOST else None


def of_metric(
    drawn: design.Design, arms: tuple[str, str], periods: Periods, metric: str, per: str | None = None
) -> list[Unit]:
    """Return the units of evidence about a metric, in the order of their blocks.

    Args:
        drawn: the trial's design.
        arms: the baseline and the candidate.
        periods: host -> its complete periods.
        metric: name of the metric.
        per: name of the metric that it is divided by, or None.
    """
    logs = _logs(drawn, periods, metric, per)
    if drawn.name == design.PARALLEL:
        made: t.Iterable[Unit] = _of_groups(drawn, arms, logs)
    else:
        made = (
            Unit(*place, limited(math.fsum(log_ratios.values()) / len(log_ratios)), tuple(log_ratios))
            for place, log_ratios in _of_hosts(drawn, arms, logs).items()
        )
    return sorted(made, key=lambda unit: (unit.block, unit.group))


def limited(log_ratio: float) -> float:
    """Return a log-ratio, or the largest one that can be computed with."""
    return max(-MAX_LOG, min(MAX_LOG, log_ratio))


def of_hosts(
    drawn: design.Design, arms: tuple[str, str], periods: Periods, metric: str, per: str | None = None
) -> dict[tuple[int, int], dict[str, float]]:
    """Return what the units of a switchback trial are made of: (group, block) -> host -> log-ratio.

    Args:
        drawn: the trial's design.
        arms: the baseline and the candidate.
        periods: host -> its complete periods.
        metric: name of the metric.
        per: name of the metric that it is divided by, or None.
    """
    return _of_hosts(drawn, arms, _logs(drawn, periods, metric, per))


def without_each(
    drawn: design.Design, arms: tuple[str, str], periods: Periods, metric: str, per: str | None = None
) -> dict[str, list[float]]:
    """Return what the units are without each host: host -> their log-ratios, in the order of :func:`of_metric`.

    Args:
        drawn: the trial's design.
        arms: the baseline and the candidate.
        periods: host -> its complete periods.
        metric: name of the metric.
        per: name of the metric that it is divided by, or None.
    """
    logs = _logs(drawn, periods, metric, per)
    if drawn.name == design.PARALLEL:
        made = {
            (unit.group, unit.block): dict.fromkeys(unit.hosts, unit.log_ratio)
            for unit in _of_groups(drawn, arms, logs)
        }
        # A group is compared within itself: without one of its hosts it says nothing.
        rest: dict[tuple[tuple[int, int], str], float] = {}
    else:
        made = _of_hosts(drawn, arms, logs)
        rest = {
            (place, host): math.fsum(log for other, log in of_hosts.items() if other != host) / (len(of_hosts) - 1)
            for place, of_hosts in made.items()
            for host in of_hosts
            if len(of_hosts) > 1
        }
    order = sorted(made, key=lambda place: (place[1], place[0]))
    means = {place: math.fsum(of_hosts.values()) / len(of_hosts) for place, of_hosts in made.items()}
    return {
        host: [
            means[place] if host not in made[place] else rest[place, host]
            for place in order
            if host not in made[place] or (place, host) in rest
        ]
        for host in dict.fromkeys(host for of_hosts in made.values() for host in of_hosts)
    }


def blocks_over(drawn: design.Design, periods: Periods, ended: t.Container[str]) -> dict[int, int]:
    """Return how many blocks of each group are over by now: measured by all its hosts,
    or lost because hosts left the trial.

    Args:
        drawn: the trial's design.
        periods: host -> all its periods, also incomplete ones.
        ended: the hosts whose part is over.
    """
    size = len({arm for arms in drawn.schedule.values() for arm in arms})
    over = {}
    for number, group in enumerate(drawn.groups):
        length = len(drawn.schedule[group[0]])
        reached = min(
            (
                length
                if host in ended
                else max((period.number - drawn.first[host] + 1 for period in periods.get(host, ())), default=0)
            )
            for host in group
        )
        over[number] = int(reached == length) if drawn.name == design.PARALLEL else reached // size
    return over


_Logs = t.Mapping[str, t.Mapping[int, tuple[str, float]]]


def _logs(drawn: design.Design, periods: Periods, metric: str, per: str | None) -> _Logs:
    """Return host -> number of the period in its schedule -> its arm, and the logarithm of the metric."""
    return {
        host: {
            period.number - drawn.first[host]: (period.arm, math.log(number))
            for period in of_host
            if (number := value(period, metric, per)) is not None
        }
        for host, of_host in periods.items()
        if host in drawn.first
    }


def _of_hosts(drawn: design.Design, arms: tuple[str, str], logs: _Logs) -> dict[tuple[int, int], dict[str, float]]:
    size = len({arm for scheduled in drawn.schedule.values() for arm in scheduled})
    by_place: dict[tuple[int, int], dict[str, float]] = {}
    for number, group in enumerate(drawn.groups):
        for block in range(len(drawn.schedule[group[0]]) // size):
            for host in group:
                in_arm = dict(
                    logs.get(host, {}).get(place, ("", 0.0)) for place in range(block * size, (block + 1) * size)
                )
                if all(arm in in_arm for arm in arms):
                    by_place.setdefault((number, block), {})[host] = in_arm[arms[1]] - in_arm[arms[0]]
    return by_place


def _of_groups(drawn: design.Design, arms: tuple[str, str], logs: _Logs) -> t.Iterator[Unit]:
    for number, group in enumerate(drawn.groups):
        before = _before(drawn, group)
        changes = {}
        for host in group:
            sides = [
                [log for place, (_arm, log) in logs.get(host, {}).items() if (place >= before) == later]
                for later in (False, True)
            ]
            if all(sides):
                changes[drawn.schedule[host][-1]] = math.fsum(sides[1]) / len(sides[1]) - math.fsum(sides[0]) / len(
                    sides[0]
                )
        if all(arm in changes for arm in arms):
            yield Unit(number, 0, limited(changes[arms[1]] - changes[arms[0]]), tuple(group))


def _before(drawn: design.Design, group: t.Sequence[str]) -> int:
    """Return how many periods of a parallel trial come before the lot counts:
    all hosts of a group are in one arm until then.
    """
    return next(
        place for place, arms in enumerate(zip(*(drawn.schedule[host] for host in group))) if len(set(arms)) > 1
    )
