# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a trial: the answer, its metrics and observations, and what each host did when."""

from __future__ import annotations

import types
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import text as report_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import answer, effects, evidence, records
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import charts, frame, wording

FIRST_ROWS = 50
# Hosts whose timeline is drawn; the table has the periods of all.
MAX_DRAWN = 24
SIDES = ("worse", "better")
TITLES = {"lower": "Less is better", "higher": "More is better"}

Periods = t.Mapping[str, t.Sequence[records.Period]]


def render(
    trial: records.Trial,
    periods: Periods,
    ends: t.Mapping[str, records.End],
    looks: evidence.Looks,
    unreadable: t.Mapping[str, str] = types.MappingProxyType({}),
) -> str:
    """Render the page.

    Args:
        trial: the trial.
        periods: host -> its periods.
        ends: host -> how its part ended, if it has.
        looks: the looks at it.
        unreadable: host -> what is wrong with its files.
    """
    complete = {host: records.complete(of_host) for host, of_host in periods.items()}
    comparisons = evidence.by_hosts(trial, complete, evidence.compare(trial, complete, looks.taken))
    drawn = list(trial.design.schedule)[:MAX_DRAWN]
    return frame.render(
        "trial.html.j2",
        trial=trial,
        answers=answer.sentences(trial, comparisons, looks),
        notes=[*answer.disagreements(trial, comparisons), *answer.lost(trial, periods)],
        others=answer.others(trial, comparisons),
        rests_on=answer.rests_on(trial, comparisons, complete),
        forests=_forests(trial, comparisons),
        points=_points(trial, comparisons),
        timelines=[(host, _timelines(trial, host, periods.get(host, ()))) for host in drawn],
        undrawn=len(trial.design.schedule) - len(drawn),
        heads=_heads(trial),
        rows=[_row(trial, host, period) for host, of_host in periods.items() for period in of_host],
        first_rows=FIRST_ROWS,
        ends=[(host, *_end(ends.get(host), unreadable.get(host))) for host in trial.design.schedule],
        running=[host for host in trial.design.schedule if host not in ends and host not in unreadable],
    )


def _forests(trial: records.Trial, comparisons: t.Sequence[effects.Comparison]) -> list[tuple[str, charts.Picture]]:
    """Return a title and a picture for each direction: the axis is that of the metrics' own change, so better is on the
    right of one picture for what should rise, and of another one for what should fall.
    """
    known = [comparison for comparison in comparisons if comparison.judged.ci_low is not None]
    return [
        (
            TITLES[better],
            _forest(trial, [comparison for comparison in known if comparison.metric.better == better], TITLES[better]),
        )
        for better in dict.fromkeys(comparison.metric.better for comparison in known)
    ]


def _forest(trial: records.Trial, comparisons: t.Sequence[effects.Comparison], title: str) -> charts.Picture:
    rows = [
        report_text.ratio_row(f"{comparison.metric.name}, {trial.titles[comparison.candidate]}", comparison.judged)
        for comparison in comparisons
    ]
    named = "; ".join(f"{row.label} {comparison.judged.in_words}" for row, comparison in zip(rows, comparisons))
    return charts.forest(
        rows, trial.margin, SIDES, f"Change of each metric against {trial.titles[trial.arms[0]]}. {title}: {named}"
    )


def _points(trial: records.Trial, comparisons: t.Sequence[effects.Comparison]) -> charts.Picture | None:
    """Draw the observations of the primary metric."""
    rows = [
        report_text.ratio_row(
            trial.titles[comparison.candidate],
            comparison.judged,
            f", {wording.counted(comparison.judged.n, 'observation')}",
            comparison.points,
        )
        for comparison in comparisons
        if comparison.metric.is_primary
    ]
    return (
        charts.spread(
            rows, trial.margin, SIDES, f"Change of {comparisons[0].metric.name} in each observation, one tick each"
        )
        if rows
        else None
    )


def _timelines(trial: records.Trial, host: str, of_host: t.Sequence[records.Period]) -> list[charts.Picture]:
    """Draw the primary metric of a host over its arms, and its traffic."""
    shown = [metric for metric in trial.metrics if metric.is_primary or metric.name == trial.traffic]
    return [picture for metric in shown if (picture := _timeline(trial, host, of_host, metric)) is not None]


def _timeline(
    trial: records.Trial, host: str, of_host: t.Sequence[records.Period], metric: records.Metric
) -> charts.Picture | None:
    if not of_host:
        return None
    start = records.moment(of_host[0].started)

    def minutes(at: str, later: float = 0.0) -> float:
        return round(((records.moment(at) - start).total_seconds() + later) / 60, 3)

    bands = [
        charts.Band(minutes(period.started), minutes(period.ended), trial.titles[period.arm]) for period in of_host
    ]
    rows = [
        charts.Reading(minutes(period.counted_from, seconds), value, period.number)
        for period in of_host
        for seconds, value in period.series.get(metric.name, ())
        if seconds is not None and value is not None
    ]
    if not rows:
        return None
    title = f"{metric.name}{f', {metric.unit}' if metric.unit else ''}"
    label = f"{metric.name} of {host} in {len(bands)} periods, each in its arm"
    return charts.timeline(rows, bands, [trial.titles[arm] for arm in trial.arms], title, label)


def _heads(trial: records.Trial) -> list[tuple[str, bool]]:
    of_metrics = [(f"{metric.name}{f', {metric.unit}' if metric.unit else ''}", True) for metric in trial.metrics]
    return [("host", False), ("period", True), ("begin", False), ("arm", False), *of_metrics, ("what happened", False)]


def _row(trial: records.Trial, host: str, period: records.Period) -> list[t.Any]:
    read = [period.metrics.get(metric.name) for metric in trial.metrics]
    missing = [f"{name}: {metric.reason}" for name, metric in period.metrics.items() if metric.reason]
    happened = [*([period.reason] if period.reason else []), *missing, *period.happened]
    values = [None if metric is None else metric.value for metric in read]
    cells = ["" if value is None else [wording.number(value), value, ""] for value in values]
    return [
        host,
        [str(period.number + 1), period.number + 1, ""],
        period.started,
        trial.titles[period.arm],
        *cells,
        "; ".join(happened),
    ]


def _end(end: records.End | None, unreadable: str | None) -> tuple[str, bool]:
    """Return how a host's part ended, and whether that is an alarm."""
    if unreadable is not None:
        return f"its files cannot be read, so it counts for nothing: {unreadable}", True
    if end is None:
        return "its part has not ended, or its controller was lost before it could be written down", False
    if not end.restored:
        state = f"not known to be in its own state (CPUs {end.before} online)"
    else:
        state = f"in its own state again, CPUs {end.after} online" if end.after is not None else "it was not switched"
    return state if end.reason is None else f"{state}: {end.reason}", not end.restored
