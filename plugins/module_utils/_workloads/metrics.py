# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The metrics of a sample, read from the output of its workers and from their run times,
as ``declaration.Metric`` says.
"""

import glob
import json
import math
import os
import re
import stat
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host import users
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import (
    Metric,
    Workload,
    WorkloadError,
)

# How much of the output of a failed worker goes into the message.
LAST_LINES = 5
LAST_CHARACTERS = 1000
# How many bytes of all files of a worker together are read: the same share of each file, from its end. And how many
# files at most.
FILES_LIMIT = 8 * 1024 * 1024
MAX_FILES = 1024

# The values that a result can have: the controller refuses a whole result with a value beyond them.
MIN_VALUE = 1e-30
MAX_VALUE = 1e18

# How the values of the workers are combined. ``per_job`` is for seconds of which each worker needs its own for a whole
# job, so that placements with different numbers of workers can be compared: CPU time is the mean of the workers', and
# of other times that of the slowest worker is divided by the number of workers, because they run at the same time.
#
# ``per_operation`` is for a time of one of many operations that each worker does: that of all workers together, the
# inverse of their summed rates. ``undeclared`` is a time of which the command's user did not say what it is of, and
# nobody else can know: it is compared only between as many workers on as many CPUs.
PER_JOB, CPU = "per_job", "cpu_seconds"
PER_OPERATION, UNDECLARED = "per_operation", "undeclared"
AGGREGATES: "dict[str, t.Callable[[t.Sequence[float]], float]]" = {
    "sum": sum,
    "max": max,
    "mean": lambda values: sum(values) / len(values),
    PER_JOB: lambda values: max(values) / len(values),
    PER_OPERATION: lambda values: 1 / sum(1 / value for value in values) if min(values) > 0 else max(values),
    UNDECLARED: max,
}


class MetricValue(TypedDict):
    """The value of a metric for a sample, over all its workers."""

    value: float
    unit: str
    better: str


def read(
    workload: Workload,
    work: "int | None",
    workers: "t.Sequence[t.Mapping[str, t.Any]]",
    directory: str,
    owner: "tuple[int, int] | None" = None,
) -> "tuple[dict[str, MetricValue], list[float]]":
    """Return the metrics of a sample.

    Args:
        workload: the declaration.
        work: the amount of work of each process, or None for a workload without one.
        workers: as ``runner.run`` returns them.
        directory: the workers' working directory.
        owner: (uid, gid) of the workers, who can have put anything into the directory, or None for the user of this
            process.

    Returns:
        A pair: the metrics over all workers by name, the primary metric first; and the primary metric's value for each
        worker.

    Raises:
        WorkloadError: a worker failed, or a metric is not a number from ``MIN_VALUE`` to ``MAX_VALUE``.
    """
    for worker in workers:
        if worker["exit_status"] != 0:
            raise WorkloadError(_failure(workload, worker))
    metrics: dict[str, MetricValue] = {}
    per_worker: t.Optional[list[float]] = None
    for metric in workload["metrics"]:
        values = [_value(workload, metric, work, worker, directory, owner) for worker in workers]
        if per_worker is None:
            per_worker = values
        is_cpu_time_per_job = metric["aggregate"] == PER_JOB and metric.get("clock") == CPU
        value = AGGREGATES["mean" if is_cpu_time_per_job else metric["aggregate"]](values)
        if not MIN_VALUE <= value <= MAX_VALUE:
            raise WorkloadError(
                f"the {metric['name']} of all workers of {workload['argv'][0]} combined is not a number from"
                f" {MIN_VALUE:g} to {MAX_VALUE:g}"
            )
        metrics[metric["name"]] = {"value": value, "unit": metric["unit"], "better": metric["better"]}
    return metrics, per_worker or []


def last_lines(worker: "t.Mapping[str, t.Any]") -> str:
    """Return the last lines of a worker's output as one line."""
    lines = [line for line in (worker["output"] + "\n" + worker["errors"]).splitlines() if line.strip()]
    return " | ".join(lines[-LAST_LINES:])[:LAST_CHARACTERS] or "no output"


