# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""All sources of a check, by the value of ``smt_compliance_source``."""

from __future__ import annotations

import importlib

from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources import names
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources.base import Source

SOURCES: dict[str, Source] = {
    name: importlib.import_module(f"{__name__.removesuffix('.registry')}.{name}").SOURCE for name in names.ALL
}
