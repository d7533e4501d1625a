# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is run to measure, as declarations: the command, what it reports, which way is better, how one sees that it has worked.

A declaration is a dict:

``name``, ``title``
    How results and people call it.
``argv``
    list of str; ``{work}`` in it stands for the calibrated amount of work.
``stdin``
    ``stream`` (the fixed stream below) or None.
``keep_output``
    Whether the metric is read from what it prints.
``work``
    ``{unit, start, step, limit}``: the amount of work that is calibrated once, so that one worker alone takes the wanted time,
    and then kept for every sample: what is compared is always the same work.
``metric``
    The one that verdicts are about: ``{name, unit, better, aggregate}`` and either ``pattern`` (a regular expression whose first group is
    the number in the tool's output) or ``per_second: true`` (amount of work by the worker's own wall time).
``metrics``
    Further ones, of the same shape.
``package``
    The package of the distribution that brings the command.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import random
import re
import subprocess

MEGABYTE = 1000 * 1000
# The stream repeats one block of a megabyte: gzip looks back 32 KiB only, so a repeated block is as hard as a new one.
STREAM_SEED = 20040817
STREAM_WORDS = 4096
# So much of what a failed worker said goes into the message.
LAST_LINES = 5

GZIP = {
    "name": "gzip",
    "title": "gzip of a fixed stream",
    "argv": ["gzip", "-6", "-c"],
    "stdin": "stream",
    "keep_output": False,
    "work": {"unit": "MB", "start": 2, "step": 1, "limit": 2000},
    "metric": {"name": "throughput", "unit": "MB/s", "better": "higher", "aggregate": "sum", "per_second": True},
    "metrics": [],
    "package": "gzip",
}

SYSBENCH_CPU = {
    "name": "sysbench_cpu",
    "title": "sysbench cpu (primes to 10000)",
    "argv": ["sysbench", "cpu", "--threads=1", "--cpu-max-prime=10000", "--time=0", "--events={work}", "run"],
    "stdin": None,
    "keep_output": True,
    "work": {"unit": "events", "start": 100, "step": 10, "limit": 10 * MEGABYTE},
    "metric": {"name": "throughput", "unit": "events/s", "better": "higher", "aggregate": "sum", "pattern": r"events per second:\s+([0-9.]+)"},
    "metrics": [
        {"name": "latency_p95", "unit": "ms", "better": "lower", "aggregate": "max", "pattern": r"95th percentile:\s+([0-9.]+)"},
    ],
    "package": "sysbench",
}

BUILT_IN = {workload["name"]: workload for workload in (GZIP, SYSBENCH_CPU)}

AGGREGATES = {"sum": sum, "max": max, "mean": lambda values: sum(values) / len(values)}


class WorkloadError(Exception):
    """A workload cannot be used on this host, or a sample of it has not worked; the text says why."""


def named(names):
    """The declarations of the named workloads, in the order given.

    Raises:
        WorkloadError: a name that is not built in, or an empty list.
    """
    if not names:
        raise WorkloadError("no workload is named: choose from %s" % ", ".join(sorted(BUILT_IN)))
    unknown = sorted(set(names) - set(BUILT_IN))
    if unknown:
        raise WorkloadError("there is no workload %s: choose from %s" % (", ".join(unknown), ", ".join(sorted(BUILT_IN))))
    return [BUILT_IN[name] for name in names]


def described(workload):
    """What a result keeps of a declaration: plain data without what only the runner needs."""
    kept = ("name", "title", "argv", "package")
    metric = {key: workload["metric"][key] for key in ("name", "unit", "better", "aggregate")}
    return dict({key: workload[key] for key in kept}, metric=metric["name"], unit=metric["unit"], better=metric["better"], aggregate=metric["aggregate"])


def missing(workload, path):
    """Why the workload's command is not there, or None.

    Args:
        path: the search path, as in the environment variable PATH.
    """
    command = workload["argv"][0]
    if any(os.access(os.path.join(folder, command), os.X_OK) for folder in path.split(os.pathsep) if folder):
        return None
    return "%s is not installed (package %s)" % (command, workload["package"])


