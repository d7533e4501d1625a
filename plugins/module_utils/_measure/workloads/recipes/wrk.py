# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""wrk: a load generator for HTTP."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import throughput
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe, response

RECIPE = Recipe(
    name="wrk",
    number="Requests/sec",
    metrics=[
        throughput("requests/s", {"pattern": r"(?m)^Requests/sec:\s+(\S+)"}),
        response("latency_mean", "ms", {"pattern": r"(?m)^ +Latency +([0-9.]+[a-z]+)"}),
        response("latency_p99", "ms", {"pattern": r"(?m)^ +99% +(\S+)"}),
    ],
    example=["wrk", "-t1", "-c8", "-d{seconds}", "http://127.0.0.1:8080/"],
    adds=["--latency"],
    tested="4.1.0",
)
