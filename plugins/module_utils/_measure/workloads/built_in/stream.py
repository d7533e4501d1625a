# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory bandwidth: the triad of the STREAM benchmark."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    Workload,
    throughput,
)

WORKLOADS: "tuple[Workload, ...]" = (
    {
        **PLAIN,
        "name": "stream",
        "title": "memory bandwidth (triad)",
        "description": "memory bandwidth: the triad over three arrays of 64 MB",
        "source": "stream.c",
        "timed": ["seconds"],
        "memory": 200,
        "argv": ["{program}", "{work}"],
        "work": {"unit": "passes", "start": 1, "step": 1, "limit": 100_000},
        "metrics": [throughput("MB/s", {"json": ["mb_per_second"]})],
    },
)
