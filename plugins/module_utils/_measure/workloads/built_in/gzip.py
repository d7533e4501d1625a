# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""gzip, which compresses the fixed stream."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    Workload,
    throughput,
)

WORKLOADS: "tuple[Workload, ...]" = (
    {
        **PLAIN,
        "name": "gzip",
        "title": "gzip of a fixed stream",
        "description": (
            "`gzip -6` of a fixed stream, the same bytes on every host; a megabyte is packed, unpacked and compared"
            " once before the blocks"
        ),
        "argv": ["gzip", "-6", "-c"],
        "reads_stream": True,
        "unpack": ["gzip", "-d", "-c"],
        "keep_output": False,
        "work": {"unit": "MB", "start": 2, "step": 1, "limit": 2000},
        "metrics": [throughput("MB/s", {"rate": True})],
        "package": "gzip",
    },
)
