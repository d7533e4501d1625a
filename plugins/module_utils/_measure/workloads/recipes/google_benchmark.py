# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Google Benchmark: how long C++ code takes."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe, of_operation

RECIPE = Recipe(
    name="google_benchmark",
    number="Time of the one benchmark",
    metrics=[
        of_operation(
            "time",
            "ns",
            {
                "file": "benchmark.json",
                "json": ["benchmarks", "*", "real_time"],
                "unit_at": ["benchmarks", "0", "time_unit"],
                "one": "choose one by --benchmark_filter, without repetitions",
            },
        )
    ],
    example=["/srv/benchmarks", "--benchmark_filter=^BM_sum$"],
    adds=["--benchmark_out=benchmark.json", "--benchmark_out_format=json"],
    tested="1.8.3, 1.9.1, 1.9.4",
)
