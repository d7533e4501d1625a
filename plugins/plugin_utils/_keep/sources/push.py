# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What this call found itself: it has asked each host."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.sources.base import (
    Asked,
    ComplianceAnswer,
    Source,
    SourceError,
)


def _read(asked: Asked) -> ComplianceAnswer:
    name = asked.options.results
    if not name:
        raise SourceError("results is not set: it names the variable in which the result of smt_status was registered")
    return ComplianceAnswer([(host, compliance.from_registered(asked.registered(name, host))) for host in asked.hosts])


SOURCE = Source(_read)
