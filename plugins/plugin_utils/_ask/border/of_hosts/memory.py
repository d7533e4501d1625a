# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The facts ``smt_memory`` of a host, and what smt_memory answers."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import policy as memory_policy
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Argument, Integer, Sentences, Word
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.parts import (
    Part,
    Sentence,
    at_most,
    between,
    text_of,
)

Sysctl = t.Annotated[str, text_of(None, r"^[a-z_.]{1,100}$")]
Overcommit = t.Literal["heuristic", "always", "strict"]


class Headroom(Part, frozen=True, kw_only=True):
    """Memory that can still be allocated, in bytes."""

    bytes: Integer | None
    unprivileged_bytes: Integer | None
    largest_request_bytes: Integer | None


class MemoryPolicy(Part, frozen=True, kw_only=True):
    """The memory policy of a host, by the options of its sysctls."""

    __annotations__.update(
        {
            sysctl.option: (Integer if sysctl.limits else t.Literal[sysctl.words]) | None
            for sysctl in memory_policy.SYSCTLS.values()
        }
    )
    commit_limit_bytes: Integer | None
    headroom: Headroom


class ProtectedUnit(Part, frozen=True, kw_only=True):
    """A unit that the OOM killer spares."""

    unit: t.Annotated[str, at_most(300)]
    oom_score_adj: t.Annotated[int, between(-1000, 1000)]


class WantedMemory(Part, frozen=True, kw_only=True):
    """What a memory policy would change."""

    overcommit: Overcommit | None
    commit_limit_bytes: Integer | None
    headroom: Headroom
    refusal: Sentence | None
    sysctls: t.Annotated[dict[Sysctl, Integer], at_most(50)]
    differences: Sentences
    boot_differences: Sentences
    boot_blocked_by: Sentence | None
    overrides: Sentences


class Memory(MemoryPolicy, frozen=True, kw_only=True):
    """``ansible_facts['smt_memory']`` of a host; ``wanted`` is None where only services are protected."""

    total_bytes: Integer | None
    swap_bytes: Integer | None
    hugetlb_bytes: Integer | None
    committed_bytes: Integer | None
    oom_kills: Integer | None
    protected_units: t.Annotated[tuple[ProtectedUnit, ...], at_most(20_000)]
    wanted: WantedMemory | None
    protect_differences: Sentences | None
    problems: Sentences


class Setting(Part, frozen=True, kw_only=True):
    """A sysctl of the policy."""

    name: Word
    value: Integer | None
    at_boot: Integer | None
    source: Argument | None
    original: Integer | None


Settings = t.Annotated[tuple[Setting, ...], at_most(50)]
