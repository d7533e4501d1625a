# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""comparisons.csv: one row per comparison."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import tables
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats.base import Format, HostReport
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.summary import Summary

COMPARISON_COLUMNS = (
    "run",
    "host",
    "hardware_class",
    "workload",
    "metric",
    "primary",
    "unit",
    "better",
    "kind",
    "effect",
    "placement",
    "parameter",
    "baseline_arm",
    "baseline_placement",
    "candidate_arm",
    "candidate_placement",
    "baseline_value",
    "candidate_value",
    "change",
    "change_low",
    "change_high",
    "ratio",
    "ci_low",
    "ci_high",
    "confidence",
    "n",
    "dropped_blocks",
    "margin",
    "minimum_detectable",
    "verdict",
    "p_adjusted",
    "method",
)


def _host(host: HostReport) -> str:
    return tables.csv_text(
        tables.safe_rows([_row(host.summary, comparison) for comparison in host.summary.analysis.comparisons])
    )


def _row(summary: Summary, comparison: Comparison) -> list[t.Any]:
    sides = {
        f"{name}_{key}": getattr(side, key)
        for name, side in (("baseline", comparison.baseline), ("candidate", comparison.candidate))
        for key in ("arm", "placement")
    }
    of_run = {"run": summary.result.run, "host": summary.result.host, "hardware_class": summary.hardware_class}
    values = {**of_run, **comparison.described(), **sides}
    return [values.get(column) for column in COMPARISON_COLUMNS]


FORMAT = Format(
    name="comparisons.csv",
    about="a spreadsheet: a row for each comparison",
    sign=tables.SIGN,
    head=tables.csv_text([COMPARISON_COLUMNS]),
    host=_host,
)
