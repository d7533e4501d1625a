# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""stress-ng with one stressor."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import throughput
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe

RECIPE = Recipe(
    name="stress_ng",
    number="bogo ops/s of real time, of the one stressor",
    metrics=[
        throughput(
            "bogo ops/s",
            {
                "pattern": r"(?m)\] \S+ +\d+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +([0-9.]+) +[0-9.]+",
                "one": "choose one stressor",
            },
        )
    ],
    example=["stress-ng", "--cpu", "1", "--cpu-method", "int64", "--timeout", "{seconds}"],
    adds=["--metrics-brief"],
    tested="0.15.06",
)
