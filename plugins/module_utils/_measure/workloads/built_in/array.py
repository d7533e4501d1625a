# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An array that is larger than caches, read or written in memory order and across it."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    Workload,
    throughput,
)


def _array(order: str, access: str, suffix: str, title: str) -> Workload:
    return {
        **PLAIN,
        "name": f"array_{order}{suffix}",
        "title": f"100 MB array, {title}",
        "description": f"a separate 100 MB array, {title}",
        "source": "array.c",
        "timed": ["seconds"],
        "memory": 100,
        "argv": ["{program}", order, access, "{work}"],
        "work": {"unit": "passes", "start": 1, "step": 1, "limit": 100_000},
        "metrics": [
            throughput("MB/s", {"json": ["mb_per_second"]}),
            # Of the loop alone: allocating and filling the array takes longer than a few passes.
            {"name": "wall_time", "unit": "s", "better": "lower", "aggregate": "mean", "json": ["seconds"]},
        ],
    }


WORKLOADS: "tuple[Workload, ...]" = (
    _array("rows", "read", "", "read in memory order"),
    _array("rows", "write", "_write", "read and written in memory order"),
    _array("columns", "read", "", "read across memory order"),
    _array("columns", "write", "_write", "read and written across memory order"),
)
