# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""pyperf: how long Python code takes."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import (
    SECONDS,
    Recipe,
    of_operation,
)

RECIPE = Recipe(
    name="pyperf",
    number="mean of all values of the one benchmark",
    metrics=[
        of_operation(
            "mean",
            SECONDS,
            {
                "file": "pyperf.json",
                "json": ["benchmarks", "*", "runs", "*", "values", "*"],
                "mean": True,
                "one": "let the script have one benchmark",
            },
        )
    ],
    example=["python3", "-m", "pyperf", "timeit", "-p", "3", "sum(range(1000))"],
    adds=["-o", "pyperf.json"],
    tested="2.3, 2.6, 2.9",
)
