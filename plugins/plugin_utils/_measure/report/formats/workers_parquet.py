# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""workers.parquet: the rows of workers.csv."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import parquet
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats.base import WORKER_COLUMNS, Format

NAME = "workers.parquet"
FORMAT = Format(
    name=NAME,
    about="questions in SQL: a row for each worker of each sample, as `samples.parquet`",
    sign=parquet.SIGN,
    host=lambda host: host.workers_text,
    missing_library=parquet.MISSING_LIBRARY,
    finish=parquet.table(NAME, WORKER_COLUMNS),
)