def stream_block():
    """One megabyte of text-like bytes, the same on every host and in every run.

    Words of a skewed frequency compress about as text does; gzip -6 works on it neither at its best nor at its worst case.
    """
    source = random.Random(STREAM_SEED)
    words = [bytes(source.choices(b"abcdefghijklmnopqrstuvwxyz", k=source.randint(2, 11))) for _word in range(STREAM_WORDS)]
    weights = [1 / (rank + 1) for rank in range(STREAM_WORDS)]
    text = b" ".join(source.choices(words, weights, k=MEGABYTE // 4))
    return text[:MEGABYTE]


def write_stream(path, megabytes):
    """Write the fixed stream of a length in megabytes (10^6 bytes) to a file."""
    block = stream_block()
    with open(path, "wb") as stream:
        for _block in range(megabytes):
            stream.write(block)


def verify(workload, stdin):
    """See once that the workload does what it says, where its samples do not show it.

    gzip's output is thrown away while it is timed; here it is unpacked and held against what went in.

    Raises:
        WorkloadError: it does not.
    """
    if workload["stdin"] != "stream":
        return
    with open(stdin, "rb") as stream:
        packed = subprocess.run(workload["argv"], stdin=stream, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=300, check=False).stdout
    with open(stdin, "rb") as stream:
        wanted = hashlib.sha256(stream.read()).hexdigest()
    try:
        got = hashlib.sha256(gzip.decompress(packed)).hexdigest()
    except (OSError, EOFError) as error:
        raise WorkloadError("%s wrote what cannot be unpacked: %s" % (workload["argv"][0], error)) from error
    if got != wanted:
        raise WorkloadError("%s changed the stream: what it packed does not unpack to what went in" % workload["argv"][0])


def command(workload, work):
    """The argv of a workload for an amount of work."""
    return [word.replace("{work}", str(work)) for word in workload["argv"]]


def next_work(workload, work, seconds, wanted_seconds):
    """The amount of work that should take the wanted time, given that ``work`` took ``seconds`` on one worker alone."""
    limits = workload["work"]
    # A first run too short to time says only "more".
    factor = wanted_seconds / seconds if seconds > wanted_seconds / 50 else 50
    steps = max(1, math.floor(work * factor / limits["step"]))
    return min(steps * limits["step"], limits["limit"])


def read_metrics(workload, work, workers):
    """The metrics of a sample.

    Args:
        workload: its declaration.
        work: the amount of work of each worker.
        workers: as ``runner.run`` returns them.

    Returns:
        A pair: ``{name: {value, unit, better}}`` over all workers, the declared metric first; and the list of each worker's value of it.

    Raises:
        WorkloadError: a worker failed, or did not print its metric as a positive number.
    """
    for worker in workers:
        if worker["exit_status"] != 0:
            raise WorkloadError(_failure(workload, worker))
    metrics = {}
    per_worker = None
    for metric in [workload["metric"]] + workload["metrics"]:
        values = [_value(workload, metric, work, worker) for worker in workers]
        if per_worker is None:
            per_worker = values
        metrics[metric["name"]] = {"value": AGGREGATES[metric["aggregate"]](values), "unit": metric["unit"], "better": metric["better"]}
    return metrics, per_worker


def _value(workload, metric, work, worker):
    if metric.get("per_second"):
        return work / worker["wall_seconds"]
    found = re.search(metric["pattern"], worker["output"])
    try:
        value = float(found.group(1)) if found else math.nan
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise WorkloadError("%s printed no %s: %s" % (workload["argv"][0], metric["name"], _said(worker)))
    return value


def _failure(workload, worker):
    status = worker["exit_status"]
    ended = "was ended by signal %d" % -status if status is not None and status < 0 else "failed with exit status %s" % status
    return "%s on CPU %s %s: %s" % (workload["argv"][0], ",".join(map(str, worker["cpus"])) or "any", ended, _said(worker))


def _said(worker):
    lines = [line for line in (worker["output"] + "\n" + worker["errors"]).splitlines() if line.strip()]
    return " | ".join(lines[-LAST_LINES:])[:1000] or "it said nothing"
