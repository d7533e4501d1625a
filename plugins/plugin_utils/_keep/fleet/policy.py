# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The desired state of one host from the policy variables, its hardware class and the decisions of evaluations."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import states
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import scope as smt_scope
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.errors import FleetError

ENABLED, DISABLED, AUTO, THREADS, DISABLED_ON = "enabled", "disabled", "auto", "threads_per_core", "disabled_on"
# The decision of an evaluation without a relevant difference.
ANY = "any"
RUNTIME, BOOT, BOTH = "runtime", "boot", "both"
Scope = t.Literal["runtime", "boot", "both"]
SCOPES: tuple[str, ...] = t.get_args(Scope)

# No processor with Linux has more than eight threads a core (POWER8 and later).
MAX_THREADS = 8


class PolicyError(FleetError):
    """A policy cannot be applied to a host. The text gives the reason and what to set."""


class UndecidedError(PolicyError):
    """The policy is valid, but the evaluations do not decide for this host.

    The text gives the reason and what to do.
    """


@dataclasses.dataclass(frozen=True)
class DesiredState:
    """The desired state of one host.

    Attributes:
        state: ``enabled`` or ``disabled``; None for a number of threads or for any state.
        threads: threads per core, or None.
        decided_by: the evaluations behind an automatic decision and their age, as a sentence; None for an explicit
            policy.
        cores: the part of the machine that ``disabled`` applies to; every other core has all its threads.
    """

    state: str | None = None
    threads: int | None = None
    decided_by: str | None = None
    cores: smt_scope.Scope = smt_scope.WHOLE

    @property
    def is_part(self) -> bool:
        """Whether it applies to a part of the machine."""
        return self.cores != smt_scope.WHOLE

    @property
    def anything(self) -> bool:
        """Whether every state complies: an evaluation found no difference."""
        return self.state is None and self.threads is None

    def __str__(self) -> str:
        """Return the desired state for display."""
        if self.anything:
            return "as it is"
        if self.is_part:
            return f"{self.state} on {self.cores.title}"
        return self.state or f"threads_per_core: {self.threads}"


def desired_state(
    value: t.Any,
    classes: t.Any,
    hardware_class: str | None,
    decisions: t.Mapping[str, t.Any] | None,
    error: str | None = None,
    without_smt: bool = False,
) -> DesiredState:
    """Return the desired state of one host.

    Args:
        value: of ``smt_policy``: ``enabled``, ``disabled``, ``auto``, ``{threads_per_core: N}`` or
            ``{disabled_on: {node: N}}``; None where it is not set.
        classes: of ``smt_policy_classes``: hardware class -> such a value, which overrides ``value``; None where it is
            not set.
        hardware_class: of this host, None where unknown.
        decisions: hardware class -> a decision of `decisions.decisions`; None where no results are configured.
        error: why the configured results cannot be read, or None.
        without_smt: whether this host has no SMT, so that `auto` has nothing to decide; there have to be results that
            can be read.

    Raises:
        PolicyError: there is no policy, or it is not valid.
        UndecidedError: `auto` has no decision.
    """
    _check_classes(classes)
    chosen = (classes or {}).get(hardware_class, value) if hardware_class else value
    if chosen is None:
        raise PolicyError(
            f"no policy is set: give smt_policy, or its hardware class {hardware_class or '(unknown)'} in"
            " smt_policy_classes"
        )
    if chosen == AUTO:
        return _decided(hardware_class, decisions, error, without_smt)
    return _explicit(chosen)


def check(value: t.Any, classes: t.Any) -> None:
    """Check what can be checked of a policy, and of those of all classes, without any fact of its host.

    Args:
        value: as of :func:`desired_state`.
        classes: as of :func:`desired_state`.

    Raises:
        PolicyError: there is no policy, or it is not valid.
    """
    _check_classes(classes)
    if value is None and not classes:
        raise PolicyError("no policy is set: give smt_policy")
    if value is not None and value != AUTO:
        _explicit(value)


def of_all_classes(value: t.Any, classes: t.Any) -> str | None:
    """Return the desired state of a host whose hardware class is not known, for display;
    None where it depends on the class or on evaluations.

    Args:
        value: as of :func:`desired_state`, valid.
        classes: as of :func:`desired_state`, valid.
    """
    policies = [value, *(classes or {}).values()]
    if None in policies or AUTO in policies:
        return None
    states_of_all = {str(_explicit(policy)) for policy in policies}
    return states_of_all.pop() if len(states_of_all) == 1 else None


