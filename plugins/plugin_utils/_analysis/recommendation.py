# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host's comparisons, vulnerabilities and licence price -> what to choose, with every reason and where it points.

Programs read this (``smt_policy: auto``); people read :mod:`conclusion`. The choice is never stronger than the evidence: performance alone makes it,
other reasons decide only where performance calls both sides equal, and a reason that points the other way is said by ``agreed``.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import comparisons as host_comparisons, conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.comparisons import Comparison, Result


@dataclasses.dataclass(frozen=True)
class Licence:
    """What software costs here.

    Attributes:
        per: ``core`` or ``thread``: what is counted
        price: of one of them, above zero, in any currency
    """

    per: str
    price: float


def recommend(result: Result, comparisons: t.Sequence[Comparison], licence: Licence | None = None) -> dict[str, t.Any]:
    """The recommendation for one host.

    Args:
        result: a document that :func:`result_files.load` has accepted
        comparisons: of :func:`host_comparisons.compare_host`

    Returns:
        ``{choice, decided_by, agreed, reasons, measure, policy}``. ``choice`` is one of :mod:`conclusion`'s; ``decided_by`` is ``performance``,
            ``other reasons`` or None; ``agreed`` is true when a side is chosen and no reason points to the other one; each reason is
            ``{about, points_to, words, ...}`` with ``about`` one of ``performance``, ``vulnerability``, ``licence`` and ``points_to`` ``on``, ``off`` or None;
            ``measure`` is None or ``{blocks, seconds, words}``: what more to measure and how long that takes, None where it cannot be said. A run that was about
            another setting than SMT chooses nothing; its ``policy`` is ``{name, outcome, reasons, measure}`` with ``outcome`` one of :func:`conclusion.outcome`,
            and else None
    """
    main = host_comparisons.primary(comparisons)
    performance = conclusion.recommendation(main)
    others = [*_vulnerabilities(result), *_licence(result, main, licence)]
    sides = {reason["points_to"] for reason in others} - {None}
    choice, decided_by = performance, "performance" if performance in (conclusion.ON, conclusion.OFF) else None
    if performance == conclusion.EITHER and len(sides) == 1:
        choice, decided_by = sides.pop(), "other reasons"
    reasons = [*map(_performance, main), *others]
    pointed = {reason["points_to"] for reason in reasons} - {None}
    return {
        "choice": choice,
        "decided_by": decided_by,
        "agreed": choice in (conclusion.ON, conclusion.OFF) and pointed == {choice},
        "reasons": reasons,
        "measure": conclusion.more_to_measure(result, main),
        "policy": _policy(result, comparisons),
    }


def _policy(result: Result, comparisons: t.Sequence[Comparison]) -> dict[str, t.Any] | None:
    """What a run found of another setting than SMT, None where it was about SMT."""
    name = host_comparisons.policy_of(result["change"])
    if name is None:
        return None
    group = host_comparisons.of_policy(comparisons)
    return {"name": name, "outcome": conclusion.outcome(group), "reasons": list(map(_performance, group)), "measure": conclusion.more_to_measure(result, group)}


def _performance(one: Comparison) -> dict[str, t.Any]:
    points_to = {"gain": conclusion.OFF, "loss": conclusion.ON}.get(one["verdict"]) if one["effect"] == "smt_off" else None
    where = arms.title(one["candidate"]["condition"])
    span = "" if one["ci_low"] is None else f" ({conclusion.signed(one['ci_low'], one)} to {conclusion.signed(one['ci_high'], one)})"
    return {
        "about": "performance",
        "workload": one["workload"],
        "points_to": points_to,
        "verdict": one["verdict"],
        **{key: one[key] for key in ("ratio", "ci_low", "ci_high", "n", "margin")},
        "words": f"{one['title']}: {conclusion.signed(one['ratio'], one)}{span} with {where}, {one['verdict']}",
    }


def _vulnerabilities(result: Result) -> list[dict[str, t.Any]]:
    return [
        {"about": "vulnerability", "name": name, "points_to": conclusion.OFF, "words": f"with SMT on the kernel calls this host vulnerable to {name}"}
        for name in conclusion.exposed(result) or ()
    ]


def _licence(result: Result, main: t.Sequence[Comparison], licence: Licence | None) -> list[dict[str, t.Any]]:
    """What licences cost with SMT on and off, and for the same work."""
    if licence is None:
        return []
    counts = {side: _licences(result, side, licence.per) for side in (host_comparisons.SMT_ON, host_comparisons.SMT_OFF)}
    with_smt, without = counts[host_comparisons.SMT_ON], counts[host_comparisons.SMT_OFF]
    if not with_smt or not without:
        return [{"about": "licence", "per": licence.per, "points_to": None, "words": f"how many {licence.per}s are licensed is not known: no sibling list"}]
    price = {"on": with_smt * licence.price, "off": without * licence.price}
    # Money for the same work, SMT off by SMT on, for each workload whose change is known.
    by_work = [without / with_smt / one["ratio"] for one in main if one["verdict"] != "inconclusive"]
    points_to = None
    if by_work and max(by_work) < 1:
        points_to = conclusion.OFF
    elif by_work and min(by_work) > 1:
        points_to = conclusion.ON
    told = f"licences by {licence.per}: {with_smt} with SMT on ({price['on']:g}), {without} with SMT off ({price['off']:g})"
    if by_work:
        told += f"; for the same work SMT off costs {min(by_work):.2f} to {max(by_work):.2f} times as much"
    return [{"about": "licence", "per": licence.per, "points_to": points_to, "licences": {"on": with_smt, "off": without}, "price": price, "words": told}]


def _licences(result: Result, condition: str, per: str) -> int | None:
    """Cores, or online threads under a condition; None where the topology is not known."""
    cores = host_comparisons.cores_of(result["facts"])
    if per == "core" or condition == host_comparisons.SMT_OFF:
        return len(cores) or None
    return sum(map(len, cores)) or None
