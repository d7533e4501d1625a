# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All sources of a check, by the value of ``smt_compliance_source``."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._compliance_sources import files, prometheus, push
from ansible_collections.threadwise.smt.plugins.plugin_utils._compliance_sources.base import Source

SOURCES: dict[str, Source] = {one.name: one for one in (push.SOURCE, files.SOURCE, prometheus.SOURCE)}
