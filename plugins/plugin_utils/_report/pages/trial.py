# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of a trial: the answer, its metrics and observations, and what each host did when."""

from __future__ import annotations

import types
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import change
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import charts, text as report_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.pages import frame
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial import answer, evidence, records

FIRST_ROWS = 50
# Hosts whose timeline is drawn; the table has the periods of all.
MAX_DRAWN = 24
SIDES = ("worse", "better")

Periods = t.Mapping[str, t.Sequence[t.Mapping[str, t.Any]]]


def render(
    trial: records.Trial,
    periods: Periods,
    ends: t.Mapping[str, t.Mapping[str, t.Any]],
    looks: evidence.Looks,
    unreadable: t.Mapping[str, str] = types.MappingProxyType({}),
) -> str:
    """Render the page.

    Args:
        trial: the trial.
        periods: host -> the records of its periods.
        ends: host -> how its part ended, if it has.
        looks: the looks at it.
        unreadable: host -> what is wrong with its files.
    """
    complete = {host: records.complete(of_host) for host, of_host in periods.items()}
    found = evidence.by_hosts(trial, complete, evidence.compare(trial, complete, looks.taken))
    drawn = list(trial.design.schedule)[:MAX_DRAWN]
    return frame.render(
        "trial.html.j2",
        trial=trial,
        answers=answer.sentences(trial, found, looks),
        others=[*answer.others(trial, found), *answer.lost(trial, periods)],
        rests_on=answer.rests_on(trial, found, complete),
        forest=_forest(trial, found),
        points=_points(trial, found),
        timelines=[(host, _timelines(trial, host, periods.get(host, ()))) for host in drawn],
        undrawn=len(trial.design.schedule) - len(drawn),
        heads=_heads(trial),
        rows=[_row(trial, host, one) for host, of_host in periods.items() for one in of_host],
        first_rows=FIRST_ROWS,
        ends=[(host, *_end(ends.get(host), unreadable.get(host))) for host in trial.design.schedule],
        running=[host for host in trial.design.schedule if host not in ends and host not in unreadable],
    )


def _forest(trial: records.Trial, found: t.Sequence[evidence.Comparison]) -> charts.Picture | None:
    rows = [
        {
            "label": f"{one['metric']}, {trial.titles[one['candidate']]}",
            "ratio": one["ratio"],
            "low": one["ci_low"],
            "high": one["ci_high"],
            "verdict": one["verdict"],
            "better": one["better"],
            "text": conclusion.change_and_interval(change.of(one, one["better"])),
        }
        for one in found
        if one["ci_low"] is not None
    ]
    if not rows:
        return None
    named = "; ".join(f"{row['label']} {row['text']}, {row['verdict']}" for row in rows)
    return charts.forest(
        rows,
        trial.margin,
        SIDES,
        f"Each metric against {trial.titles[trial.arms[0]]}, turned so that right is better: {named}",
    )


def _points(trial: records.Trial, found: t.Sequence[evidence.Comparison]) -> charts.Picture | None:
    """Draw the observations of the primary metric."""
    rows = [
        {
            "label": trial.titles[one["candidate"]],
            "ratios": one["points"],
            "ratio": one["ratio"],
            "verdict": one["verdict"],
            "better": one["better"],
            "text": f"{one['n']} observations",
        }
        for one in found
        if one["primary"]
    ]
    return (
        charts.spread(rows, trial.margin, SIDES, f"The observations of {found[0]['metric']}, one tick each")
        if rows
        else None
    )


def _timelines(trial: records.Trial, host: str, of_host: t.Sequence[t.Mapping[str, t.Any]]) -> list[charts.Picture]:
    """Draw the primary metric of a host over its arms, and its traffic."""
    shown = [one for one in trial.metrics if one.is_primary or one.name == trial.traffic]
    return [picture for metric in shown if (picture := _timeline(trial, host, of_host, metric)) is not None]


def _timeline(
    trial: records.Trial, host: str, of_host: t.Sequence[t.Mapping[str, t.Any]], metric: records.Metric
) -> charts.Picture | None:
    if not of_host:
        return None
    start = records.moment(of_host[0]["started"])
    bands = [
        {
            "begin": round((records.moment(one["started"]) - start).total_seconds() / 60, 3),
            "end": round((records.moment(one["ended"]) - start).total_seconds() / 60, 3),
            "arm": trial.titles[one["arm"]],
        }
        for one in of_host
    ]
    rows = [
        {
            "at": round(((records.moment(one["counted_from"]) - start).total_seconds() + seconds) / 60, 3),
            "value": value,
            "period": one["period"],
        }
        for one in of_host
        for seconds, value in one["series"].get(metric.name, ())
        if value is not None
    ]
    if not rows:
        return None
    title = f"{metric.name}{f', {metric.unit}' if metric.unit else ''}"
    label = f"{metric.name} of {host} in {len(bands)} periods, each in its arm"
    return charts.timeline(rows, bands, [trial.titles[arm] for arm in trial.arms], title, label)


def _heads(trial: records.Trial) -> list[tuple[str, bool]]:
    of_metrics = [(f"{one.name}{f', {one.unit}' if one.unit else ''}", True) for one in trial.metrics]
    return [("host", False), ("period", True), ("begin", False), ("arm", False), *of_metrics, ("what happened", False)]


def _row(trial: records.Trial, host: str, one: t.Mapping[str, t.Any]) -> list[t.Any]:
    values = [one["metrics"].get(metric.name, {}).get("value") for metric in trial.metrics]
    missing = [f"{name}: {metric['reason']}" for name, metric in one["metrics"].items() if metric["reason"]]
    happened = [
        *([one["reason"]] if one["reason"] else []),
        *missing,
        *(event["detail"] for event in one["events"] if event["event"] != "switched"),
    ]
    cells = ["" if value is None else [report_text.number(value), value, ""] for value in values]
    return [
        host,
        [str(one["period"] + 1), one["period"] + 1, ""],
        one["started"],
        trial.titles[one["arm"]],
        *cells,
        "; ".join(happened),
    ]


def _end(end: t.Mapping[str, t.Any] | None, unreadable: str | None) -> tuple[str, bool]:
    """Return how a host's part ended, and whether that is an alarm."""
    if unreadable is not None:
        return f"its files cannot be read, so it counts for nothing: {unreadable}", True
    if end is None:
        return "its part has not ended, or its controller was lost before it could be written down", False
    if not end["restored"]:
        state = f"not known to be in its own state (CPUs {end['before']} online)"
    else:
        state = (
            f"in its own state again, CPUs {end['after']} online" if end["after"] is not None else "it was not switched"
        )
    return state if end["reason"] is None else f"{state}: {end['reason']}", not end["restored"]
