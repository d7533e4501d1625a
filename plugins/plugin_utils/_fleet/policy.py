# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a user's variables ask of one host: its policy's value, as it applies to its hardware class and to the evidence at hand."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist

ENABLED, DISABLED, AUTO, THREADS = "enabled", "disabled", "auto", "threads_per_core"
# What an evaluation decides beside these two: there is no difference that counts.
ANY = "any"
RUNTIME, BOOT, BOTH = "runtime", "boot", "both"
SCOPES = (RUNTIME, BOOT, BOTH)

# No processor with Linux has more than eight threads a core (POWER8 and later).
MOST_THREADS = 8


class PolicyError(Exception):
    """A policy that cannot be applied to a host; the text says why, and what to set."""


@dataclasses.dataclass(frozen=True)
class Wish:
    """What is wanted of one host.

    Attributes:
        state: ``enabled`` or ``disabled``, or None where a number is asked for or any state will do.
        threads: threads per core, or None.
        evidence: whose evaluation decided and how old it is, as a sentence; None where a person decided.
    """

    state: str | None = None
    threads: int | None = None
    evidence: str | None = None

    @property
    def anything(self) -> bool:
        """Whether every state is as wanted: an evaluation found no difference."""
        return self.state is None and self.threads is None

    def __str__(self) -> str:
        if self.anything:
            return "as it is"
        return self.state or f"threads_per_core: {self.threads}"


def wish(value: t.Any, classes: t.Any, hardware_class: str | None, evidence: t.Mapping[str, t.Any] | None, trouble: str | None = None) -> Wish:
    """The wish for one host.

    Args:
        value: of ``smt_policy``: ``enabled``, ``disabled``, ``auto`` or ``{threads_per_core: N}``; None where none is set.
        classes: of ``smt_policy_classes``: hardware class to such a value, which goes before ``value``; None where there is none.
        hardware_class: of this host, None where unknown.
        evidence: hardware class to a decision of :func:`evidence.decisions`; None where no results were named.
        trouble: why the results that were named could not be read, or None.

    Raises:
        PolicyError: there is no policy, it is malformed, or `auto` finds no decision.
    """
    if classes is not None and not isinstance(classes, dict):
        raise PolicyError(f"smt_policy_classes is {cpulist.quoted(classes)}: it has to be a mapping of hardware classes to policies")
    chosen = (classes or {}).get(hardware_class, value) if hardware_class else value
    if chosen is None:
        raise PolicyError(f"no policy is set: give smt_policy, or its hardware class {hardware_class or '(unknown)'} in smt_policy_classes")
    if chosen == AUTO:
        return _decided(hardware_class, evidence, trouble)
    if isinstance(chosen, str) and chosen in (ENABLED, DISABLED):
        return Wish(state=str(chosen))
    if isinstance(chosen, dict) and list(chosen) == [THREADS]:
        return Wish(threads=_threads(chosen[THREADS]))
    raise PolicyError(f"smt_policy is {cpulist.quoted(chosen)}: it has to be enabled, disabled, auto or a mapping with threads_per_core alone")


def scope(value: t.Any) -> str:
    """A value of ``smt_policy_scope``. Raises PolicyError."""
    if isinstance(value, str) and value in SCOPES:
        return str(value)
    raise PolicyError(f"smt_policy_scope is {cpulist.quoted(value)}: it has to be {', '.join(SCOPES[:-1])} or {SCOPES[-1]}")


def _threads(value: t.Any) -> int:
    try:
        number = int(str(value)[:10])
    except ValueError:
        number = 0
    if isinstance(value, (bool, float)) or not 1 <= number <= MOST_THREADS:
        raise PolicyError(f"threads_per_core is {cpulist.quoted(value)}: it has to be a whole number from 1 to {MOST_THREADS}")
    return number


def _decided(hardware_class: str | None, evidence: t.Mapping[str, t.Any] | None, trouble: str | None) -> Wish:
    """What an evaluation of the same hardware class decided. Raises PolicyError where nothing did."""
    if not hardware_class:
        raise PolicyError("smt_policy is auto, and the hardware class of this host is not known, so no evaluation speaks for it")
    if trouble:
        raise PolicyError(f"smt_policy is auto, and the results cannot be read: {trouble}")
    if evidence is None:
        raise PolicyError("smt_policy is auto, and no results are named: set smt_policy_evidence to a directory of evaluations")
    found = evidence.get(hardware_class)
    if not isinstance(found, dict):
        raise PolicyError(
            f"smt_policy is auto, and no evaluation of hardware class {hardware_class} is in the results: evaluate a host of it with smt_eval.yml"
        )
    decision = found["decision"]
    if decision not in (ENABLED, DISABLED, ANY):
        raise PolicyError(f"smt_policy is auto, and the evidence does not decide: {found['whose']}: {found['sentence']} Measure more, or name the state")
    return Wish(state=None if decision == ANY else decision, evidence=f"{found['whose']}: {found['sentence']}")
