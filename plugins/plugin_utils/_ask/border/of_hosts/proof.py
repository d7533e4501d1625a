# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What smt_proof_host answers."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.proof import recording
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import (
    ChangedAnswer,
    Count,
    CpuList,
    Part,
    Seconds,
    Text,
    at_most,
    between,
    text_of,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.schema import MAX_CPU_LIST, MAX_CPUS, ONE_LINE

Line = t.Annotated[str, text_of(4000, ONE_LINE)]
Sentences = t.Annotated[tuple[Text, ...], at_most(20_000)]
KindOfThing = t.Annotated[str, text_of(None, r"^[a-z]{1,20}$")]


class View(Part, frozen=True):
    """What one source says of the CPUs; ``reason`` where it says nothing of all or some of them."""

    source: Line
    reason: Line | None
    cores: t.Annotated[int, between(0, MAX_CPUS)] | None
    differences: t.Annotated[tuple[t.Annotated[str, text_of(2 * MAX_CPU_LIST, ONE_LINE)], ...], at_most(100)]

    @property
    def is_of_kernel(self) -> bool:
        """Whether it is a file of the kernel, and not a tool that reads such files."""
        return "/" in self.source


class Instrument(Part, frozen=True):
    """Something to measure with; ``cost`` is a share of a CPU."""

    name: Line
    reason: Line | None
    detail: Line
    cost: t.Annotated[int, between(0, 1_000_000)] | t.Annotated[float, between(0, 1e6)] | None


class Switch(Part, frozen=True):
    """Siblings offline, and the host as it was; seconds are None where it was refused, or in check mode."""

    refused: Text | None
    failed: bool
    conflicts: Count
    seconds_off: Seconds | None
    seconds_back: Seconds | None
    cpus: CpuList
    different: t.Annotated[dict[KindOfThing, Sentences], at_most(10)]
    not_restored: Sentences

    @property
    def is_as_before(self) -> bool:
        """Whether everything is as it was."""
        return not any(self.different.values()) and not self.not_restored


class ProofAnswer(ChangedAnswer, frozen=True):
    """The answer of smt_proof_host."""

    kernel: t.Annotated[str, text_of(200, ONE_LINE)]
    views: t.Annotated[tuple[View, ...], at_most(20)]
    instruments: t.Annotated[tuple[Instrument, ...], at_most(20)]
    switch: Switch | None
    recorded: t.Annotated[
        dict[t.Annotated[str, text_of(None, recording.PATHS)], t.Annotated[str, at_most(recording.MAX_CHARACTERS)]],
        at_most(200_000),
    ]
