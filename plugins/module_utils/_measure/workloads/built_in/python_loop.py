# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A loop in Python, which each managed host has."""

import sys

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    Workload,
    throughput,
)

WORKLOADS: "tuple[Workload, ...]" = (
    {
        **PLAIN,
        "name": "python_loop",
        "title": "integer loop in Python",
        "description": "integer arithmetic in a loop of the Python that runs the modules; needs no package",
        "argv": [sys.executable or "python3", "-S", "-E", "-c", "n = 0\nfor i in range({work}):\n    n ^= 3 * i + 1"],
        "keep_output": False,
        "package": "python3",
        "work": {"unit": "loops", "start": 500_000, "step": 1000, "limit": 10**12},
        "metrics": [
            throughput("loops/s", {"rate": True}),
            {"name": "wall_time", "unit": "s", "better": "lower", "aggregate": "mean", "clock": "wall_seconds"},
            {"name": "cpu_time", "unit": "s", "better": "lower", "aggregate": "mean_per_job", "clock": "cpu_seconds"},
        ],
    },
)
