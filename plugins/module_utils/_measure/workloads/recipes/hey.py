# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""hey: a load generator for HTTP."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import throughput
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe, response

RECIPE = Recipe(
    name="hey",
    number="Requests/sec",
    metrics=[
        throughput("requests/s", {"pattern": r"Requests/sec:\s+(\S+)"}),
        response("latency_mean", "ms", {"pattern": r"Average:\s+(\S+) secs"}),
    ],
    example=["hey", "-n", "20000", "-c", "8", "http://127.0.0.1:8080/"],
    tested="0.1.2, 0.1.3, 0.1.4",
)
