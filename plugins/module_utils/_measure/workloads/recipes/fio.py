# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""fio: input and output operations."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import throughput
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.recipes.base import Recipe

RECIPE = Recipe(
    name="fio",
    number="IOPS of reads, writes and trims of all jobs",
    metrics=[
        throughput("IOPS", {"json": ["jobs", "*", "*", "iops"]}),
        {**throughput("B/s", {"json": ["jobs", "*", "*", "bw_bytes"]}), "name": "bandwidth"},
    ],
    example=["fio", "--name=r", "--filename=/srv/fio.data", "--size=1g", "--rw=randread", "--runtime={seconds}"],
    adds=["--output-format=json"],
    tested="3.33",
)
