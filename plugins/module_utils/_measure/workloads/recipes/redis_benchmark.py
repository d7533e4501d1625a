# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""redis-benchmark: requests to Redis."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import throughput
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe

RECIPE = Recipe(
    name="redis_benchmark",
    number="requests per second of the one test",
    metrics=[
        throughput(
            "requests/s",
            {
                "pattern": r"(?:throughput summary|(?m:^|\r)[A-Z][^\r\n:]*): ([0-9.]+) requests per second",
                "one": "choose one by -t, such as -t set",
            },
        )
    ],
    example=["redis-benchmark", "-n", "100000", "-t", "set"],
    tested="7.0.15",
)
