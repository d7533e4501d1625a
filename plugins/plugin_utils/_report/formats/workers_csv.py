# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""workers.csv: one row per worker of each sample."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats import tables
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats.base import WORKER_COLUMNS, Format, Host


def _host(host: Host) -> str:
    safe = tables.safe_rows(host.workers)
    return host.workers_text if safe is host.workers else tables.csv_text(safe)


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
