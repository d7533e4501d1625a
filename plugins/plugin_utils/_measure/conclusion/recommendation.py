# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The recommendation for one host from its comparisons, vulnerabilities and licence price, with every reason.

Programs read this (``smt_policy: auto``); people read :mod:`conclusion`. Performance alone makes the choice. Other
reasons decide only where performance is equal on both sides; ``agreed`` shows whether any reason points to the other
side.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    limits,
    recorded,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Compared, Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import (
    advice,
    conclusion,
    costs,
    outcomes,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_arms import exposure
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions import cautions
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_loads import load_limit
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording


@dataclasses.dataclass(frozen=True)
class Licence:
    """The price of licensed software.

    Attributes:
        per: the licensed unit, ``core`` or ``thread``.
        price: of one unit, above zero, in any currency.
    """

    per: str
    price: float


@dataclasses.dataclass(frozen=True)
class Reason:
    """A reason for a choice.

    Attributes:
        about: ``performance``, ``vulnerability`` or ``licence``.
        points_to: ``on``, ``off`` or None.
        text: the reason.
        facts: its numbers.
    """

    about: str
    points_to: str | None
    text: str
    facts: dict[str, t.Any]

    def described(self) -> dict[str, t.Any]:
        """Return it as plain data."""
        return {"about": self.about, "points_to": self.points_to, "text": self.text, **self.facts}


@dataclasses.dataclass(frozen=True)
class ArmOutcome:
    """The outcome of an arm that has nothing to do with SMT, about which nothing is chosen; ``outcome`` is one of
    :func:`outcomes.outcome`.
    """

    name: str
    title: str
    outcome: str
    reasons: list[Reason]
    measure: advice.More | None

    def described(self) -> dict[str, t.Any]:
        """Return it as plain data."""
        return {**vars(self), **_plain(self.reasons, self.measure)}


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """The recommendation for one host.

    Attributes:
        choice: a value of :mod:`conclusion`.
        decided_by: ``performance``, ``other reasons`` or None.
        agreed: whether a side is chosen and no reason points to the other one.
        reasons: each.
        measure: how much more to measure, or None.
        arms: the outcome of each arm that has nothing to do with SMT.
        standing: of all arms.
    """

    choice: str
    decided_by: str | None
    agreed: bool
    reasons: list[Reason]
    measure: advice.More | None
    arms: list[ArmOutcome]
    standing: outcomes.Standing

    def described(self) -> dict[str, t.Any]:
        """Return it as plain data."""
        fields = {name: value for name, value in vars(self).items() if name != "standing"}
        arms = [arm.described() for arm in self.arms]
        return {**fields, **_plain(self.reasons, self.measure), "arms": arms, **self.standing.described()}


def _plain(reasons: t.Sequence[Reason], measure: advice.More | None) -> dict[str, t.Any]:
    return {"reasons": [reason.described() for reason in reasons], "measure": measure and measure._asdict()}


def recommend(analysis: HostAnalysis, licence: Licence | None = None) -> Recommendation:
    """Make the recommendation for one host.

    Args:
        analysis: of the host.
        licence: the price of licensed software, or None.
    """
    result, main = analysis.result, outcomes.deciding(analysis)
    every = [*main, *outcomes.of_smt_by_one(analysis)]
    performance = conclusion.CHOICES.get(outcome := outcomes.of_smt(analysis), outcome)
    others = [*_vulnerabilities(result), *_licence(result, main, licence)]
    sides = {reason.points_to for reason in others} - {None}
    choice, decided_by = performance, "performance" if performance in (conclusion.ON, conclusion.OFF) else None
    # Where the work is the same either way something else may not be, such as the tail of response times.
    # And where a response time was asked for, all workers together may do less.
    # And at the loads that both sides serve, each of them.
    limited = limits.limited(result)
    further = (
        costs.beside_equal(analysis.comparisons)
        if performance == conclusion.EITHER
        else [
            comparison
            for comparison in costs.against_primary(analysis.comparisons)
            if (comparison.aggregate in workload_metrics.ADDING_UP or comparison.workload in limited)
            and comparison.placement == host_comparisons.WHOLE_MACHINE
        ]
    )
    of_performance = [_performance(result, comparison) for comparison in every]
    further_reasons = [_performance(result, comparison) for comparison in further if comparison.is_of_smt]
    against = {reason.points_to for reason in further_reasons} - {None} - sides
    if performance == conclusion.EITHER and len(sides) == 1 and not against:
        choice, decided_by = next(side for side in sides if side), "other reasons"
    reasons = [*of_performance, *further_reasons, *others]
    pointed = {reason.points_to for reason in reasons} - {None}
    return Recommendation(
        choice,
        decided_by,
        # What is 0 in some samples, as a number of errors, has no verdict, and may be what matters. So may be failures.
        choice in (conclusion.ON, conclusion.OFF)
        and pointed == {choice}
        and not cautions.zero_on_one_side(analysis)
        and not cautions.failed_on_one_side(analysis),
        reasons,
        advice.more_to_measure(result, every, analysis.curves),
        [_arm(analysis, *arm) for arm in recorded.other_arms(result).items()],
        outcomes.standing(analysis),
    )


def _arm(analysis: HostAnalysis, name: str, title: str) -> ArmOutcome:
    """Return the outcome of an arm other than SMT on and off against the baseline."""
    result = analysis.result
    compared = [*analysis.against_baseline, *outcomes.served_by_one(analysis)]
    pair = (result.arms[0].name, name)
    group = [comparison for comparison in compared if comparison.sides == pair]
    outcome = outcomes.of_pair(analysis, pair, group)
    reasons = [_performance(result, comparison) for comparison in group]
    return ArmOutcome(name, title, outcome, reasons, advice.more_to_measure(result, group))


def _performance(result: HostResult, comparison: Compared) -> Reason:
    points_to = {"gain": conclusion.OFF, "loss": conclusion.ON} if comparison.effect == arms.SMT_OFF else {}
    names, text = ["workload", "verdict", "n", "margin"], load_limit.clause(result, comparison, "")
    said, change = comparison, {}
    if isinstance(comparison, Comparison):
        said = turned = comparison.as_said(len(result.arms))
        names += ["ratio", "ci_low", "ci_high"]
        change = turned.change.described()
        where = recorded.arm_title(result, turned.candidate.arm)
        text = f"{turned.subject}: {wording.change_and_interval(turned.change)} with {where}, {turned.word}"
    facts = {**{name: getattr(said, name) for name in names}, **change}
    return Reason("performance", points_to.get(comparison.verdict), text, facts)


def _vulnerabilities(result: HostResult) -> list[Reason]:
    return [
        Reason(
            "vulnerability",
            conclusion.OFF,
            f"with SMT on the kernel calls this host vulnerable to {name}",
            {"name": name},
        )
        for name in exposure.exposed(result) or ()
    ]


def _licence(result: HostResult, main: t.Sequence[Comparison], licence: Licence | None) -> list[Reason]:
    """Return the cost of licences with SMT on and off, and for the same work."""
    if licence is None:
        return []
    counts = {side: _licences(result, side, licence.per) for side in (arms.SMT_ON, arms.SMT_OFF)}
    with_smt, without = counts[arms.SMT_ON], counts[arms.SMT_OFF]
    if not with_smt or not without:
        text = f"how many {licence.per}s are licensed is not known: no sibling list"
        return [Reason("licence", None, text, {"per": licence.per})]
    price = {"on": with_smt * licence.price, "off": without * licence.price}
    # Money for the same work, SMT off by SMT on, for each workload whose change is known.
    by_work = [
        without / with_smt / comparison.ratio
        for comparison in main
        if comparison.verdict != "inconclusive" and comparison.aggregate in workload_metrics.ADDING_UP
    ]
    points_to = None
    if by_work and max(by_work) < 1:
        points_to = conclusion.OFF
    elif by_work and min(by_work) > 1:
        points_to = conclusion.ON
    text = (
        f"licences by {licence.per}: {with_smt} with SMT on ({price['on']:g}), {without} with SMT off"
        f" ({price['off']:g})"
    )
    if by_work:
        ends = dict.fromkeys(f"{end:.2f}" for end in (min(by_work), max(by_work)))
        text += f"; for the same work SMT off costs {' to '.join(ends)} times as much"
    counted = {"per": licence.per, "licences": {"on": with_smt, "off": without}, "price": price}
    return [Reason("licence", points_to, text, counted)]


def _licences(result: HostResult, arm: str, per: str) -> int | None:
    """Return the number of cores, or of online threads in an arm; None where the topology is unknown."""
    cores = result.facts.core_cpus
    if per == "core" or arm == arms.SMT_OFF:
        return len(cores) or None
    return sum(map(len, cores)) or None
