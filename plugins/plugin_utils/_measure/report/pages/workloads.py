# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parts of a host's page: what was measured of each workload, as charts with the numbers of each."""

from __future__ import annotations

import statistics as plain_statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements, units
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult, Sample
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    limits,
    measures,
    paired,
    recorded,
    smt_metrics,
    usage,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.measures import Level, Measure
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.streams import Crossover
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_loads import crossovers
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import (
    smt_metrics as smt_metrics_part,
    telemetry as telemetry_part,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import charts, wording

# What a chart draws of an arm: its title, a value, and the ends of its interval.
Span = tuple[str, t.Any, t.Any, t.Any]
# A page shows this many samples at most; the CSV has all.
MAX_SAMPLES_SHOWN = 3000
# Rows of a chart at most; the table has all.
MAX_ROWS_DRAWN = 60
# Placements of which a page shows at most a histogram each.
MAX_HISTOGRAMS = 2
# How the workers' values of a metric are combined.
COMBINED = {
    "sum": "summed over all workers",
    "max": "of the worker with the highest value",
    "mean": "mean of all workers",
    "per_job": "time per job: that of the slowest worker by their number",
    "mean_per_job": "per job, mean of all workers",
    "per_operation": "time per operation of all workers together",
    "undeclared": "of the worker with the highest value; what it is the time of was not declared",
}


def workloads(analysis: HostAnalysis) -> list[dict[str, t.Any]]:
    """Return each workload with its measurements."""
    result, comparisons = analysis.result, analysis.comparisons
    by_streams = {curve.workload: curve.crossover for curve in analysis.curves}
    titles = _arm_titles(result)
    described = []
    for name in dict.fromkeys(level.workload for level in analysis.levels):
        declared = recorded.declaration(result, name)
        measure = measures.describe_workload(result, name)
        of_all_metrics = [level for level in analysis.levels if level.workload == name]
        levels = [level for level in of_all_metrics if level.primary]
        crossover = by_streams.get(name)
        compared = [
            comparison for comparison in comparisons if comparison.workload == name and is_of_streams(comparison)
        ]
        samples = analysis.samples.get(name, [])
        chart = _bars(levels, titles, measure)
        streams = _streams(samples, levels, titles, measure, compared, crossover)
        curves = _parameters(result, samples, of_all_metrics, measure)
        used = analysis.usage.get(name, {})
        described.append(
            {
                **vars(measure),
                "parameter_name": declared.parameter.name if declared.parameter else "",
                "combined": COMBINED[measure.aggregate],
                "home": "load" if curves else "streams" if streams and not chart else "placements",
                "levels": levels,
                "further": [
                    {**vars(level), "unit": of_metric.unit, "better": of_metric.better}
                    for level in of_all_metrics
                    if not level.primary
                    for of_metric in [measures.describe_workload(result, name, None, level.metric)]
                ],
                "chart": chart,
                "repeats": _repeats(result, samples, measure),
                "streams": streams,
                "helps": None if crossover is None else f"{wording.capital(crossovers.clause(crossover))}.",
                "compared_streams": compared,
                "parameters": curves,
                "load_curve": _load_curve(result, used.values(), measure),
                "smt_metrics": smt_metrics_part.lines(
                    declared, comparisons, of_all_metrics, samples, crossover, _one_per_core(result, used.values())
                ),
                "telemetry": telemetry_part.table(result, samples, levels, used),
            }
        )
    return described


def _arm_titles(result: HostResult) -> list[str]:
    """Return the titles of all arms, the baseline first."""
    return [arm.title for arm in result.arms]


def _unit(measure: Measure) -> str:
    return f"{measure.metric} [{measure.unit}]"


def _bars(levels: t.Sequence[Level], titles: t.Sequence[str], measure: Measure) -> charts.Picture | None:
    drawn = [
        charts.Bar(*_of_level(level), placements.title(level.placement), wording.number(level.value))
        for level in levels
        if level.value is not None and level.parameter is None and not _free(level.placement)
    ][:MAX_ROWS_DRAWN]
    unit = f"{_unit(measure)}, {'more' if measure.better == 'higher' else 'less'} is better"
    return (
        charts.bars(drawn, titles, unit, f"{measure.title}: {unit}, by placement; the table has the numbers")
        if drawn
        else None
    )


def _of_level(level: Level) -> Span:
    return _span(level.arm_title, level.value, level.low, level.high)


def _span(arm: str, *ends: float | None) -> Span:
    """Return a value of an arm with the ends of its interval, as charts draw it."""
    value, low, high = (None if end is None else short(end) for end in ends)
    return arm, value, low, high


def short(value: float) -> float:
    """Round to six digits: more are not visible in a chart, and digits make pages long.

    Args:
        value: any number.
    """
    return float(f"{value:.6g}")


def _repeats(result: HostResult, samples: t.Sequence[Sample], measure: Measure) -> list[dict[str, t.Any]]:
    """Return the distribution of the workers' values with every thread busy, or of one worker alone, and where the
    scheduler placed several workers: ``{placement, chart, arms, rows}`` each, the rows with the edges of a bin and the
    count of each arm.
    """
    values = {name: _values_of_workers(result, samples, name) for name in (placements.ALL_THREADS, placements.SINGLE)}
    fixed = [name for name, rows in values.items() if rows][:1]
    free = sorted({sample.placement for sample in samples if (_free(sample.placement) or 0) > 1}, key=placements.rank)
    titles = _arm_titles(result)
    repeats = []
    for placement in [*fixed, *free][:MAX_HISTOGRAMS]:
        rows = (values.get(placement) or _values_of_workers(result, samples, placement))[:MAX_SAMPLES_SHOWN]
        if len(rows) > 3:
            label = (
                f"{measure.title}, {placements.title(placement)}: how often which value of a worker came in {len(rows)}"
            )
            unit = f"{_unit(measure)} of a worker, {placements.title(placement)}"
            edges, counts = charts.bins(rows, titles)
            repeats.append(
                {
                    "placement": placement,
                    "chart": charts.histogram(edges, counts, titles, unit, label),
                    "arms": list(counts),
                    "rows": [row for row in zip(edges, edges[1:], *counts.values()) if any(row[2:])],
                }
            )
    return repeats


def _values_of_workers(result: HostResult, samples: t.Sequence[Sample], placement: str) -> list[tuple[str, float]]:
    """Return the arm's title and the value of each worker of a placement's good samples without a parameter."""
    arms = [(arm.name, arm.title) for arm in result.arms]
    titles = {(recorded.sampled_as(result, placement, name), name): title for name, title in arms}
    return [
        (titles[sample.placement, sample.arm], short(worker.value))
        for sample in samples
        if sample.ok and sample.parameter is None and (sample.placement, sample.arm) in titles
        for worker in sample.workers or []
        if worker.value is not None and paired.LEAST <= worker.value <= paired.MOST
    ]


def _free(placement: str) -> int | None:
    """Return the number of streams that a placement leaves to the scheduler, or None for another placement."""
    numbered = placements.numbered(placement)
    return numbered.workers if numbered and numbered.kind == placements.FREE else None


def is_of_streams(comparison: host_comparisons.Comparison) -> bool:
    """Return whether a comparison is that of two arms at a number of streams, by the primary metric."""
    of_streams = comparison.kind == "arm" and comparison.primary and comparison.parameter is None
    return of_streams and _free(comparison.placement) is not None


def _streams(
    samples: t.Sequence[Sample],
    levels: t.Sequence[Level],
    titles: t.Sequence[str],
    measure: Measure,
    compared: t.Sequence[host_comparisons.Comparison],
    crossover: Crossover | None,
) -> list[charts.Picture]:
    """Draw the metric by number of streams with its change, and beside a rate the time of a stream."""
    rows = [
        charts.Point(*_of_level(level), count)
        for level in levels
        if level.value is not None and (count := _free(level.placement)) is not None
    ]
    if len({row.x for row in rows}) < 2:
        return []
    changes = [_change(comparison) for comparison in compared if comparison.baseline.arm_title == titles[0]]
    curves = [(_unit(measure), "less", rows, changes)]
    if measure.better == "higher":
        names = {level.arm: level.arm_title for level in levels}
        curves = [
            ("time of a stream [s]", "less", _time_by_streams(samples, names), []),
            (_unit(measure), "more", rows, changes),
        ]
    helps = "" if crossover is None else f": {crossovers.clause(crossover)}"
    mark = None if crossover is None else crossover.streams
    return [
        charts.streams(
            drawn,
            below,
            titles,
            f"{unit}, {better} is better",
            mark,
            f"{measure.title}, {unit} by number of streams{helps}",
        )
        for unit, better, drawn, below in curves
        if drawn
    ]


def _change(comparison: host_comparisons.Comparison) -> charts.Point:
    """Return a comparison at a number of streams as the change of its metric, a point of a curve."""
    ends = comparison.change.value, comparison.change.low, comparison.change.high
    return charts.Point(*_span(comparison.candidate.arm_title, *ends), _free(comparison.placement) or 0)


def _time_by_streams(samples: t.Sequence[Sample], titles: t.Mapping[str, str]) -> list[charts.Point]:
    """Return the mean time of a stream with its interval, by number of streams and arm:
    in seconds, the workload's own where it declares one, else the wall time.
    """
    times: dict[tuple[int, str], dict[int, list[float]]] = {}
    for sample in samples:
        count = _free(sample.placement)
        own, declared = recorded.good_value(sample, "wall_time"), sample.metrics.get("wall_time")
        scale = units.SECONDS.get(declared.unit) if declared else None
        workers = [worker.wall_seconds for worker in sample.workers or [] if worker.wall_seconds]
        time = own * scale if own and scale else plain_statistics.fmean(workers) if workers else None
        if (
            sample.ok
            and count is not None
            and sample.parameter is None
            and time is not None
            and paired.LEAST <= time <= paired.MOST
        ):
            times.setdefault((count, sample.arm), {}).setdefault(sample.block, []).append(time)
    return [
        charts.Point(*_span(titles.get(arm, arm), *paired.level(list(blocks.values()))[:3]), count)
        for (count, arm), blocks in sorted(times.items())
    ]


def _parameters(
    result: HostResult, samples: t.Sequence[Sample], levels: t.Sequence[Level], measure: Measure
) -> list[dict[str, t.Any]]:
    """Draw, for each placement, the metric, the response time, the CPU usage and the instructions per cycle by
    parameter value: ``{placement, charts}`` each, a chart with what is to be said of it.
    """
    parameter = recorded.declaration(result, measure.workload).parameter
    if parameter is None:
        return []
    along = parameter.name + (f" [{parameter.unit}]" if parameter.unit not in (None, parameter.name) else "")
    titles = _arm_titles(result)
    kinds: dict[tuple[str, str, float], list[Sample]] = {}
    for sample in samples:
        if sample.ok and sample.parameter is not None:
            kinds.setdefault((sample.placement, sample.arm, sample.parameter), []).append(sample)
    charts_of_placements = []
    for placement in dict.fromkeys(level.placement for level in levels):
        own = [level for level in levels if level.placement == placement and level.parameter is not None]
        rated = [
            charts.Point(*_of_level(level), x) for level in own if level.primary and (x := level.parameter) is not None
        ]
        if all(row.value is None for row in rated):
            continue
        response, limit = _response(result, own, measure)
        usual = {place: members for place, members in kinds.items() if place[0] == placement}
        drawn = [
            (*response, "response time", limit),
            (_unit(measure), [] if response[0] == _unit(measure) else rated, _unit(measure), None),
            ("CPU usage [%]", _of_samples(result, usual, _usage_of_busiest), "usage of its busiest core", None),
            ("instructions per cycle", _of_samples(result, usual, _ipc), "instructions per cycle of a thread", None),
        ]
        higher, ending = measure.better == "higher", f"by {along}; the table has the numbers"
        title = f"{measure.title}, {placements.title(placement)}"
        charts_of_placements.append(
            {
                "placement": placement,
                "charts": [
                    (
                        charts.points(
                            rows, titles, unit, along, f"{title}: {what} {ending}", highest, rows is rated and higher
                        ),
                        "A cross: it failed there." if any(row.value is None for row in rows) else "",
                    )
                    for unit, rows, what, highest in drawn
                    if rows
                ],
            }
        )
    return charts_of_placements


def _response(
    result: HostResult, levels: t.Sequence[Level], measure: Measure
) -> tuple[tuple[str, list[charts.Point]], tuple[float, str] | None]:
    """Return the title and the rows of the response time of a workload, without a value where its samples failed, and
    the limit that was set.
    """
    declared = recorded.declaration(result, measure.workload)
    name = limits.response_metric(declared)
    if name is None or all(level.metric != name for level in levels):
        return ("", []), None
    spans = {(level.arm, level.parameter): _of_level(level) for level in levels if level.metric == name}
    rows = [
        charts.Point(*(spans.get((level.arm, level.parameter)) or _span(level.arm_title, None, None, None)), x)
        for level in levels
        if level.primary and (x := level.parameter) is not None
    ]
    unit, allowed = declared.metrics[name].unit, declared.response_limit
    at = allowed and allowed / units.SECONDS[unit]
    return (f"{name} [{unit}]", rows), None if at is None else (at, f"limit {at:.6g} {unit}")


def _of_samples(
    result: HostResult,
    kinds: t.Mapping[tuple[str, str, float], t.Sequence[Sample]],
    value_of: t.Callable[[Sample], float | None],
) -> list[charts.Point]:
    """Return the mean of a quantity over the samples of each arm and parameter value as points of a curve."""
    rows = []
    for (_placement, arm, x), members in sorted(kinds.items(), key=lambda kind: kind[0]):
        known = [value for sample in members if (value := value_of(sample)) is not None]
        if known:
            title = recorded.arm_title(result, arm)
            rows.append(charts.Point(title, short(sum(known) / len(known)), None, None, x))
    return rows


def _usage_of_busiest(sample: Sample) -> float | None:
    """Return the usage of the busiest core, or CPU, in percent."""
    telemetry = recorded.telemetry_of(sample)
    known = [share for share in (telemetry.core_usage or telemetry.cpu_usage or {}).values() if share is not None]
    return 100 * max(known) if known else None


def _ipc(sample: Sample) -> float | None:
    """Return the instructions per cycle of the threads of a sample."""
    counts = telemetry_part.counts([sample], "cpus")
    return None if counts is None else 1 / smt_metrics.cpi(counts[0], sum(counts[1]))


def _one_per_core(result: HostResult, used: t.Iterable[usage.Usage]) -> list[usage.Usage]:
    """Return the usages with one worker a core, without those at several loads, which have a chart."""
    return [
        use
        for use in used
        if use.parameter is None
        and use.placement == recorded.sampled_as(result, placements.ONE_PER_CORE, use.arm)
        and use.placement != recorded.sampled_as(result, placements.ALL_THREADS, use.arm)
    ]


def _load_curve(result: HostResult, used: t.Iterable[usage.Usage], measure: Measure) -> list[charts.Picture]:
    """Draw the rate, and the rate of one used CPU, over the CPU usage of the whole machine,
    for a workload that is measured at several loads.
    """
    points = [
        use for use in used if use.parameter is not None and use.achieved is not None and use.is_of_the_machine(result)
    ]
    pictures = []
    for which, what in (("rate", _unit(measure)), ("achieved", f"{measure.unit} by used CPU")):
        rows = [
            charts.Point(
                f"{recorded.arm_title(result, use.arm)}, {placements.short_title(use.placement)}",
                short(getattr(use, which)),
                None,
                None,
                short(100 * use.share),
            )
            for use in points
        ]
        label = f"{measure.title}: {what} over the CPU usage of the whole machine; the table has the numbers"
        if rows:
            shown = list(dict.fromkeys(row.arm for row in rows))
            pictures.append(charts.points(rows, shown, what, "CPU usage of the machine [%]", label))
    return pictures
