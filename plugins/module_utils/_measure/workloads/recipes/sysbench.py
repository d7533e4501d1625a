# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""sysbench: events, transactions or operations in a second, by test."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import throughput
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe, response

RECIPE = Recipe(
    name="sysbench",
    number="events, transactions or operations per second",
    metrics=[
        throughput(
            "events/s",
            {"pattern": r"(?:events per second: +|transactions: +\d+ +\(|Total operations: \d+ \( *)([0-9.]+)"},
        ),
        response("latency_mean", "ms", {"pattern": r"Latency \(ms\):\s+min:\s+\S+\s+avg:\s+(\S+)"}),
    ],
    example=["sysbench", "memory", "--time={seconds}", "run"],
    tested="1.0.20",
)
