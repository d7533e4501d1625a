# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers of one host of a trial: its metrics over a period, and its guardrails at each check."""

from __future__ import annotations

import contextlib
import datetime
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import base, on_host
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.base import Origin, Series
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.server import SourceError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import guardrails, records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import host_check
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run.settings import Limit, Metric

# How long a source may give no number before the host goes back: longer than a restart of a metrics server that is
# well.
BLIND_SECONDS = 60.0
# All answers of a server at one check, or at the end of a period: while the host waits for them its rollback timer
# runs, of a minute at least.
ANSWERS_SECONDS = 40.0
# A period with fewer of its points than this share says too little of itself.
MIN_POINTS = 0.5


class Reading(t.NamedTuple):
    """A number, or why there is none."""

    value: float | None
    why: str


class HostReadings:
    """The numbers of a host.

    Args:
        metrics: the metrics.
        limits: the guardrails.
        servers: the server of each source that has one.
        wall: returns the time of day.
        step: seconds between two points of a query.
    """

    def __init__(
        self,
        metrics: t.Sequence[Metric],
        limits: t.Sequence[Limit],
        servers: t.Mapping[base.MetricSource, base.Server],
        wall: t.Callable[[], datetime.datetime],
        step: float,
    ) -> None:
        self._metrics, self._limits, self._servers, self._wall = metrics, limits, servers, wall
        self._step = step
        self._guards = {
            limit.name: guardrails.Guard(limit.name, limit.above, limit.below, limit.seconds, BLIND_SECONDS)
            for limit in limits
        }
        primary = next(metric for metric in metrics if metric.is_primary)
        # A lost metrics server shows even without guardrails.
        self._sight = (primary, guardrails.Guard(primary.name, None, None, 0.0, BLIND_SECONDS))
        self._rates: dict[Origin, on_host.Rate] = {}
        self._points: dict[str, list[tuple[float, float]]] = {}
        self._moments: list[float] = []

    @property
    def commands(self) -> list[list[str]]:
        """The argv of each command that a check runs on the host."""
        return [origin.command for origin in self._origins()]

    def start_period(self) -> None:
        """Forget the points of the period before."""
        self._points, self._moments = {}, []

    def watch(self, now: float, checked: host_check.Checked) -> str | None:
        """Read the guardrails; return why the host has to go back, None where it need not."""
        read = self._read_on_host(now, checked.printed)
        moment = self._wall().timestamp()
        self._moments.append(moment)
        for metric in self._metrics:
            value = read[metric.origin].value if metric.origin in read else None
            if value is not None:
                self._points.setdefault(metric.name, []).append((moment, value))
        primary, sight = self._sight
        with self._in_time():
            reasons = [sight.feed(now, *self._now(primary.origin, read))]
            reasons += [self._guards[limit.name].feed(now, *self._now(limit.origin, read)) for limit in self._limits]
        return next((reason for reason in reasons if reason is not None), None)

    def of_period(self, begin: datetime.datetime, end: datetime.datetime) -> records.Read:
        """Return what the metrics are over a period, and their points."""
        metrics: dict[str, records.Reading] = {}
        series: dict[str, records.Points] = {}
        with self._in_time():
            of_metrics = [(metric, *self._over(metric, begin, end)) for metric in self._metrics]
        for metric, metric_series, failure in of_metrics:
            enough = len(metric_series.points) >= MIN_POINTS * metric_series.expected and bool(metric_series.points)
            few = (
                ""
                if enough
                else (
                    f"{len(metric_series.points)} of {metric_series.expected} points: a period with fewer than half of"
                    " them has no value"
                )
            )
            why = failure or few
            value = (
                math.fsum(value for _moment, value in metric_series.points) / len(metric_series.points)
                if enough
                else None
            )
            metrics[metric.name] = records.Reading(
                value, len(metric_series.points), metric_series.expected, why or None
            )
            places = range(0, len(metric_series.points), max(1, -(-len(metric_series.points) // records.MAX_POINTS)))
            series[metric.name] = tuple(
                (round(metric_series.points[place][0] - begin.timestamp(), 3), metric_series.points[place][1])
                for place in places
            )
        return metrics, series

    def load(self, name: str) -> Reading:
        """Return what a metric of a query is now, and why there is nothing."""
        metric = next(metric for metric in self._metrics if metric.name == name)
        return self._now(metric.origin, {})

    def _origins(self) -> list[Origin]:
        """Return the sources on the host, each once."""
        every = [metric.origin for metric in self._metrics] + [limit.origin for limit in self._limits]
        return list(dict.fromkeys(origin for origin in every if origin.command))

    def _read_on_host(self, now: float, printed: t.Sequence[str]) -> dict[Origin, Reading]:
        readings = {}
        for origin, output in zip(self._origins(), printed):
            value = origin.source.number(origin.asked, output)
            why = "" if value is not None else f"{origin.source.title(origin.asked)} gave no number"
            if origin.counter:
                value = self._rates.setdefault(origin, on_host.Rate()).feed(now, value)
            readings[origin] = Reading(value, why or "its rate needs two readings")
        return readings

    def _now(self, origin: Origin, read: t.Mapping[Origin, Reading]) -> Reading:
        if origin in read:
            return read[origin]
        if origin.command:
            return Reading(None, "it is read on the host")
        try:
            return Reading(self._servers[origin.source].instant(origin.asked), "")
        except SourceError as error:
            return Reading(None, str(error))

    def _over(self, metric: Metric, begin: datetime.datetime, end: datetime.datetime) -> tuple[Series, str]:
        if metric.origin.command:
            # As many as there were checks: a host that answers slowly is checked less often.
            expected = sum(begin.timestamp() <= moment <= end.timestamp() for moment in self._moments)
            points = tuple(
                point for point in self._points.get(metric.name, ()) if begin.timestamp() <= point[0] <= end.timestamp()
            )
            return Series(points, expected), ""
        try:
            server = self._servers[metric.origin.source]
            return server.over(metric.origin.asked, begin, end, self._step), ""
        except SourceError as error:
            return Series((), base.Asked(begin, end, self._step).expected), str(error)

    @contextlib.contextmanager
    def _in_time(self) -> t.Iterator[None]:
        with contextlib.ExitStack() as limits:
            for server in self._servers.values():
                limits.enter_context(server.at_most(ANSWERS_SECONDS))
            yield
