# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What came of a host as a document that its owner may hand on: no names, no addresses, no serial numbers, and none of
the reasons that a host gives, in which units, users and paths are named.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary.version import COLLECTION_VERSION
from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof import recording
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import facts, parts, schema
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof import findings
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof.host_proof import (
    EFFECT,
    HostProof,
    Instrument,
    Measured,
    Switch,
    View,
)

SCHEMA_NAME, SCHEMA_VERSION = "threadwise.smt/proof", 1
# Facts that say what a machine is, and not whose.
FACTS = (
    *("hardware_class", "hypervisor", "supported", "control", "active", "sockets", "cores", "threads_per_core"),
    *("numbering", "source", "complete", "sibling_groups"),
)
# The numbers of a kernel's release. A builder can put anything behind them, such as the name of a company.
_RELEASE = re.compile(r"[0-9]+(?:[.-][0-9]+)*(?![0-9A-Za-z])")

_KNOWN = facts.SMT["properties"]
_TEXT = schema.text()
_SHARE: schema.Schema = {"type": "number"}
_SECONDS = schema.or_null(schema.SECONDS)
_COUNT = schema.count()
_MEASURED = schema.or_null(
    schema.whole(
        change=schema.about(_SHARE, "Change of the time of the same work, a share: 0.05 is 5 % more."),
        low=schema.about(schema.or_null(_SHARE), "Lower end of its interval, null where there is none."),
        high=schema.about(schema.or_null(_SHARE), "Upper end of its interval."),
        called=schema.about(schema.BOOL, "Whether the verdict was that there is a difference."),
        least=schema.about(
            schema.or_null(_SHARE),
            "The share by which two arms have to differ to be called different, null if unknown.",
        ),
        blocks=schema.about(_COUNT, "How many times both arms were measured."),
    )
)
SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "What the collection could and could not do on one host",
    "proof/HOST.json below the directory of a run of smt_proof.yml. It names neither the host nor its owner.",
    schema.whole(
        day=schema.about(schema.text(10, r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"), "Day of the proof, UTC."),
        collection_version=schema.about(schema.text(100), "Version of the collection."),
        kernel=schema.about(schema.text(100), "Numbers of the kernel's release; empty without any."),
        facts=schema.about(
            schema.strict((), **{name: _KNOWN[name] for name in FACTS if name in _KNOWN}),
            "Facts that say what the machine is, as in docs/facts.md.",
        ),
        findings=schema.about(
            schema.whole(
                **{
                    part: schema.about(schema.one_of(*findings.TITLES, None), f"What came of: {part}.")
                    for part in findings.PARTS
                }
            ),
            "What came of each part; null for what was not part of this proof.",
        ),
        views=schema.about(
            schema.items(
                schema.whole(
                    source=schema.about(_TEXT, "A file of the kernel, or a tool."),
                    answered=schema.about(schema.BOOL, "Whether it says anything."),
                    cores=schema.about(schema.or_null(_COUNT), "Number of cores that it knows."),
                    differences=schema.about(schema.items(_TEXT, 100), "In which it differs from the facts."),
                ),
                20,
            ),
            "What others say of CPUs.",
        ),
        siblings=schema.about(
            _KNOWN.get("measured", {}), "What was measured, as the fact `measured`; null if nothing was."
        ),
        switch=schema.about(
            schema.or_null(
                schema.whole(
                    refused=schema.about(schema.BOOL, "Whether nothing was switched, or nothing that stayed."),
                    failed=schema.about(schema.BOOL, "Whether that is because the kernel did not do it."),
                    conflicts=schema.about(_COUNT, "Number of affinity conflicts that refused it."),
                    seconds_off=schema.about(_SECONDS, "Seconds until siblings were offline."),
                    seconds_back=schema.about(_SECONDS, "Seconds until the host was back."),
                    cpus=schema.about(schema.CPU_LIST, "The siblings."),
                    different=schema.about(
                        schema.whole(
                            **{
                                kind: schema.about(
                                    schema.or_null(_COUNT), f"Number of {many}; null where none was compared."
                                )
                                for kind, (_single, many) in findings.KINDS.items()
                            }
                        ),
                        "Number of things that are not as before, by kind.",
                    ),
                    not_restored=schema.about(_COUNT, "Number of things that could not be restored."),
                )
            ),
            "Siblings offline, and back; null if it was not asked for.",
        ),
        instruments=schema.about(
            schema.items(
                schema.whole(
                    name=schema.about(_TEXT, "The instrument."),
                    usable=schema.about(schema.BOOL, "Whether it can be used here."),
                    detail=schema.about(_TEXT, "What it is here."),
                    cost=schema.about(schema.or_null(_SHARE), "Share of a CPU that it takes."),
                ),
                20,
            ),
            "What there is to measure with.",
        ),
        equal=schema.about(_MEASURED, "The host as it was found against itself; null if not measured."),
        planted=schema.about(_MEASURED, f"The same with {EFFECT:.0%} more work; null if not measured."),
        recorded=schema.about(
            schema.mapping(schema.text(recording.MAX_CHARACTERS), 200_000, recording.PATHS),
            "Path below the root -> text of files of the kernel about CPUs, and of what says which kind of machine it"
            f" is; `{recording.SAME_AS}PATH` stands for the text of another one. Empty where they are more than"
            f" {recording.MAX_CHARACTERS:,} characters.",
        ),
    ),
)


def made(proof: HostProof, day: str) -> dict[str, t.Any]:
    """Return the document of a host that was looked at, which matches :data:`SCHEMA`.

    Args:
        proof: of the host.
        day: ``YYYY-MM-DD``, UTC.
    """
    states: dict[str, str | None] = dict.fromkeys(findings.PARTS)
    states.update((finding.part, finding.state) for finding in findings.of(proof))
    return {
        "schema": SCHEMA_NAME,
        "schema_version": SCHEMA_VERSION,
        "day": day,
        "collection_version": COLLECTION_VERSION,
        "kernel": match.group() if (match := _RELEASE.match(proof.kernel)) else "",
        "facts": {name: parts.plain(getattr(proof.facts, name)) for name in FACTS} if proof.facts else {},
        "findings": states,
        "views": [_view(view) for view in proof.views],
        "siblings": parts.plain(proof.measured),
        "switch": proof.switch and _switch(proof.switch),
        "instruments": [_instrument(instrument) for instrument in proof.instruments],
        "equal": proof.equal and _measured(proof.equal),
        "planted": proof.planted and _measured(proof.planted),
        "recorded": dict(proof.recorded),
    }


def _view(view: View) -> dict[str, t.Any]:
    return {
        "source": view.source,
        "answered": view.reason is None or view.cores is not None,
        "cores": view.cores,
        "differences": list(view.differences),
    }


def _switch(switch: Switch) -> dict[str, t.Any]:
    return {
        "refused": switch.refused is not None,
        "failed": switch.failed,
        "conflicts": switch.conflicts,
        "seconds_off": switch.seconds_off,
        "seconds_back": switch.seconds_back,
        "cpus": switch.cpus,
        "different": {
            kind: len(switch.different[kind]) if kind in switch.different else None for kind in findings.KINDS
        },
        "not_restored": len(switch.not_restored),
    }


def _instrument(instrument: Instrument) -> dict[str, t.Any]:
    return {
        "name": instrument.name,
        "usable": instrument.reason is None,
        "detail": instrument.detail,
        "cost": instrument.cost,
    }


def _measured(measured: Measured) -> dict[str, t.Any]:
    change = measured.change
    return {
        "change": change.value,
        "low": change.low,
        "high": change.high,
        "called": measured.is_called,
        "least": measured.least,
        "blocks": measured.blocks,
    }
