# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""ab: a load generator for HTTP, of the Apache web server."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import throughput
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe, response

RECIPE = Recipe(
    name="ab",
    number="Requests per second",
    metrics=[
        throughput("requests/s", {"pattern": r"Requests per second: +(\S+)"}),
        response("latency_mean", "ms", {"pattern": r"Time per request: +(\S+) \[ms\] \(mean\)"}),
        response("latency_median", "ms", {"pattern": r"(?m)^ +50% +(\d+)"}),
        response("latency_p99", "ms", {"pattern": r"(?m)^ +99% +(\d+)"}),
    ],
    example=["ab", "-q", "-n", "20000", "-c", "8", "http://127.0.0.1:8080/"],
    tested="2.3 of 2.4.71",
)
