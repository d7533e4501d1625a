# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""pgbench: transactions of PostgreSQL."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import throughput
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe, response

RECIPE = Recipe(
    name="pgbench",
    number="tps, without the time of connecting",
    metrics=[
        throughput("transactions/s", {"pattern": r"(?m)^tps = (\S+)"}),
        response("latency_mean", "ms", {"pattern": r"(?m)^latency average = (\S+) ms"}),
    ],
    example=["pgbench", "-c", "8", "-j", "2", "-T", "{seconds}", "bench"],
    tested="15",
)
