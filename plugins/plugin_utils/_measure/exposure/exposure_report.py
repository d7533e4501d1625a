# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the cores of many hosts are used, as a page and a document, with its published schema."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import schema, usage
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure.cores_in_use import HostLook
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import frame, wording

SCHEMA_NAME, SCHEMA_VERSION = "threadwise.smt/exposure", 1
# The fields of an answer that the document has as they are.
KEPT = (
    *("method", "use_reason", "source", "seconds", "windows", "watched_seconds", "cut", "switches_a_second"),
    *("use", "cores", "units", "pairs"),
)
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "How the cores of hosts are used, and who shares them",
    "The file beside smt_exposure.html on the controller, .json.",
    schema.strict(
        ("at", "summary", "hosts"),
        at=schema.about(schema.MOMENT, "Time of the looks, UTC."),
        summary=schema.about(_TEXT, "What was found, in one sentence."),
        hosts=schema.about(
            {
                "type": "array",
                "items": schema.whole(
                    host=schema.about(_TEXT, "Name of the host in the inventory."),
                    reason=schema.about(schema.or_null(_TEXT), "Why there is no look; null where there is one."),
                    yields=schema.about(
                        _TEXTS,
                        "Workloads by which it was measured what second threads give; none where that is a guess.",
                    ),
                    open_to=schema.about(
                        _TEXTS, "Vulnerabilities that the kernel calls open because siblings are online."
                    ),
                    sentences=schema.about(_TEXTS, "What the look found, the most important first."),
                    **{name: usage.where_looked(name) for name in KEPT},
                ),
            },
            "The hosts of the play: those without a look, then those with the least room.",
        ),
    ),
)


def document(hosts: t.Sequence[HostLook], at: str) -> dict[str, t.Any]:
    """Return all looks as plain data that match :data:`SCHEMA`.

    Args:
        hosts: of the play.
        at: when, in UTC.
    """
    return {
        "schema": SCHEMA_NAME,
        "schema_version": SCHEMA_VERSION,
        "at": at,
        "summary": cores_in_use.summary(hosts),
        "hosts": [
            {
                "host": host.name,
                "reason": host.reason,
                "yields": list(host.yields),
                "open_to": list(host.open_to),
                "sentences": cores_in_use.sentences(host),
                **{name: cores_in_use.answered(host, name) for name in KEPT},
            }
            for host in cores_in_use.ordered(hosts)
        ],
    }


def page(hosts: t.Sequence[HostLook], at: str) -> str:
    """Render the looks as one self-contained HTML page.

    Args:
        hosts: of the play.
        at: when, as text.
    """
    return frame.render(
        "exposure.html.j2",
        at=at,
        hosts=[host for host in cores_in_use.ordered(hosts) if host.use],
        missing=[host for host in hosts if host.use is None],
        summary=cores_in_use.summary(hosts),
        sentences=cores_in_use.sentences,
        span=wording.span,
        room=wording.room,
        differs=wording.room_differs,
        unit=cores_in_use.unit_title,
        unknown=cores_in_use.unknown,
        cpus=cpulist.render,
    )
