# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A fixed amount of integer work with pauses, at rising load of all cores and of all threads:
how CPU usage and work are related.
"""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    Workload,
    throughput,
)

# Sevenths, as in Arm's text.
LEVELS = [0.14, 0.29, 0.43, 0.57, 0.71, 0.86, 1.0]

WORKLOADS: "tuple[Workload, ...]" = (
    {
        **PLAIN,
        "name": "load_levels",
        "title": "integer work at rising load",
        "description": (
            "a fixed amount of integer work with pauses, at seven levels up to what each CPU does alone; on all"
            " cores and on all threads"
        ),
        "placements": ["one_per_core", "all_threads"],
        "source": "load_levels.c",
        "timed": ["seconds"],
        "argv": ["{program}", "{work}", "{alone}", "{parameter}"],
        "work": {"unit": "pieces", "start": 100, "step": 10, "limit": 1_000_000_000},
        "parameter": {"name": "load", "unit": "of each CPU", "values": LEVELS, "per_worker": True},
        "metrics": [
            throughput("pieces/s", {"json": ["pieces_per_second"]}),
            {"name": "wall_time", "unit": "s", "better": "lower", "aggregate": "mean", "json": ["seconds"]},
            {"name": "cpu_time", "unit": "s", "better": "lower", "aggregate": "mean_per_job", "clock": "cpu_seconds"},
        ],
    },
)
