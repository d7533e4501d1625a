# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""JMH: benchmarks of Java code, by their throughput."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import throughput
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe

RECIPE = Recipe(
    name="jmh",
    number="score of the one benchmark, in mode thrpt",
    metrics=[
        throughput(
            "ops/s",
            {
                "file": "jmh.json",
                "json": ["*", "primaryMetric", "score"],
                "unit_at": ["0", "primaryMetric", "scoreUnit"],
                "one": "choose one by its name, with one value of each parameter",
            },
        )
    ],
    example=["java", "-jar", "/srv/benchmarks.jar", "Sum.sum", "-f", "1", "-wi", "2", "-i", "3"],
    adds=["-rff", "jmh.json", "-rf", "json", "-bm", "thrpt", "-tu", "s"],
    tested="1.21, 1.34, 1.37",
)
