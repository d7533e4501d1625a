# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Record real pinned samples under real noise, to hold the verdicts against."""

import argparse
import concurrent.futures
import gzip
import itertools
import json
import multiprocessing
import os
import platform
import random
import tempfile
import time
from pathlib import Path

from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import runner
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import catalogue, inputs

KINDS = ("quiet", "co_runner", "bursty", "drift")
# The samples of one comparison: 14 blocks of ABBA.
WINDOW = 56
PER_MILLE = (0, 30, 50)
SEED = 20161103
DRIFT_SECONDS = 10.0


# One round: (name, per mille of additional work of each sample).
SERIES = [
    ("same", [0] * (6 * WINDOW)),
    ("abba 3 %", [0, 30, 30, 0] * (3 * WINDOW // 4)),
    ("before-then-after 3 %", [0] * (WINDOW // 2) + [30] * (WINDOW // 2)),
    ("abba 5 %", [0, 50, 50, 0] * (WINDOW // 4)),
]


def background(cpu, kind, seed):
    """Work and rest on one CPU until the recorder that started this process is gone."""
    os.sched_setaffinity(0, [cpu])
    if os.sched_getscheduler(0) == os.SCHED_FIFO:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
    owner, source = os.getppid(), random.Random(seed)
    while os.getppid() == owner:
        if kind == "co_runner":
            busy, idle = source.expovariate(1 / 0.0004), source.expovariate(1 / 0.008)
        elif kind == "bursty":
            busy, idle = source.uniform(0.02, 0.3), source.uniform(1.0, 6.0)
        else:
            share = 0.25 * abs((time.monotonic() / DRIFT_SECONDS) % 2 - 1)
            busy, idle = 0.005 * share, 0.005 * (1 - share)
        until = time.monotonic() + busy
        while time.monotonic() < until:
            sum(range(200))
        time.sleep(idle)


def start_co_runners(cpu, kind):
    count = {"quiet": 0, "co_runner": 1, "bursty": 2, "drift": 1}[kind]
    seeds = [SEED + 10 * cpu + number for number in range(count)]
    processes = [multiprocessing.Process(target=background, args=(cpu, kind, seed), daemon=True) for seed in seeds]
    for process in processes:
        process.start()
    return processes


def sample(cpu, stream):
    """Wall time in microseconds of one pinned gzip of a stream."""
    worker = runner.run(catalogue.BUILT_IN["gzip"]["argv"], [[cpu]], stdin=stream, keep_output=False)["workers"][0]
    if worker["exit_status"] != 0:
        raise SystemExit(f"gzip failed on CPU {cpu}: {worker['errors']}")
    return round(worker["wall_seconds"] * 1e6)


def write_streams(directory, cpu, sample_seconds):
    """Streams of the base length, chosen for samples of this length, and longer ones: per mille -> path."""
    path = os.path.join(directory, "probe")
    inputs.write_stream(path, 4)
    data = Path(path).read_bytes()
    fastest = min(sample(cpu, path) for _time in range(5)) / 1e6
    length = int(len(data) * sample_seconds / fastest)
    data = data * (2 + length // len(data))
    streams = {}
    for extra in PER_MILLE:
        streams[extra] = os.path.join(directory, str(extra))
        Path(streams[extra]).write_bytes(data[: length * (1000 + extra) // 1000])
    return streams


def record_cpu(cpu, seconds, streams, parts):
    """All kinds on one CPU: a list of {kind, series, cpu, seconds, microseconds}."""
    recorded = []
    for kind in KINDS:
        processes = start_co_runners(cpu, kind)
        try:
            until = time.monotonic() + seconds / len(KINDS)
            for name, extras in itertools.cycle(parts):
                begun = time.monotonic()
                if begun > until:
                    break
                times = [sample(cpu, streams[extra]) for extra in extras]
                of_series = {"kind": kind, "series": name, "cpu": cpu, "seconds": round(time.monotonic() - begun, 2)}
                recorded.append({**of_series, "microseconds": times})
        finally:
            for process in processes:
                process.terminate()
                process.join()
    return recorded


def record(seconds, count, sample_seconds, parts):
    """Record on the last CPUs that this process may use, all at the same time."""
    cpus = sorted(os.sched_getaffinity(0))[-count:]
    with tempfile.TemporaryDirectory() as directory, concurrent.futures.ProcessPoolExecutor(len(cpus)) as recorders:
        streams = write_streams(directory, cpus[0], sample_seconds)
        given = (itertools.repeat(one) for one in (seconds, streams, parts))
        recorded = list(recorders.map(record_cpu, cpus, *given))
    machine = {"kernel": platform.release(), "cpus": os.cpu_count(), "model": cpu_model()}
    return {"machine": machine, "series": [one for part in recorded for one in part]}


def cpu_model():
    """The model name of the first CPU that /proc/cpuinfo lists, or unknown."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def main():
    parser = argparse.ArgumentParser(description="Record pinned gzip samples under noise.")
    parser.add_argument("--seconds", type=float, default=560, help="how long to record, in all (default: %(default)s)")
    parser.add_argument("--cpus", type=int, default=2, help="on how many CPUs at the same time (default: %(default)s)")
    parser.add_argument(
        "--sample-seconds", type=float, default=0.05, help="how long a sample is (default: %(default)s)"
    )
    parser.add_argument("--equal", action="store_true", help="record equal work only")
    parser.add_argument(
        "--realtime", action="store_true", help="run before all else on these CPUs (SCHED_FIFO, as root)"
    )
    parser.add_argument("out", type=Path, help="where to write the samples (.json.gz)")
    arguments = parser.parse_args()
    if arguments.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    parts = [("same", [0] * WINDOW)] if arguments.equal else SERIES
    data = record(arguments.seconds, arguments.cpus, arguments.sample_seconds, parts)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(arguments.out, "wt", encoding="ascii") as out:
        json.dump(data, out, separators=(",", ":"))
    print(f"{sum(len(one['microseconds']) for one in data['series'])} samples in {arguments.out}")


if __name__ == "__main__":
    main()
