# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boots of an evaluation: which arms have boots of their own, in which order a host is booted,
and what is measured in each boot.

Boots are the blocks: each round has one boot of each booted arm, in the balanced order that arms have in blocks. Arms
that are switched at run time are measured within the boots of the baseline.
"""

from __future__ import annotations

import dataclasses
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms as names_of_arms
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import Arm, ArmError
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import order
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import goals
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import host_result

# Boots in each arm from which on pairs of boots get a verdict, as messages recommend it.
RECOMMENDED = 4
MAX_BOOTS = 1000


class BootPlanError(Exception):
    """The arms that are asked for cannot be compared by boots; the message gives the reason and the way out."""


@dataclasses.dataclass(frozen=True)
class BootPlan:
    """The boots of one host.

    Attributes:
        booted: the arms that have boots of their own, the baseline first.
        within: the arms that are measured in each boot of the baseline, itself first, as smt_benchmark is asked for
            them.
        asked: the names of all arms that are measured, the baseline first.
        boots: boots in each booted arm.
        left_out: arms that were asked for and are not measured.
    """

    booted: tuple[Arm, ...]
    within: tuple[str, ...]
    asked: tuple[str, ...]
    boots: int
    left_out: tuple[host_result.ArmLeftOut, ...] = ()

    @property
    def order(self) -> list[str]:
        """The arm of each boot."""
        names = [arm.name for arm in self.booted]
        return [name for number in range(self.boots) for name in order.of_block(names, number)]

    @property
    def reboots(self) -> int:
        """How often the host is rebooted; once more than measured,
        unless the last boot has the host's own arguments.
        """
        boots = self.order
        return len(boots) + (1 if self.arm(boots[-1]).boot.argument else 0)

    @property
    def arms(self) -> list[host_result.Arm]:
        """All arms that are measured, the baseline first, as a result has them."""
        return [
            host_result.Arm(name=arm.name, title=arm.title, baseline=arm.name == self.asked[0], settings=arm.settings)
            for arm in map(catalogue.get, self.asked)
        ]

    def arm(self, name: str) -> Arm:
        """Return a booted arm."""
        return next(arm for arm in self.booted if arm.name == name)

    def measured_in(self, name: str) -> list[str]:
        """Return the arms that are measured in each boot of an arm, as smt_benchmark is asked for them."""
        return list(self.within) if name == self.booted[0].name else [names_of_arms.AS_FOUND]


def names(asked: t.Any) -> list[str]:
    """Return the names of arms as users give them: a list of names or mappings, or names with commas between.

    Raises:
        BootPlanError: it is neither, or an arm does not exist, is named twice, or there are too many.
    """
    given = asked.split(",") if isinstance(asked, str) else asked
    if not isinstance(given, (list, tuple)):
        raise BootPlanError("it must be a list of arms, or their names with commas between")
    try:
        return catalogue.check(given, with_boots=True)
    except ArmError as error:
        raise BootPlanError(str(error)) from None


def without_boots(factors: t.Any, goal: t.Any) -> str | None:
    """Return why an evaluation with these options is not one by boots, or None.

    Args:
        factors: the option of smt_benchmark.
        goal: likewise.
    """
    if factors:
        return "factors are switched at run time"
    if goal == goals.RECHECK:
        return "a re-check takes two looks at what is switched at run time"
    return None


def refusal(asked: t.Sequence[str], boots: int, reboot_ok: bool, allowed: t.Collection[str]) -> str | None:
    """Return why arms cannot be booted, as far as variables alone tell it, or None.

    Args:
        asked: names of arms, as `names` returns them.
        boots: ``smt_eval_boots``.
        reboot_ok: ``smt_boot_reboot_ok``.
        allowed: the variables that allow arms and are true.
    """
    booted = [arm for arm in map(catalogue.get, asked) if arm.takes_reboot]
    if not boots:
        named = ", ".join(arm.name for arm in booted)
        takes, them = ("takes", "it") if len(booted) == 1 else ("take", "them")
        more = (
            f"set smt_eval_boots to the number of boots in each arm, {RECOMMENDED} for a verdict, or leave {them} out"
        )
        return f"{named} {takes} a reboot: {more}" if booted else None
    for arm in booted:
        if arm.allowed_by and arm.allowed_by not in allowed:
            return (
                f"{arm.name} boots with {arm.boot.argument}, which leaves open {arm.leaves_open}: allow it with"
                f" {arm.allowed_by}=true, or leave it out"
            )
    try:
        reboots = make(asked, boots).reboots
    except BootPlanError as error:
        return str(error)
    if reboot_ok:
        return None
    way_out = "leave out the arms that take a reboot" if booted else "compare without a reboot by smt_eval_boots=0"
    return (
        f"the host would be rebooted {reboots} times to compare boots: allow it with smt_boot_reboot_ok=true, or"
        f" {way_out}"
    )


def make(asked: t.Sequence[str], boots: int, cannot: t.Mapping[str, str] = types.MappingProxyType({})) -> BootPlan:
    """Plan the boots of one host.

    Args:
        asked: names of arms, as `names` returns them.
        boots: boots in each arm, from 1 to `MAX_BOOTS`.
        cannot: arms that this host cannot have -> the reason.

    Raises:
        BootPlanError: the arms cannot be compared by boots, the baseline is left out, or no other arm is left.
    """
    if not 1 <= boots <= MAX_BOOTS:
        raise BootPlanError(f"smt_eval_boots is {boots}: give the number of boots in each arm, from 1 to {MAX_BOOTS}")
    baseline = asked[0]
    others = [arm for arm in map(catalogue.get, asked[1:]) if arm.name not in cannot]
    arm = catalogue.get(baseline)
    if not arm.boot.options:
        raise BootPlanError(
            f"{baseline} is the baseline, and the host is not booted into it: name smt_on, as_found or an arm that"
            " takes a reboot first"
        )
    if baseline in cannot:
        raise BootPlanError(f"the baseline {arm.title} is not possible on this host: {cannot[baseline]}")
    if any(other.name == names_of_arms.AS_FOUND for other in others):
        raise BootPlanError("as_found can only be the baseline where arms are booted: name it first, or leave it out")
    # SMT off is booted where nothing else is; beside arms that take a reboot it is switched within the boots of the
    # baseline.
    only_smt = not any(catalogue.takes_reboot(arm) for arm in asked)
    own = [other for other in others if other.takes_reboot or (only_smt and other.boot.options)]
    if not own:
        reason = "; ".join(f"{name}: {reason}" for name, reason in cannot.items()) or "no other arm was asked for"
        raise BootPlanError(f"no arm is left that takes a reboot ({reason}): leave out smt_eval_boots")
    at_run_time = [other.name for other in others if other not in own]
    first = baseline if at_run_time and not arm.takes_reboot else names_of_arms.AS_FOUND
    shown = tuple(
        host_result.ArmLeftOut(name=name, title=catalogue.get(name).title, reason=reason)
        for name, reason in cannot.items()
        if name in asked
    )
    measured = (baseline, *(other.name for other in others))
    return BootPlan((arm, *own), (first, *at_run_time), measured, boots, shown)


def announcement(plan: BootPlan, budget: int) -> list[str]:
    """Describe the boots of a host, in sentences for a person.

    Args:
        plan: of the host.
        budget: seconds of all measurements together.
    """
    each = share(plan, budget)
    within = [catalogue.get(arm).title for arm in plan.within[1:]]
    sentences = [
        (
            f"The host would be rebooted {plan.reboots} times ({', '.join(plan.order)}) and measured after each reboot"
            f" for {each} s."
        )
    ]
    if within:
        sentences.append(
            f"Within each boot of {plan.booted[0].title} it would be switched to {', '.join(within)} and back."
        )
    sentences += [
        f"{arm.title} leaves open {arm.leaves_open} while it is measured." for arm in plan.booted if arm.leaves_open
    ]
    sentences += [f"{arm.title} is left out: {arm.reason}." for arm in plan.left_out]
    return [
        *sentences,
        "At the end, and by itself when this controller is lost, it would be booted with its present arguments.",
    ]


def share(plan: BootPlan, budget: int) -> int:
    """Return the seconds of each boot's measurement."""
    return max(budget // len(plan.order), 1)
