# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Periods that count what was before them: what a metric counts has to be of its own period,
or two observations are none.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import base
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources.base import MetricSource, Server
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run.settings import (
    MAX_SECONDS,
    Metric,
    TrialSettingsError,
)

# All that a server is asked for about one host's metrics.
ANSWERS_SECONDS = 120.0
MAX_CLAUSES = 5


class Longest(t.NamedTuple):
    """How far back the metrics of a trial count, by the one that counts most.

    Attributes:
        seconds: the age of the oldest sample that is a part of a value; at most base.ENDLESS.
        said: a sentence about that metric, without its end.
    """

    seconds: float
    said: str


def of_metrics(metrics: t.Sequence[Metric], servers: t.Mapping[MetricSource, Server], check: float) -> Longest:
    """Return how far back the metrics of a host count.

    Args:
        metrics: the metrics.
        servers: the server of each source that has one.
        check: seconds between two readings of what is read on the host.

    Raises:
        NotKnownError: neither the server nor the user says it of a metric; the message names it and the way out.
    """
    windows = [_on_host(metric, check) for metric in metrics if metric.origin.command]
    for source, server in servers.items():
        with server.at_most(ANSWERS_SECONDS):
            windows += [_of_server(metric, server) for metric in metrics if metric.origin.source is source]
    return max(windows, key=lambda window: window.seconds)


def refuse(longest: Longest, period: float, settle: float) -> None:
    """Refuse times with which a period would count samples of the one before.

    Args:
        longest: how far back the metrics count.
        period: seconds of a period.
        settle: seconds that are not counted of it, at its beginning.

    Raises:
        TrialSettingsError: they are; the message has the numbers, and times that work.
    """
    if settle >= period:
        raise TrialSettingsError(
            f"smt_trial_settle is {settle:g}, all of a period of {period:g} s: set smt_trial_period to more than that"
        )
    if settle >= longest.seconds:
        return
    least = math.ceil(longest.seconds)
    longer = least + math.ceil(period - settle)
    way_out = (
        f"set smt_trial_settle to {least} or more, and smt_trial_period to {longer} to count as much of each period as"
        f" with {period:g}"
    )
    if longer > MAX_SECONDS:
        way_out = "no period is long enough for that: take a metric that looks back less"
    raise TrialSettingsError(
        f"smt_trial_settle is {settle:g}, and {longest.said}: a period would count what was in the one before."
        f" {way_out.capitalize()}"
    )


def _on_host(metric: Metric, check: float) -> Longest:
    # A rate is that since the check before.
    seconds = max(metric.looks_back or 0.0, check if metric.origin.counter else 0.0)
    return _longest(metric, base.Path(seconds, ("it is read on the host",)))


def _of_server(metric: Metric, server: Server) -> Longest:
    try:
        return _longest(metric, server.looks_back(metric.origin.asked, metric.looks_back))
    except base.NotKnownError as error:
        raise base.NotKnownError(
            f"how far back {metric.name} counts is not known: {error}. Say it as looks_back of {metric.name} in"
            " smt_trial_metrics, such as looks_back: 2m"
        ) from None


def _longest(metric: Metric, path: base.Path) -> Longest:
    clauses = [*path.said[:MAX_CLAUSES], *(["and so on"] if len(path.said) > MAX_CLAUSES else [])]
    age = "any time" if path.seconds >= base.ENDLESS else f"up to {base.span(path.seconds)}"
    return Longest(
        path.seconds, f"{metric.name} counts samples from {age} before ({'; '.join(clauses) or 'it has no range'})"
    )
