# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What work costs: CPU seconds per unit of work, as a metric beside those that a workload declares.

The same throughput may take more CPU seconds: two threads of a core are both charged for all of the time in which each
has a part of it.
"""

from __future__ import annotations

import math
import re

from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import units
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import catalogue, metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.host_result import (
    DeclaredMetric,
    HostResult,
    Sample,
    Value,
    Worker,
    Workload,
)

CPU_BY_WORK = "cpu_by_work"
# Name -> what it counts, for people.
TITLES = {CPU_BY_WORK: "CPU seconds per unit of work"}
METRICS = tuple(TITLES)

# A unit of a rate: its work, and its time.
_RATE = re.compile(r"(.*\S) ?(?:/|\bper\b) ?(s|sec|second|min|minute|h|hour)\Z")
_SECONDS = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
JOB = "job"
# A worker's value is the time of its job where it is as long as the worker ran, to this share.
_SAME_TIME = 0.01


def added(result: HostResult) -> HostResult:
    """Return a result with the CPU seconds per unit of work of each workload in whose samples they are known.

    Args:
        result: from :func:`result_files.load`; it stays as it is.
    """
    found: dict[str, DeclaredMetric] = {}
    samples = list(result.samples)
    counted = {one.name: one for one in result.plan.workloads or () if has_all_cpu_time(one)}
    for place, sample in enumerate(samples):
        workload = counted.get(sample.workload)
        cost = _cpu_by_work(workload, sample) if workload else None
        if workload and cost is not None:
            unit = f"CPU s/{_unit_of_work(workload)}"
            found[workload.name] = DeclaredMetric(unit=unit, better="lower", aggregate="per_job")
            values = {**sample.metrics, CPU_BY_WORK: Value(value=cost, unit=unit, better="lower")}
            samples[place] = parts.changed(sample, metrics=values)
    if not found:
        return result
    workloads = tuple(
        parts.changed(one, metrics={**one.metrics, CPU_BY_WORK: found[one.name]}) if one.name in found else one
        for one in result.plan.workloads or ()
    )
    return parts.changed(result, plan=parts.changed(result.plan, workloads=workloads), samples=tuple(samples))


def has_all_cpu_time(workload: Workload) -> bool:
    """Return whether the workers have used all of the CPU time that the work took: no server did a part of it."""
    built_in = catalogue.BUILT_IN.get(workload.name)
    has_server = workload.server if workload.server is not None else bool(built_in and built_in["server"])
    return not has_server and CPU_BY_WORK not in workload.metrics


def _unit_of_work(workload: Workload) -> str:
    rate = _RATE.match(workload.metrics[workload.primary].unit)
    return rate.group(1) if rate else JOB


def _cpu_by_work(workload: Workload, sample: Sample) -> float | None:
    """Return the CPU seconds per unit of work of a sample; None where a worker's CPU time or its work is not known.

    The work is what the primary metric says: a rate that adds up over workers times the time of each, or one job a
    worker where it is the time of a job.
    """
    if not sample.ok or not sample.workers:
        return None
    seconds, work = 0.0, 0.0
    for worker in sample.workers:
        done = _work(workload.metrics[workload.primary], worker)
        if done is None or worker.cpu_seconds is None:
            return None
        seconds, work = seconds + worker.cpu_seconds, work + done
    cost = seconds / work if work > 0 else math.inf
    return cost if paired.LEAST <= cost <= paired.MOST else None


def _work(metric: DeclaredMetric, worker: Worker) -> float | None:
    """Return the work of a worker, or None where its primary metric does not say it."""
    if worker.value is None or not worker.wall_seconds:
        return None
    rate = _RATE.match(metric.unit)
    if rate and (metric.better, metric.aggregate) == ("higher", "sum"):
        return worker.value * worker.wall_seconds / _SECONDS[rate.group(2)]
    scale = units.SECONDS.get(metric.unit)
    if metric.better == "higher" or scale is None:
        return None
    is_its_own = abs(worker.value * scale / worker.wall_seconds - 1) <= _SAME_TIME
    return 1.0 if is_its_own or metric.aggregate == workload_metrics.PER_JOB else None
