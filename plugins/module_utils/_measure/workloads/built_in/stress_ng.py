# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""stress-ng: an arithmetic loop, alone and with co-runners."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    BOTH,
    PLAIN,
    SIBLING,
    Workload,
    throughput,
)

# The line of a stressor in the output of stress-ng: bogo ops, real, user and system time, bogo ops per second of real
# time and of CPU time.
THROUGHPUT = throughput("bogo ops/s", {"pattern": r"\bcpu\s+\d+\s+[0-9.]+\s+[0-9.]+\s+[0-9.]+\s+([0-9.]+)"})

LOOP: Workload = {
    **PLAIN,
    "name": "int_float_loop",
    "title": "arithmetic loop",
    "description": "integer and floating-point arithmetic in a loop",
    "argv": ["stress-ng", "--cpu", "1", "--cpu-method", "int64double", "--cpu-ops", "{work}", "--metrics-brief"],
    "work": {"unit": "bogo ops", "start": 50, "step": 10, "limit": 1_000_000_000},
    "metrics": [
        THROUGHPUT,
        {"name": "wall_time", "unit": "s", "better": "lower", "aggregate": "mean", "clock": "wall_seconds"},
        {"name": "cpu_time", "unit": "s", "better": "lower", "aggregate": "mean_per_job", "clock": "cpu_seconds"},
    ],
    "package": "stress-ng",
}

WITH_CO_RUNNERS: Workload = {
    **LOOP,
    "name": "int_float_loop_co_runners",
    "title": "arithmetic loop beside three on each CPU",
    "description": "the same with three busy processes as co-runners on each of its CPUs; one and two workers only",
    "co_runners": 3,
    "placements": ["single", "same_cpu", "siblings", "cores"],
}

NICED: Workload = {
    **WITH_CO_RUNNERS,
    "name": "int_float_loop_niced",
    "title": "arithmetic loop at nice -20 beside three on each CPU",
    "description": "the same at nice -20; needs root",
    "nice": -20,
}

BUSY_SIBLING: Workload = {
    **WITH_CO_RUNNERS,
    "name": "int_float_loop_busy_sibling",
    "title": "arithmetic loop beside a busy sibling",
    "description": "the same with three busy processes on the sibling of its CPU, where one is online; one worker only",
    "co_runners_on": SIBLING,
    "placements": ["single"],
}

BUSY_CORE_NICED: Workload = {
    **BUSY_SIBLING,
    "name": "int_float_loop_busy_core_niced",
    "title": "arithmetic loop at nice -20 on a busy core",
    "description": "the same at nice -20 with three busy processes on its CPU, too; needs root",
    "co_runners_on": BOTH,
    "nice": -20,
}

WORKLOADS: "tuple[Workload, ...]" = (LOOP, WITH_CO_RUNNERS, NICED, BUSY_SIBLING, BUSY_CORE_NICED)
