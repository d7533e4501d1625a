# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SMT metrics of each workload (:mod:`_measure.analysis.smt_metrics`) as lines of a host's page."""

from __future__ import annotations

import typing as t
from statistics import fmean

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms, placements, units
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import Sample, Workload
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    limits,
    recorded,
    smt_metrics,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.measures import Level
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.streams import FOUND, Crossover
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.usage import Usage
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_loads import crossovers
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

Line = tuple[str, str, str]
# Knee of a curve of response times: this multiple of the response time with the fewest clients.
KNEE = 2.0
YIELDS = ("smt_yield", "core_yield")
READS = {
    "cost_of_sharing": "how a worker's metric changes while another runs on its core",
    "cost_of_sharing_alone": "the same on the only core, against a worker alone",
    "core_yield": "work of two workers on one core by that of one: 1 when the second adds nothing, 2 as if alone",
    "smt_yield": "work of all threads by work of one worker a core: 1 when second threads add nothing",
    arms.SMT_OFF: "how the metric of the whole machine changes when SMT is switched off",
}


def lines(
    workload: Workload,
    comparisons: t.Sequence[host_comparisons.Comparison],
    levels: t.Sequence[Level],
    samples: t.Sequence[Sample],
    crossover: Crossover | None,
    spare: t.Iterable[Usage] = (),
) -> list[Line]:
    """Return the SMT metrics that a workload's measurements allow.

    Args:
        workload: as the plan declares it.
        comparisons: all of the host.
        levels: of the workload.
        samples: of the workload.
        crossover: of the workload, or None where no streams were compared.
        spare: its use of the CPUs with one worker a core.

    Returns:
        ``(name, value with its interval, meaning)`` each.
    """
    return [
        *_of_comparisons(workload.name, comparisons),
        *_of_room(usage for usage in spare if usage.saturated),
        *_of_streams(crossover),
        *_of_clients(workload, levels, samples),
    ]


def _of_comparisons(workload: str, comparisons: t.Sequence[host_comparisons.Comparison]) -> list[Line]:
    metric_lines = []
    of_placements = [comparison for comparison in comparisons if comparison.kind == "placement" and comparison.primary]
    for comparison in [*of_placements, *host_comparisons.of_smt(comparisons)]:
        is_asked = comparison.workload == workload and comparison.metric != limits.MOST_LOAD
        is_work = comparison.aggregate in workload_metrics.ADDING_UP or comparison.effect not in YIELDS
        if is_asked and is_work and comparison.effect in READS:
            metric = smt_metrics.of_comparison(comparison.effect, comparison.aggregate, comparison)
            at = "" if comparison.parameter is None else f" at {comparison.parameter:g}"
            metric_lines.append((metric.name + at, _value(comparison.effect, metric), READS[comparison.effect]))
    return metric_lines


def _value(effect: str, metric: smt_metrics.SmtMetric) -> str:
    if effect in YIELDS:
        return f"{metric.value:.2f}" + ("" if metric.low is None else f" ({metric.low:.2f} to {metric.high:.2f})")
    return wording.change_and_interval(metric.change)


def _of_room(spare: t.Iterable[Usage]) -> list[Line]:
    """Return how much room is left with one worker a core, where usage says something else of it."""
    metric_lines = []
    for usage in spare:
        if usage.by_usage is None or usage.by_usage.value is None or usage.real is None or usage.real.low is None:
            continue
        # With a second thread there may be less of it, never less than none.
        low, high = (max(0.0, end or 0.0) for end in (usage.real.low, usage.real.high))
        use = wording.Room(usage.share or 0.0, (1 / (1 + high), 1 / (1 + low)), (low, high), usage.by_usage.value)
        if wording.room_differs(use):
            metric_lines.append(("room left", wording.room(use), f"one worker a core: {wording.room_left(use)}"))
    return metric_lines


def _of_streams(crossover: Crossover | None) -> list[Line]:
    if crossover is None:
        return []
    reads = (
        "from how many streams on SMT helps; in parentheses, from the number where it costs no more to the number where"
        " it is called a gain"
        if crossover.status == FOUND
        else "with how many streams SMT helps"
    )
    return [("crossover", crossovers.text(crossover), reads)]


def _of_clients(workload: Workload, levels: t.Sequence[Level], samples: t.Sequence[Sample]) -> list[Line]:
    """Return the most clients (or other parameter value) before response times double, for each placement and arm;
    under a limit, those of the typical block.
    """
    titles = {level.arm: level.arm_title for level in levels}
    curves: dict[str, dict[str, dict[float, list[float]]]] = {}
    name = limits.response_metric(workload)
    if name is None or workload.parameter is None:
        return []
    for sample in samples:
        response = recorded.good_value(sample, name)
        if response is not None and sample.parameter is not None:
            curve = curves.setdefault(sample.placement, {}).setdefault(sample.arm, {})
            curve.setdefault(sample.parameter, []).append(response)
    counted, unit, allowed = workload.parameter.name, workload.metrics[name].unit, workload.response_limit
    metric_lines = []
    for placement, by_arm in curves.items():
        means = {arm: {value: fmean(values) for value, values in curve.items()} for arm, curve in by_arm.items()}
        limit, why = KNEE * next(curve[min(curve)] for curve in means.values()), f"twice those of the fewest {counted}"
        if allowed is not None:
            limit, why = allowed / units.SECONDS[unit], "the limit that was set"
        by_block = {
            level.arm: "none" if level.value is None else f"{level.value:g}"
            for level in levels
            if level.metric == limits.MOST_LOAD and level.measured_as == placement
        }
        most = by_block or {arm: _most(curve, limit) for arm, curve in means.items()}
        text = ", ".join(f"{titles.get(arm, arm)} {value}" for arm, value in most.items())
        reads = (
            f"{counted} before {name.replace('latency_', '')} response times are over {wording.number(limit)}"
            f" {unit}, {why}"
        )
        metric_lines.append((f"most {counted}, {placements.title(placement)}", text, reads))
    return metric_lines


def _most(curve: t.Mapping[float, float], limit: float) -> str:
    most = smt_metrics.most_clients(curve, limit)
    return "none" if most is None else f"{most:g}"
