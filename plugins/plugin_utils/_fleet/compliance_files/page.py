# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check for people: one HTML page."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files.base import Check, Format


def _text(check: Check) -> str:
    return compliance_report.page(check.judged, check.at, check.left_out, check.call, check.looks)


FORMAT = Format("page", places.PAGE, _text)
