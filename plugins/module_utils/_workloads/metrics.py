# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A sample's metrics, read from what its workers printed and how long they took.

A metric is a dict ``{name, unit, better, aggregate}`` (``aggregate``: how the workers' values make the sample's) and one source:

``rate: true``
    Amount of work by the worker's own wall time.
``clock``
    ``wall_seconds`` or ``cpu_seconds`` of the worker.
``pattern``
    A regular expression whose first group is the number in what the tool printed, to its standard output or error. With ``quantile`` (0..1) each
    match is one value, or, where there is a second group, so many of them, and the metric is that quantile of all.
``json``
    The path (list of str: keys of objects, indices of arrays) to the number in the JSON document that the tool printed, after whatever it printed before.

``file`` reads the pattern in the files of that name (a glob) which the worker left in its working directory; ``scale`` is a factor for the unit.
"""

from __future__ import annotations

import glob
import json
import math
import os
import re
import stat
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import users
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.built_in import Metric, Workload, WorkloadError

# So much of what a failed worker said goes into the message.
LAST_LINES = 5
LAST_CHARACTERS = 1000
# Of all files together that a worker leaves so many bytes are read: the same share of each, from its end; and no more files than these.
FILES_LIMIT = 8 * 1024 * 1024
MOST_FILES = 1024

# How the workers' values make the sample's. ``per_job``, of seconds that each worker needs for a whole job: what a job takes of the placement's time when
# the slowest has ended, so that placements with different numbers of workers can be compared.
PER_JOB = "per_job"
AGGREGATES: dict[str, t.Callable[[t.Sequence[float]], float]] = {
    "sum": sum,
    "max": max,
    "mean": lambda values: sum(values) / len(values),
    PER_JOB: lambda values: max(values) / len(values),
}


class MetricValue(t.TypedDict):
    """A metric of a sample, over all its workers."""

    value: float
    unit: str
    better: str


def read(
    workload: Workload, work: int | None, workers: t.Sequence[t.Mapping[str, t.Any]], directory: str, owner: tuple[int, int] | None = None
) -> tuple[dict[str, MetricValue], list[float]]:
    """The metrics of a sample.

    Args:
        workload: its declaration.
        work: the amount of work of each process.
        workers: as ``runner.run`` returns them.
        directory: the workers' working directory.
        owner: (uid, gid) of the workers, who may have put anything there, or None for this process's.

    Returns:
        A pair: ``{name: {value, unit, better}}`` over all workers, the declared metric first; and the list of each worker's value of it.

    Raises:
        WorkloadError: a worker failed, or did not print its metric as a positive number.
    """
    for worker in workers:
        if worker["exit_status"] != 0:
            raise WorkloadError(_failure(workload, worker))
    metrics: dict[str, MetricValue] = {}
    per_worker: list[float] | None = None
    for metric in [workload["metric"]] + workload["metrics"]:
        values = [_value(workload, metric, work, worker, directory, owner) for worker in workers]
        if per_worker is None:
            per_worker = values
        value = AGGREGATES[metric["aggregate"]](values)
        if not math.isfinite(value):
            raise WorkloadError(f"the {metric['name']} of all workers of {workload['argv'][0]} are together no finite number")
        metrics[metric["name"]] = {"value": value, "unit": metric["unit"], "better": metric["better"]}
    return metrics, per_worker or []


def said(worker: t.Mapping[str, t.Any]) -> str:
    """The last lines of what a worker printed, as one line."""
    lines = [line for line in (worker["output"] + "\n" + worker["errors"]).splitlines() if line.strip()]
    return " | ".join(lines[-LAST_LINES:])[:LAST_CHARACTERS] or "it said nothing"


def _value(workload: Workload, metric: Metric, work: int | None, worker: t.Mapping[str, t.Any], directory: str, owner: tuple[int, int] | None) -> float:
    if metric.get("rate"):
        assert work is not None, "a rate is declared only with an amount of work"
        seconds: float = worker["wall_seconds"]
        return work / seconds
    value = _measured(metric, worker, directory, owner)
    if not (math.isfinite(value) and value > 0):
        raise WorkloadError(f"{workload['argv'][0]} printed no {metric['name']}: {said(worker)}")
    return value * metric.get("scale", 1)


def _measured(metric: Metric, worker: t.Mapping[str, t.Any], directory: str, owner: tuple[int, int] | None) -> float:
    """The number that the metric's source tells, NaN where it tells none."""
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
    except ValueError:
        return math.nan


def in_json(text: str, path: t.Sequence[str]) -> float:
    """The number at a path in the JSON document that a tool printed; NaN where there is none."""
    try:
        # Some tools print a line or two before their document.
        found = json.JSONDecoder().raw_decode(text, text.index("{"))[0]
        for key in path:
            found = found[int(key) if isinstance(found, list) else key]
    except (ValueError, LookupError, TypeError, RecursionError):
        return math.nan
    return _number(found) if isinstance(found, (int, float, str)) and not isinstance(found, bool) else math.nan


def _quantile(matches: t.Sequence[t.Any], share: float) -> float:
    """The least value that so large a share of all values does not exceed."""
    steps = sorted((_number(match[0]), int(match[1])) if isinstance(match, tuple) else (_number(match), 1) for match in matches)
    wanted = share * sum(count for _value, count in steps)
    for value, count in steps:
        wanted -= count
        if wanted <= 0:
            return value
    return math.nan


def _files(directory: str, pattern: str, owner: tuple[int, int] | None) -> str:
    """The text of the files that a worker left; the folder is entered with its owner's rights."""
    try:
        text: str = users.call(owner or (os.geteuid(), os.getegid()), _texts, directory, pattern)
    except users.OtherUserError:
        return ""
    return text


def _texts(directory: str, pattern: str) -> str:
    texts = []
    paths = sorted(glob.glob(os.path.join(glob.escape(directory), pattern)))[:MOST_FILES]
    for path in paths:
        share = FILES_LIMIT // len(paths)
        try:
            # What is no file of the worker's, such as a FIFO that nobody writes to, tells nothing.
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
                status = os.fstat(stream.fileno())
                if stat.S_ISREG(status.st_mode):
                    stream.seek(max(0, status.st_size - share))
                    texts.append(stream.read(share).decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(texts)


def _failure(workload: Workload, worker: t.Mapping[str, t.Any]) -> str:
    status: int | None = worker["exit_status"]
    ended = f"was ended by signal {-status}" if status is not None and status < 0 else f"failed with exit status {status}"
    return f"{workload['argv'][0]} on CPU {','.join(map(str, worker['cpus'])) or 'any'} {ended}: {said(worker)}"
