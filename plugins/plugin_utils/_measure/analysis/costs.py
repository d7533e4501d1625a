# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What work costs, CPU seconds and joules per unit of work, as metrics beside those that a workload declares.

The same throughput may take more CPU seconds: two threads of a core are both charged for all of the time in which each
has a part of it.
"""

from __future__ import annotations

import math
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import units
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import (
    catalogue,
    metrics as workload_metrics,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import (
    DeclaredMetric,
    HostResult,
    Sample,
    Value,
    Worker,
    Workload,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired

CPU_BY_WORK, JOULES_BY_WORK = "cpu_by_work", "joules_by_work"
# Name -> its unit for a piece of work, and what it counts, for people.
_UNITS = {CPU_BY_WORK: "CPU s", JOULES_BY_WORK: "J"}
TITLES = {CPU_BY_WORK: "CPU seconds per unit of work", JOULES_BY_WORK: "joules per unit of work"}
METRICS = tuple(TITLES)

# A unit of a rate: its work, and its time.
_RATE = re.compile(r"(.*\S) ?(?:/|\bper\b) ?(s|sec|second|min|minute|h|hour)\Z")
_SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
JOB = "job"
# A worker's value is the time of its job where it is as long as the worker ran, to this share.
_SAME_TIME = 0.01


def added(result: HostResult) -> HostResult:
    """Return a result with what the work costs, of each workload in whose samples that is known.

    Args:
        result: from :func:`result_files.load`; it stays as it is.
    """
    metrics: dict[str, dict[str, DeclaredMetric]] = {}
    samples = list(result.samples)
    workloads = {workload.name: workload for workload in result.plan.workloads or ()}
    for place, sample in enumerate(samples):
        workload = workloads[sample.workload]
        made = {}
        for name, cost in _costs(workload, sample):
            unit = f"{_UNITS[name]}/{_unit_of_work(workload)}".removesuffix("/1")
            metric = DeclaredMetric(unit=unit, better="lower", aggregate="mean_per_job")
            metrics.setdefault(workload.name, {})[name] = metric
            made[name] = Value(value=cost, unit=unit, better="lower")
        if made:
            samples[place] = parts.changed(sample, metrics={**sample.metrics, **made})
    if not metrics:
        return result
    declared = tuple(
        parts.changed(workload, metrics={**workload.metrics, **metrics.get(workload.name, {})})
        for workload in workloads.values()
    )
    return parts.changed(result, plan=parts.changed(result.plan, workloads=declared), samples=tuple(samples))


def has_all_cpu_time(workload: Workload) -> bool:
    """Return whether the workers have used all of the CPU time that the work took: no server did a part of it."""
    built_in = catalogue.BUILT_IN.get(workload.name)
    return not (workload.server if workload.server is not None else built_in and built_in["server"])


def rate_of(unit: str) -> tuple[str, float] | None:
    """Return the unit of the work, and the seconds in which it is done, of a rate's unit, such as ``("orders", 60.0)``
    of ``orders/min``; None for a unit of anything else.
    """
    match = _RATE.match(unit)
    return (match.group(1), _SECONDS[match.group(2)]) if match else None


def _unit_of_work(workload: Workload) -> str:
    rate = rate_of(workload.metrics[workload.primary].unit)
    return rate[0] if rate else JOB


def _costs(workload: Workload, sample: Sample) -> t.Iterator[tuple[str, float]]:
    """Yield each cost of a sample per unit of its work that is known.

    The work is what the primary metric says: a rate that adds up over workers times the time of each, or one job a
    worker where it is the time of a job.
    """
    workers = sample.workers if sample.ok and sample.workers else ()
    work = [_work(workload.metrics[workload.primary], worker) or math.nan for worker in workers]
    seconds = [math.nan if worker.cpu_seconds is None else worker.cpu_seconds for worker in workers]
    joules = sample.telemetry and sample.telemetry.joules
    spent = {CPU_BY_WORK: sum(seconds) if has_all_cpu_time(workload) else math.nan, JOULES_BY_WORK: joules or math.nan}
    for name, cost in spent.items() if work else ():
        if name not in workload.metrics and paired.LEAST <= cost / sum(work) <= paired.MOST:
            yield name, cost / sum(work)


def _work(metric: DeclaredMetric, worker: Worker) -> float | None:
    """Return the work of a worker, or None where its primary metric does not say it."""
    if worker.value is None or not worker.wall_seconds:
        return None
    rate = rate_of(metric.unit)
    if rate and (metric.better, metric.aggregate) == ("higher", "sum"):
        return worker.value * worker.wall_seconds / rate[1]
    scale = units.SECONDS.get(metric.unit)
    if metric.better == "higher" or scale is None:
        return None
    is_its_own = abs(worker.value * scale / worker.wall_seconds - 1) <= _SAME_TIME
    return 1.0 if is_its_own or metric.aggregate in (workload_metrics.PER_JOB, workload_metrics.MEAN_PER_JOB) else None
