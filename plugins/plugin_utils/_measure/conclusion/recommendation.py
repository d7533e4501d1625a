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


def recommend(analysis: HostAnalysis, licence: Licence | None = None) -> dict[str, t.Any]:
    """Make the recommendation for one host.

    Args:
        analysis: of the host.
        licence: the price of licensed software, or None.

    Returns:
        ``{choice, decided_by, agreed, reasons, measure, arms, best, better_than_baseline, pairs}``.
        ``choice`` is a value of :mod:`conclusion`; ``decided_by`` is
        ``performance``, ``other reasons`` or None; ``agreed`` is true when a side is chosen and no reason points to the
        other one; each reason is ``{about, points_to, text, ...}`` with ``about`` one of ``performance``,
        ``vulnerability``, ``licence`` and ``points_to`` ``on``, ``off`` or None; ``measure`` is None or
        ``{blocks, seconds, text}``, how much more to measure, with None for unknown numbers. ``arms`` has one
        ``{name, title, outcome, reasons, measure}`` for each arm that has nothing to do with SMT, with ``outcome`` from
        :func:`outcomes.outcome`; about these nothing is chosen. ``best``, ``better_than_baseline`` and ``pairs`` are
        those of :class:`outcomes.Standing`, of all arms.
    """
    result, main = analysis.result, outcomes.deciding(analysis)
    every = [*main, *outcomes.of_smt_by_one(analysis)]
    performance = conclusion.CHOICES.get(outcome := outcomes.of_smt(analysis), outcome)
    others = [*_vulnerabilities(result), *_licence(result, main, licence)]
    sides = {reason["points_to"] for reason in others} - {None}
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
    against = {reason["points_to"] for reason in further_reasons} - {None} - sides
    if performance == conclusion.EITHER and len(sides) == 1 and not against:
        choice, decided_by = sides.pop(), "other reasons"
    reasons = [*of_performance, *further_reasons, *others]
    pointed = {reason["points_to"] for reason in reasons} - {None}
    return {
        "choice": choice,
        "decided_by": decided_by,
        # What is 0 in some samples, as a number of errors, has no verdict, and may be what matters. So may be failures.
        "agreed": choice in (conclusion.ON, conclusion.OFF)
        and pointed == {choice}
        and not cautions.zero_on_one_side(analysis)
        and not cautions.failed_on_one_side(analysis),
        "reasons": reasons,
        "measure": advice.more_to_measure(result, every, analysis.curves),
        "arms": [_arm(analysis, *arm) for arm in recorded.other_arms(result).items()],
        **outcomes.standing(analysis).described(),
    }


def _arm(analysis: HostAnalysis, name: str, title: str) -> dict[str, t.Any]:
    """Return the outcome of an arm other than SMT on and off against the baseline."""
    result = analysis.result
    compared = [*analysis.against_baseline, *outcomes.served_by_one(analysis)]
    pair = (result.arms[0].name, name)
    group = [comparison for comparison in compared if comparison.sides == pair]
    return {
        "name": name,
        "title": title,
        "outcome": outcomes.of_pair(analysis, pair, group),
        "reasons": [_performance(result, comparison) for comparison in group],
        "measure": advice.more_to_measure(result, group),
    }


def _performance(result: HostResult, comparison: Compared) -> dict[str, t.Any]:
    points_to = (
        {"gain": conclusion.OFF, "loss": conclusion.ON}.get(comparison.verdict)
        if comparison.effect == arms.SMT_OFF
        else None
    )
    common = {
        "about": "performance",
        "workload": comparison.workload,
        "points_to": points_to,
        "verdict": comparison.verdict,
    }
    if not isinstance(comparison, Comparison):
        return {
            **common,
            "n": comparison.n,
            "margin": comparison.margin,
            "text": load_limit.clause(result, comparison, ""),
        }
    turned = comparison.as_said(len(result.arms))
    where = recorded.arm_title(result, turned.candidate.arm)
    return {
        **common,
        "verdict": turned.verdict,
        **{name: getattr(turned, name) for name in ("ratio", "ci_low", "ci_high", "n", "margin")},
        **turned.change.described(),
        "text": (f"{turned.subject}: {wording.change_and_interval(turned.change)} with {where}, {turned.word}"),
    }


def _vulnerabilities(result: HostResult) -> list[dict[str, t.Any]]:
    return [
        {
            "about": "vulnerability",
            "name": name,
            "points_to": conclusion.OFF,
            "text": f"with SMT on the kernel calls this host vulnerable to {name}",
        }
        for name in exposure.exposed(result) or ()
    ]


def _licence(result: HostResult, main: t.Sequence[Comparison], licence: Licence | None) -> list[dict[str, t.Any]]:
    """Return the cost of licences with SMT on and off, and for the same work."""
    if licence is None:
        return []
    counts = {side: _licences(result, side, licence.per) for side in (arms.SMT_ON, arms.SMT_OFF)}
    with_smt, without = counts[arms.SMT_ON], counts[arms.SMT_OFF]
    if not with_smt or not without:
        return [
            {
                "about": "licence",
                "per": licence.per,
                "points_to": None,
                "text": f"how many {licence.per}s are licensed is not known: no sibling list",
            }
        ]
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
    return [
        {
            "about": "licence",
            "per": licence.per,
            "points_to": points_to,
            "licences": {"on": with_smt, "off": without},
            "price": price,
            "text": text,
        }
    ]


def _licences(result: HostResult, arm: str, per: str) -> int | None:
    """Return the number of cores, or of online threads in an arm; None where the topology is unknown."""
    cores = result.facts.core_cpus
    if per == "core" or arm == arms.SMT_OFF:
        return len(cores) or None
    return sum(map(len, cores)) or None
