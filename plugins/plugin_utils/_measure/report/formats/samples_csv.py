# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""results.csv: one row per metric of each sample."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import tables
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats.base import (
    SAMPLE_COLUMNS,
    Format,
    HostReport,
)


def _host(host: HostReport) -> str:
    safe = tables.safe_rows(host.samples)
    return host.samples_text if safe is host.samples else tables.csv_text(safe)


FORMAT = Format(
    name="results.csv",
    about="a spreadsheet: a row for each sample",
    sign=tables.SIGN,
    head=tables.csv_text([SAMPLE_COLUMNS]),
    host=_host,
)
