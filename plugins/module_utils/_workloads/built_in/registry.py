# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
# Written by tools/registries.py: do not edit.
"""The WORKLOADS of each file of this folder."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.module_utils._workloads.built_in import (
    array,
    false_sharing,
    gzip,
    memory_pages,
    oltp,
    stream,
    stress_ng,
    sysbench,
)

WORKLOADS = (
    array.WORKLOADS,
    false_sharing.WORKLOADS,
    gzip.WORKLOADS,
    memory_pages.WORKLOADS,
    oltp.WORKLOADS,
    stream.WORKLOADS,
    stress_ng.WORKLOADS,
    sysbench.WORKLOADS,
)
