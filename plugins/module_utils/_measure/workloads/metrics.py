# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of a sample, read from the output of its workers and from their run times,
as ``declaration.Metric`` says.
"""

import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    Metric,
    UnreadableError,
    Workload,
    WorkloadError,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.output import sources

# How much of the output of a failed worker goes into the message.
LAST_LINES = 10
LAST_CHARACTERS = 1000
LAST_READ = 64 * 1024

# The values that a result can have: the controller refuses a whole result with a value beyond them.
MIN_VALUE = 1e-30
MAX_VALUE = 1e18


def _mean(values: "t.Sequence[float]") -> float:
    return sum(values) / len(values)


# How the values of the workers are combined. ``per_job`` is for seconds of which each worker needs its own for a whole
# job, so that placements with different numbers of workers can be compared: that of the slowest worker is divided by
# the number of workers, because they run at the same time. ``mean_per_job`` is what a job takes of what workers do not
# share, such as CPU time.
#
# ``per_operation`` is for a time of one of many operations that each worker does: that of all workers together, the
# inverse of their summed rates. ``undeclared`` is a time of which the command's user did not say what it is of, and
# nobody else can know: it is compared only between as many workers on as many CPUs.
PER_JOB, MEAN_PER_JOB = "per_job", "mean_per_job"
PER_OPERATION, UNDECLARED = "per_operation", "undeclared"
AGGREGATES: "dict[str, t.Callable[[t.Sequence[float]], float]]" = {
    "sum": sum,
    "max": max,
    "mean": _mean,
    MEAN_PER_JOB: _mean,
    PER_JOB: lambda values: max(values) / len(values),
    PER_OPERATION: lambda values: 1 / sum(1 / value for value in values) if min(values) > 0 else 0.0,
    UNDECLARED: max,
}
# Those that say what all workers do together; the others say what one waits, or takes.
ADDING_UP = ("sum", PER_JOB, PER_OPERATION)


class MetricValue(TypedDict):
    """The value of a metric for a sample, over all its workers."""

    value: float
    unit: str
    better: str


def read(
    workload: Workload,
    work: "int | None",
    workers: "t.Sequence[t.Mapping[str, t.Any]]",
    directories: "t.Sequence[str]",
    owner: "tuple[int, int] | None" = None,
) -> "tuple[dict[str, MetricValue], list[float]]":
    """Return the metrics of a sample.

    Args:
        workload: the declaration.
        work: the amount of work of each process, or None for a workload without one.
        workers: as ``runner.run`` returns them.
        directories: the working directory of each worker.
        owner: (uid, gid) of the workers, who can have put anything into them, or None for the user of this
            process.

    Returns:
        A pair: the metrics over all workers by name, the primary metric first; and the primary metric's value for each
        worker.

    Raises:
        WorkloadError: a worker failed, or a metric is not a number from ``MIN_VALUE`` to ``MAX_VALUE``; a further
            metric may be 0.
        UnreadableError: it is not known what a number is.
    """
    for worker in workers:
        if worker["exit_status"] != 0:
            raise WorkloadError(_failure(workload, worker))
    outputs = [sources.Output(worker, directory, owner) for worker, directory in zip(workers, directories)]
    metrics: dict[str, MetricValue] = {}
    per_worker: t.Optional[list[float]] = None
    for metric in workload["metrics"]:
        values = [_value(workload, metric, work, *pair) for pair in zip(workers, outputs)]
        if per_worker is None:
            per_worker = values
        value = AGGREGATES[metric["aggregate"]](values)
        if not _fits(value):
            raise WorkloadError(
                f"the {metric['name']} of all workers of {workload['argv'][0]} combined is not a number from"
                f" {MIN_VALUE:g} to {MAX_VALUE:g}"
            )
        metrics[metric["name"]] = {"value": value, "unit": metric["unit"], "better": metric["better"]}
    return metrics, per_worker or []


def last_lines(worker: "t.Mapping[str, t.Any]") -> str:
    """Return the last lines of a worker's output as one line."""
    ends = (worker[name][-LAST_READ:] for name in ("output", "errors"))
    lines = [line for line in "\n".join(ends).splitlines() if line.strip()]
    return " | ".join(lines[-LAST_LINES:])[:LAST_CHARACTERS] or "no output"


def _value(
    workload: Workload,
    metric: Metric,
    work: "int | None",
    worker: "t.Mapping[str, t.Any]",
    output: sources.Output,
) -> float:
    if metric.get("rate"):
        if work is None:
            raise WorkloadError(f"{metric['name']} of {workload['name']} is a rate, and no amount of work is declared")
        seconds: float = worker["wall_seconds"]
        return work / seconds
    try:
        value = output.value(metric)
    except UnreadableError as error:
        raise UnreadableError(
            f"the {metric['name']} that {workload['argv'][0]} printed cannot be read: {error}"
        ) from None
    # What has no ratio cannot be what decides.
    is_primary = metric is workload["metrics"][0]
    if not (math.isfinite(value) and (value > 0 or (value == 0 and not is_primary))):
        raise WorkloadError(f"{workload['argv'][0]} printed no {metric['name']}: {last_lines(worker)}")
    if not _fits(value):
        raise WorkloadError(
            f"{workload['argv'][0]} printed a {metric['name']} that is not from {MIN_VALUE:g} to {MAX_VALUE:g}"
            f" {metric['unit']}: {last_lines(worker)}"
        )
    return value


def _fits(value: float) -> bool:
    return value == 0 or MIN_VALUE <= value <= MAX_VALUE


def _failure(workload: Workload, worker: "t.Mapping[str, t.Any]") -> str:
    status: t.Optional[int] = worker["exit_status"]
    ended = (
        f"was ended by signal {-status}" if status is not None and status < 0 else f"failed with exit status {status}"
    )
    return f"{workload['argv'][0]} on CPU {','.join(map(str, worker['cpus'])) or 'any'} {ended}: {last_lines(worker)}"