def _value(
    workload: Workload,
    metric: Metric,
    work: "int | None",
    worker: "t.Mapping[str, t.Any]",
    directory: str,
    owner: "tuple[int, int] | None",
) -> float:
    if metric.get("rate"):
        if work is None:
            raise WorkloadError(f"{metric['name']} of {workload['name']} is a rate, and no amount of work is declared")
        seconds: float = worker["wall_seconds"]
        return work / seconds
    value = _measured(metric, worker, directory, owner) * metric.get("scale", 1)
    if not (math.isfinite(value) and value > 0):
        raise WorkloadError(f"{workload['argv'][0]} printed no {metric['name']}: {last_lines(worker)}")
    if not MIN_VALUE <= value <= MAX_VALUE:
        raise WorkloadError(
            f"{workload['argv'][0]} printed a {metric['name']} that is not from {MIN_VALUE:g} to {MAX_VALUE:g}"
            f" {metric['unit']}: {last_lines(worker)}"
        )
    return value


def _measured(
    metric: Metric, worker: "t.Mapping[str, t.Any]", directory: str, owner: "tuple[int, int] | None"
) -> float:
    """Return the number from the metric's source, or NaN."""
    if "clock" in metric:
        seconds: float = worker[metric["clock"]]
        return seconds
    if "json" in metric:
        return in_json(worker["output"], metric["json"])
    text = _files(directory, metric["file"], owner) if "file" in metric else worker["output"] + "\n" + worker["errors"]
    if "quantile" in metric:
        return _quantile(re.findall(metric["pattern"], text), metric["quantile"])
    found = re.search(metric["pattern"], text)
    return _number(found.group(1)) if found else math.nan


def _number(text: object) -> float:
    try:
        return float(text) if isinstance(text, (str, int, float)) else math.nan
    except (ValueError, OverflowError):
        return math.nan


def in_json(text: str, path: "t.Sequence[str]") -> float:
    """Return the number at a path in the JSON document in a tool's output, or NaN."""
    try:
        # Some tools print a few lines before the document.
        found = json.JSONDecoder().raw_decode(text, text.index("{"))[0]
        for key in path:
            found = found[int(key) if isinstance(found, list) else key]
    except (ValueError, LookupError, TypeError, RecursionError):
        return math.nan
    return _number(found) if isinstance(found, (int, float, str)) and not isinstance(found, bool) else math.nan


def _quantile(matches: "t.Sequence[t.Any]", share: float) -> float:
    """Return the smallest value that at least this share of all values does not exceed, or NaN."""
    pairs = [
        (_number(match[0]), _number(match[1])) if isinstance(match, tuple) else (_number(match), 1.0)
        for match in matches
    ]
    if not all(math.isfinite(number) for pair in pairs for number in pair):
        return math.nan
    values = sorted(pairs)
    remaining = share * sum(count for _value, count in values)
    for value, count in values:
        remaining -= count
        if remaining <= 0:
            return value
    return math.nan


def _files(directory: str, pattern: str, owner: "tuple[int, int] | None") -> str:
    """Return the text of the files that a worker left. The directory is read with the rights of its owner."""
    try:
        text: str = users.call(owner or (os.geteuid(), os.getegid()), _texts, directory, pattern)
    except users.OtherUserError:
        return ""
    return text


def _texts(directory: str, pattern: str) -> str:
    texts = []
    paths = sorted(glob.glob(os.path.join(glob.escape(directory), pattern)))[:MAX_FILES]
    for path in paths:
        share = FILES_LIMIT // len(paths)
        try:
            # Skip what is not a regular file, such as a FIFO without a writer.
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
                status = os.fstat(stream.fileno())
                if stat.S_ISREG(status.st_mode):
                    stream.seek(max(0, status.st_size - share))
                    texts.append(stream.read(share).decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(texts)


def _failure(workload: Workload, worker: "t.Mapping[str, t.Any]") -> str:
    status: t.Optional[int] = worker["exit_status"]
    ended = (
        f"was ended by signal {-status}" if status is not None and status < 0 else f"failed with exit status {status}"
    )
    return f"{workload['argv'][0]} on CPU {','.join(map(str, worker['cpus'])) or 'any'} {ended}: {last_lines(worker)}"
