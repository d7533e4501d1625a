# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Random reads from memory whose pages may be huge: what address translation costs."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    Workload,
    throughput,
)

# In MiB: within reach of a TLB with pages of 4 KiB, beyond it, and so far beyond that nearly each read has to look up
# its page in the page table.
WORKING_SETS: "list[float]" = [4, 64, 256]


def _random_access(pages: str, suffix: str, title: str, description: str, huge_memory: int) -> Workload:
    return {
        **PLAIN,
        "name": f"random_access{suffix}",
        "title": f"random reads, {title}",
        "description": f"reads at random places of a working set of 4, 64 and 256 MiB, {description}",
        "source": "random_access.c",
        "timed": ["seconds"],
        "memory": 271,
        "huge_memory": huge_memory,
        "argv": ["{program}", pages, "{parameter}", "{work}"],
        "work": {"unit": "reads", "start": 100_000, "step": 100_000, "limit": 100_000_000_000},
        "parameter": {"name": "working_set", "unit": "MiB", "values": WORKING_SETS},
        "metrics": [
            throughput("M reads/s", {"json": ["million_per_second"]}),
            {"name": "read_time", "unit": "ns", "better": "lower", "aggregate": "mean", "json": ["cpu_ns"]},
        ],
    }


WORKLOADS: "tuple[Workload, ...]" = (
    _random_access(
        "transparent", "", "huge pages where transparent ones are allowed", "whose pages the kernel may make huge", 0
    ),
    _random_access(
        "reserved",
        "_reserved",
        "reserved huge pages where enough are free",
        "in huge pages that are reserved; in small ones in an arm that reserves too few",
        256,
    ),
)
