# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory that is allocated page by page: the cost of a memory policy."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    Workload,
    throughput,
)

WORKLOADS: "tuple[Workload, ...]" = (
    {
        **PLAIN,
        "name": "memory_pages",
        "title": "memory allocated page by page and copied",
        "description": "the cost of a memory policy: 16 MB are allocated page by page, copied and freed",
        "source": "memory_pages.c",
        "timed": ["seconds"],
        "memory": 16,
        "argv": ["{program}", "{work}"],
        "work": {"unit": "passes", "start": 1, "step": 1, "limit": 100_000},
        "metrics": [
            throughput("MB/s", {"json": ["mb_per_second"]}),
            {
                "name": "page_faults",
                "unit": "faults/s",
                "better": "higher",
                "aggregate": "sum",
                "json": ["faults_per_second"],
            },
        ],
    },
)
