# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Benchmarks of Go's own testing package."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe, of_operation

RECIPE = Recipe(
    name="go",
    number="ns/op of the one benchmark",
    metrics=[
        of_operation(
            "time",
            "ns/op",
            {
                "pattern": r"(?m)^Benchmark\S*\s+\d+\s+(\S+) ns/op",
                "one": "choose one, such as by -bench '^BenchmarkJoin$' and -count 1",
            },
        )
    ],
    example=["/srv/x.test", "-test.run", "^$", "-test.bench", "^BenchmarkJoin$", "-test.cpu", "1"],
    tested="1.21, 1.23, 1.26",
)
