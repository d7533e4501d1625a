# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""sysbench: primes, and threads that contend for one lock."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    Workload,
    latency,
    throughput,
)

# sysbench --histogram prints one line for each bucket with events, such as "0.888 |****   17": milliseconds, bar,
# number of events.
BUCKET = r"(?m)^\s*([0-9.]+) \|\**\s+(\d+)$"
LATENCIES = [
    latency("mean", {"pattern": r"avg:\s+([0-9.]+)"}),
    latency("median", {"pattern": BUCKET, "quantile": 0.5}),
    latency("p99", {"pattern": BUCKET, "quantile": 0.99}),
]

WORKLOADS: "tuple[Workload, ...]" = (
    {
        **PLAIN,
        "name": "sysbench_cpu",
        "title": "sysbench cpu (primes to 10000)",
        "description": "primes to 10000, a fixed number of events",
        "argv": [
            "sysbench",
            "cpu",
            "--threads=1",
            "--cpu-max-prime=10000",
            "--time=0",
            "--histogram",
            "--events={work}",
            "run",
        ],
        "work": {"unit": "events", "start": 100, "step": 10, "limit": 10_000_000},
        "metrics": [throughput("events/s", {"pattern": r"events per second:\s+([0-9.]+)"}), *LATENCIES],
        "package": "sysbench",
    },
    {
        **PLAIN,
        "name": "sysbench_threads",
        "title": "sysbench threads (contention for one lock)",
        "description": "the workers are threads of one process that contend for one lock",
        "multithreaded": True,
        "argv": [
            "sysbench",
            "threads",
            "--threads={threads}",
            "--thread-locks=1",
            "--time=0",
            "--histogram",
            "--events={total}",
            "run",
        ],
        "work": {"unit": "events", "start": 100, "step": 10, "limit": 1_000_000},
        "metrics": [throughput("events/s", {"rate": True}), *LATENCIES],
        "package": "sysbench",
    },
)