def _check_classes(classes: t.Any) -> None:
    if classes is not None and not isinstance(classes, dict):
        raise PolicyError(
            f"smt_policy_classes is {cpulist.quoted(classes)}: it must be a mapping of hardware classes to policies"
        )
    # A value that is wrong shows on all hosts, not first where a host of its class comes.
    for name, value in (classes or {}).items():
        if value != AUTO:
            _explicit(value, f"smt_policy_classes has for {cpulist.quoted(name)} the policy")


def _explicit(chosen: t.Any, whose: str = "smt_policy is") -> DesiredState:
    """Return the desired state of a policy other than ``auto``.

    Raises:
        PolicyError: it is not valid.
    """
    # As an option of a module has it: YAML makes true and false of on and off.
    word = {True: "on", False: "off"}[chosen] if isinstance(chosen, bool) else chosen
    if isinstance(word, str) and states.named(word) in (ENABLED, DISABLED):
        return DesiredState(state=states.named(str(word)))
    if isinstance(chosen, dict) and list(chosen) == [THREADS]:
        return DesiredState(threads=_threads(chosen[THREADS]))
    if isinstance(chosen, dict) and list(chosen) == [DISABLED_ON]:
        return DesiredState(state=DISABLED, cores=_cores(chosen[DISABLED_ON]))
    raise PolicyError(
        f"{whose} {cpulist.quoted(chosen)}: it must be enabled (or on), disabled (or off), auto or a mapping with only"
        " threads_per_core or disabled_on"
    )


def _cores(value: t.Any) -> smt_scope.Scope:
    """Return the part of the machine that a policy names."""
    try:
        cores = smt_scope.parse({} if value is None else value)
    except smt_scope.ScopeError as error:
        raise PolicyError(f"{DISABLED_ON}: {error}") from None
    if cores.kind == smt_scope.UNIT:
        raise PolicyError(
            f"{DISABLED_ON} names {cores.title}: a policy is compared with the facts of a host, which have no units:"
            " name cpus, a node or a package"
        )
    return cores


def scope(value: t.Any) -> str:
    """Validate a value of ``smt_policy_scope``.

    Raises:
        PolicyError: the value is not valid.
    """
    if isinstance(value, str) and value in SCOPES:
        return str(value)
    raise PolicyError(
        f"smt_policy_scope is {cpulist.quoted(value)}: it must be {', '.join(SCOPES[:-1])} or {SCOPES[-1]}"
    )


def _threads(value: t.Any) -> int:
    try:
        number = int(str(value)[:10])
    except ValueError:
        number = 0
    if isinstance(value, (bool, float)) or not 1 <= number <= MAX_THREADS:
        raise PolicyError(
            f"threads_per_core is {cpulist.quoted(value)}: it must be a whole number from 1 to {MAX_THREADS}"
        )
    return number


def _decided(
    hardware_class: str | None, decisions: t.Mapping[str, t.Any] | None, error: str | None, without_smt: bool
) -> DesiredState:
    """Return the decision for a hardware class.

    Raises:
        PolicyError: no results are configured.
        UndecidedError: there is no decision.
    """
    if error:
        raise UndecidedError(f"smt_policy is auto, and the results cannot be read: {error}")
    if decisions is None:
        raise PolicyError(
            "smt_policy is auto, and no results are configured: set smt_policy_results to a directory of evaluations"
        )
    if without_smt:
        return DesiredState()
    if not hardware_class:
        raise UndecidedError(
            "smt_policy is auto, and the hardware class of this host is not known, so no evaluation applies: set"
            " smt_policy to a state"
        )
    known = decisions.get(hardware_class)
    if not isinstance(known, dict):
        raise UndecidedError(
            f"smt_policy is auto, and the results have no evaluation of hardware class {hardware_class}: evaluate a"
            " host of this class with smt_eval.yml"
        )
    decision = known["decision"]
    if decision not in (ENABLED, DISABLED, ANY):
        raise UndecidedError(
            f"smt_policy is auto, and the evaluations do not decide: {known['whose']}: {known['sentence']} Measure"
            " more, or set a state"
        )
    return DesiredState(
        state=None if decision == ANY else decision, decided_by=f"{known['whose']}: {known['sentence']}"
    )
