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
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, schema
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts, Measured as Siblings
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_hosts.proof import Switch, View
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import (
    Count,
    Part,
    Seconds,
    Text,
    about,
    at_most,
    text_of,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof import findings
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.proof.host_proof import (
    EFFECT,
    HostProof,
    Measured,
)

SCHEMA_NAME: t.Final = "threadwise.smt/proof"
SCHEMA_VERSION: t.Final = 1
# Facts that say what a machine is, and not whose.
FACTS = (
    *("hardware_class", "hypervisor", "supported", "control", "active", "sockets", "cores", "threads_per_core"),
    *("numbering", "source", "complete", "sibling_groups"),
)
# The numbers of a kernel's release. A builder can put anything behind them, such as the name of a company.
_RELEASE = re.compile(r"[0-9]+(?:[.-][0-9]+)*(?![0-9A-Za-z])")

_KNOWN = parts.schema_of(Facts)["properties"]
_FACTS = schema.strict((), **{name: _KNOWN[name] for name in FACTS if name in _KNOWN})
_FINDINGS = schema.whole(
    **{part: schema.about(schema.one_of(*findings.TITLES, None), f"What came of: {part}.") for part in findings.PARTS}
)
_COUNT: schema.Schema = {"type": "integer", "minimum": 0, "maximum": 1_000_000_000}
_DIFFERENT = schema.whole(
    **{
        kind: schema.about(schema.or_null(_COUNT), f"Number of {many}; null where none was compared.")
        for kind, (_single, many) in findings.KINDS.items()
    }
)


class MeasuredArm(Part, frozen=True):
    """One arm against the host as it was found."""

    change: t.Annotated[float, about("Change of the time of the same work, a share: 0.05 is 5 % more.")]
    low: t.Annotated[float | None, about("Lower end of its interval, null where there is none.")]
    high: t.Annotated[float | None, about("Upper end of its interval.")]
    called: t.Annotated[bool, about("Whether the verdict was that there is a difference.")]
    least: t.Annotated[
        float | None, about("The share by which two arms have to differ to be called different, null if unknown.")
    ]
    blocks: t.Annotated[Count, about("How many times both arms were measured.")]


class ViewOfCpus(Part, frozen=True):
    """What a source says."""

    source: t.Annotated[Text, about("A file of the kernel, or a tool.")]
    answered: t.Annotated[bool, about("Whether it says anything.")]
    cores: t.Annotated[Count | None, about("Number of cores that it knows.")]
    differences: t.Annotated[tuple[Text, ...], at_most(100), about("In which it differs from the facts.")]


class SwitchAndBack(Part, frozen=True):
    """Siblings offline, and back."""

    refused: t.Annotated[bool, about("Whether nothing was switched, or nothing that stayed.")]
    failed: t.Annotated[bool, about("Whether that is because the kernel did not do it.")]
    conflicts: t.Annotated[Count, about("Number of affinity conflicts that refused it.")]
    seconds_off: t.Annotated[Seconds | None, about("Seconds until siblings were offline.")]
    seconds_back: t.Annotated[Seconds | None, about("Seconds until the host was back.")]
    cpus: t.Annotated[parts.CpuList, about("The siblings.")]
    different: t.Annotated[
        dict[str, int | None],
        parts.shown(**_DIFFERENT),
        about("Number of things that are not as before, by kind."),
    ]
    not_restored: t.Annotated[Count, about("Number of things that could not be restored.")]


class InstrumentHere(Part, frozen=True):
    """Something to measure with."""

    name: t.Annotated[Text, about("The instrument.")]
    usable: t.Annotated[bool, about("Whether it can be used here.")]
    detail: t.Annotated[Text, about("What it is here.")]
    cost: t.Annotated[float | None, about("Share of a CPU that it takes.")]


class ProofFile(Part, frozen=True):
    """The file of a proof."""

    schema: t.Literal["threadwise.smt/proof"]
    schema_version: t.Literal[1]
    day: t.Annotated[str, text_of(10, schema.DAY["pattern"]), about("Day of the proof, UTC.")]
    collection_version: t.Annotated[str, at_most(100), about("Version of the collection.")]
    kernel: t.Annotated[str, at_most(100), about("Numbers of the kernel's release; empty without any.")]
    facts: t.Annotated[
        dict[str, t.Any],
        parts.shown(**_FACTS),
        about("Facts that say what the machine is, as in docs/facts.md."),
    ]
    findings: t.Annotated[
        dict[str, str | None],
        parts.shown(**_FINDINGS),
        about("What came of each part; null for what was not part of this proof."),
    ]
    views: t.Annotated[tuple[ViewOfCpus, ...], at_most(20), about("What others say of CPUs.")]
    siblings: t.Annotated[Siblings | None, about("What was measured, as the fact `measured`; null if nothing was.")]
    switch: t.Annotated[SwitchAndBack | None, about("Siblings offline, and back; null if it was not asked for.")]
    instruments: t.Annotated[tuple[InstrumentHere, ...], at_most(20), about("What there is to measure with.")]
    equal: t.Annotated[MeasuredArm | None, about("The host as it was found against itself; null if not measured.")]
    planted: t.Annotated[MeasuredArm | None, about(f"The same with {EFFECT:.0%} more work; null if not measured.")]
    recorded: t.Annotated[
        dict[t.Annotated[str, text_of(None, recording.PATHS)], t.Annotated[str, at_most(recording.MAX_CHARACTERS)]],
        at_most(200_000),
        about(
            "Path below the root -> text of files of the kernel about CPUs, and of what says which kind of machine it"
            f" is; `{recording.SAME_AS}PATH` stands for the text of another one. Empty where they are more than"
            f" {recording.MAX_CHARACTERS:,} characters."
        ),
    ]


SCHEMA = schema.published(
    SCHEMA_NAME,
    SCHEMA_VERSION,
    "What the collection could and could not do on one host",
    "proof/HOST.json below the directory of a run of smt_proof.yml. It names neither the host nor its owner.",
    parts.schema_of(ProofFile),
)


def made(proof: HostProof, day: str) -> dict[str, t.Any]:
    """Return the document of a host that was looked at, which matches :data:`SCHEMA`.

    Args:
        proof: of the host.
        day: ``YYYY-MM-DD``, UTC.
    """
    states: dict[str, str | None] = dict.fromkeys(findings.PARTS)
    states.update((finding.part, finding.state) for finding in findings.of(proof))
    plain: dict[str, t.Any] = parts.plain(
        ProofFile(
            SCHEMA_NAME,
            SCHEMA_VERSION,
            day=day,
            collection_version=COLLECTION_VERSION,
            kernel=match.group() if (match := _RELEASE.match(proof.kernel)) else "",
            facts={name: getattr(proof.facts, name) for name in FACTS} if proof.facts else {},
            findings=states,
            views=tuple(map(_view, proof.views)),
            siblings=proof.measured,
            switch=None if proof.switch is None else _switch(proof.switch),
            instruments=tuple(
                InstrumentHere(instrument.name, instrument.reason is None, instrument.detail, instrument.cost)
                for instrument in proof.instruments
            ),
            equal=None if proof.equal is None else _measured(proof.equal),
            planted=None if proof.planted is None else _measured(proof.planted),
            recorded=dict(proof.recorded),
        )
    )
    return plain


def _view(view: View) -> ViewOfCpus:
    return ViewOfCpus(view.source, view.reason is None or view.cores is not None, view.cores, view.differences)


def _switch(switch: Switch) -> SwitchAndBack:
    return SwitchAndBack(
        switch.refused is not None,
        switch.failed,
        switch.conflicts,
        switch.seconds_off,
        switch.seconds_back,
        switch.cpus,
        different={kind: len(switch.different[kind]) if kind in switch.different else None for kind in findings.KINDS},
        not_restored=len(switch.not_restored),
    )


def _measured(measured: Measured) -> MeasuredArm:
    change = measured.change
    return MeasuredArm(change.value, change.low, change.high, measured.is_called, measured.least, measured.blocks)
