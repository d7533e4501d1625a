# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""False sharing: the threads of one process write to one cache line."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    Workload,
    throughput,
)

WORKLOADS: "tuple[Workload, ...]" = (
    {
        **PLAIN,
        "name": "false_sharing",
        "title": "all workers write to one cache line",
        "description": (
            "threads of one process, each pinned, each incrementing a byte of its own; all these bytes are in one cache"
            " line"
        ),
        "multithreaded": True,
        "source": "false_sharing.c",
        "argv": ["{program}", "{cpus}", "{work}"],
        "work": {"unit": "increments", "start": 100_000, "step": 100_000, "limit": 100_000_000_000},
        "metrics": [throughput("M increments/s", {"json": ["million_per_second"]})],
    },
)
