# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check for node_exporter's textfile collector. A call that checks nothing leaves it: each metric has its time."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files.base import Check, Format


def _text(check: Check) -> str:
    return compliance_report.metrics(check.judged, check.at, check.left_out, check.earlier)


FORMAT = Format("metrics", places.METRICS, _text, is_kept=True)
