# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""workers.csv: one row per worker of each sample."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import tables
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats.base import (
    WORKER_COLUMNS,
    Format,
    HostReport,
)


def _host(host: HostReport) -> str:
    texts = {host.result.run, host.result.host, host.result.facts.hardware_class or ""}
    for workload in host.result.plan.workloads or ():
        texts.update((workload.name, workload.primary, workload.metrics[workload.primary].unit))
    for sample in host.result.samples:
        texts.update((sample.placement, sample.arm), (worker.cpus for worker in sample.workers or ()))
    return host.workers_with(tables.cell) if any(map(tables.is_formula, texts)) else host.workers_text


FORMAT = Format(
    name="workers.csv",
    about=(
        "a spreadsheet: a row for each worker of each sample, with its CPUs, value of the primary metric, wall and CPU"
        " seconds, context switches, and frequency and usage of its CPU"
    ),
    sign=tables.SIGN,
    head=tables.csv_text([WORKER_COLUMNS]),
    host=_host,
)
