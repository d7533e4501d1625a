# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check for people: one HTML page."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check, Format
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import (
    compliance,
    compliance_report,
    remediation,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.compliance_report import Judged
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import BY_ATTENTION, Status
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import frame


def page(check: Check) -> str:
    """Render the results as one self-contained HTML page."""
    judged, call = check.judged, check.call
    remedies = {host: remediation.text(host, result, call) for host, result in judged}
    seen = {host: look for host, look in check.looks.items() if look}
    return frame.render(
        "compliance.html.j2",
        at=check.written,
        judged=compliance_report.ordered(judged),
        call=call,
        how=compliance_report.how,
        remedies=remedies if any(remedies.values()) else {},
        classes=_classes(judged),
        statuses=BY_ATTENTION,
        words=Status,
        choices=compliance_report.by_attention(judged),
        # A column that is empty on all hosts takes the room of the reason.
        aspects=[name for name in compliance.ASPECTS if any(result.aspects[name] for _host, result in judged)],
        decided=any(result.decided_by for _host, result in judged),
        sentence=compliance_report.sentence(judged, check.left_out),
        left_out=check.left_out,
        strangers=check.strangers,
        notes=check.notes,
        looks=seen,
        unseen=[(host, cores_in_use.unknown(look)) for host, look in sorted(seen.items()) if not look.use],
        room_columns=cores_in_use.ROOM_COLUMNS,
        room_cells=cores_in_use.cells,
    )


def _classes(judged: t.Sequence[Judged]) -> list[tuple[str, dict[str, int]]]:
    """Count the hosts by hardware class, the largest class first."""
    by_class: dict[str, list[Judged]] = {}
    for entry in judged:
        by_class.setdefault(entry[1].hardware_class or "unknown", []).append(entry)
    return sorted(
        ((name, compliance_report.counts(hosts)) for name, hosts in by_class.items()),
        key=lambda pair: (-sum(pair[1].values()), pair[0]),
    )


FORMAT = Format("page", places.PAGE, page)
