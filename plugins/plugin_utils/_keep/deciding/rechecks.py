# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a decision still holds by the re-checks of its hosts (``smt_eval_goal: recheck``).

A re-check ends at a wide interval: it tells whether the earlier result still holds, and decides nothing itself. Each
host is compared with what it said by itself in the run that decides, by the rule of the history (:mod:`series`). The
decision is enforced in any case.
"""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import basis
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding.conclusions import Conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import pooled, series
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled.series import CHANGED, HOLDS, NOT_DECIDED

# A change of an effect by less is none, as smt_history_margin has it.
MARGIN = 0.01
NOT_COMPARED = "not compared"
# That of a re-check: one of the series, or this.
State = t.Literal["holds", "changed", "not decided", "not compared"]

Recheck = dict[str, t.Any]
# Of a hardware class, as :func:`decisions.decisions` returns it; it has been an answer of a task since.
Decision = t.Mapping[str, t.Any]


def of_class(counted: t.Iterable[Conclusion], again: t.Iterable[Conclusion], now: datetime.datetime) -> list[Recheck]:
    """Return what the re-checks of a class say since the runs that decide for it, as plain data, the latest first.

    Args:
        counted: the conclusions that decide.
        again: re-checks of hosts of the class.
        now: the present time, aware.

    Returns:
        ``{host, run, day, age_days, kernel, mitigations, state}`` each; ``state`` is one of those of :mod:`series`, or
        ``NOT_COMPARED`` of a host that is none of those that decided.
    """
    deciding = {evaluation.host: evaluation for evaluation in counted}
    begin = max((evaluation.when for evaluation in deciding.values()), default=None)
    later = []
    for recheck in sorted(again, key=lambda recheck: (recheck.when, recheck.run), reverse=True):
        since = deciding[recheck.host].when if recheck.host in deciding else begin
        if since and recheck.when > since:
            later.append(recheck)
    hosts = {recheck.host for recheck in later if recheck.host in deciding}
    return [
        {
            "host": recheck.host,
            "run": recheck.run,
            "day": recheck.at.astimezone(datetime.UTC).date().isoformat() if recheck.at else None,
            "age_days": max(0, (now - recheck.at).days) if recheck.at else None,
            "kernel": recheck.basis.kernel,
            "mitigations": None if recheck.basis.mitigations is None else list(recheck.basis.mitigations),
            "state": _state(deciding[recheck.host], recheck, len(hosts)) if recheck.host in deciding else NOT_COMPARED,
        }
        for recheck in later
    ]


def _state(first: Conclusion, later: Conclusion, hosts: int) -> str:
    """Return what a re-check says of the run that decides: it holds where all workloads do. That one of them has
    changed, on one of some hosts, is as sure as it would have to be of a single one (Bonferroni).
    """
    keys = [key for key in first.workloads if _interval(first, key, first)]
    states = {_of_workload(first, later, key, series.LEVEL / (len(keys) * hosts)) for key in keys}
    return CHANGED if CHANGED in states else HOLDS if states == {HOLDS} else NOT_DECIDED


def _of_workload(first: Conclusion, later: Conclusion, key: tuple[str, float | None], level: float) -> str:
    known = [interval for interval in (_interval(run, key, first) for run in (first, later)) if interval]
    return series.standing(known, series.turns(known, MARGIN, level), MARGIN) or NOT_DECIDED


def _interval(evaluation: Conclusion, key: tuple[str, float | None], first: Conclusion) -> series.Interval | None:
    """Return what a run says of a workload; None where it does not measure what the first one did."""
    compared, declared = evaluation.workloads.get(key), first.workloads[key]
    if compared is None or compared["confounded"] or any(compared[name] != declared[name] for name in pooled.DECLARED):
        return None
    return series.interval(*(compared[name] for name in ("ratio", "ci_low", "ci_high", "interval_confidence")))


def counting(rechecks: t.Iterable[Recheck]) -> Recheck | None:
    """Return the re-check that counts for a decision; None without any.

    That the effect has changed counts where the latest of a host says so. Else the latest that holds confirms the
    decision, and one that does not decide takes nothing away.

    Args:
        rechecks: from :func:`of_class`.
    """
    compared = [recheck for recheck in rechecks if recheck["state"] != NOT_COMPARED]
    latest = {recheck["host"]: recheck for recheck in reversed(compared)}
    changed = [recheck for recheck in compared if recheck["state"] == CHANGED and recheck is latest[recheck["host"]]]
    holding = [recheck for recheck in compared if recheck["state"] == HOLDS]
    return next(iter([*changed, *holding, *compared]), None)


def confirming(rechecks: t.Sequence[Recheck]) -> list[Recheck]:
    """Return the re-checks that confirm a decision, the latest first; the argument is that of :func:`counting`."""
    latest = counting(rechecks)
    return [recheck for recheck in rechecks if recheck["state"] == HOLDS] if latest and latest["state"] == HOLDS else []


def sentence(rechecks: t.Sequence[Recheck]) -> str:
    """Return what is to be said with whose a decision is: ``confirmed on DAY with Linux KERNEL``, and which re-checks
    were in vain; empty where there is nothing.
    """
    kernels = dict.fromkeys(basis.series(recheck["kernel"]) for recheck in rechecks)
    by_kernel = [[recheck for recheck in rechecks if basis.series(recheck["kernel"]) == name] for name in kernels]
    confirmed = [recheck for of_kernel in by_kernel for recheck in confirming(of_kernel)[:1]]
    vain = sorted({recheck["host"] for recheck in rechecks if recheck["state"] == NOT_COMPARED})
    parts = [f"confirmed {_when(recheck)}" for recheck in confirmed[:1]]
    if vain:
        named = f"{', '.join(vain[: basis.NAMED])}{' and others' if len(vain) > basis.NAMED else ''}"
        parts.append(f"re-checked in vain with {named}, which did not decide")
    return ", ".join(parts)


def _age_days(decision: Decision, rechecks: t.Sequence[Recheck]) -> int | None:
    """Return the age of a decision of a hardware class, or of the last re-check that confirms it; None where it is not
    known.
    """
    ages = [decision["age_days"], *(recheck["age_days"] for recheck in confirming(rechecks))]
    return min((age for age in ages if age is not None), default=None)


def stale(decision: Decision, facts: Facts, max_age: int) -> list[str]:
    """Return why a decision is stale for a host, as sentences without an end; empty where it is not.

    What a re-check that holds was taken on counts like that of the evaluations. One that does not hold is a reason by
    itself, for the hosts that it is about.

    Args:
        decision: of the hardware class, from :func:`decisions.decisions`.
        facts: of the host now.
        max_age: days after which a decision is stale.
    """
    rechecks, rests_on = _for_host(decision, facts), dict(decision["rests_on"])
    for name, of_each in (("kernels", "kernel"), ("mitigations", "mitigations")):
        # What earlier releases did not record is not compared.
        if rests_on[name]:
            more = [recheck[of_each] for recheck in confirming(rechecks)]
            rests_on[name] = rests_on[name] + [known for known in more if known is not None]
    reasons = basis.stale(rests_on, _age_days(decision, rechecks), facts, max_age)
    counted = counting(rechecks)
    if counted and counted["state"] != HOLDS:
        says = (
            "says that the effect has changed"
            if counted["state"] == CHANGED
            else "does not tell whether it still holds"
        )
        reasons.append(f"its re-check by {counted['host']} {_when(counted)} {says}")
    return reasons


def _for_host(decision: Decision, facts: Facts) -> list[Recheck]:
    """Return the re-checks of a decision that speak of a host, the latest first: what another kernel does is nothing to
    a host for whose own the decision was measured, or re-checked.
    """
    rechecks = decision["rechecks"]
    compared = [recheck["kernel"] for recheck in rechecks if recheck["state"] != NOT_COMPARED]
    own = basis.series(facts.kernel or None)
    if own is None or own not in map(basis.series, [*decision["rests_on"]["kernels"], *compared]):
        return list(rechecks)
    return [recheck for recheck in rechecks if basis.series(recheck["kernel"]) in (None, own)]


def _when(recheck: Recheck) -> str:
    day = f"on {recheck['day']}" if recheck["day"] else "on a day that is not known"
    return f"{day} with Linux {recheck['kernel']}" if recheck["kernel"] else day


def to_measure(host: str, decision: Decision, facts: Facts, reasons: t.Sequence[str], max_age: int) -> list[str]:
    """Return the hosts after whose evaluation a decision is stale for a host no more, as :func:`basis.to_measure`, and
    the one whose re-check does not hold.

    Args:
        host: the host.
        decision: of a hardware class.
        facts: as for :func:`stale`.
        reasons: from :func:`stale`.
        max_age: as for :func:`stale`.
    """
    rechecks = _for_host(decision, facts)
    hosts = basis.to_measure(host, decision["hosts"], _age_days(decision, rechecks), reasons, max_age)
    again = counting(rechecks)
    return sorted({*hosts, *([again["host"]] if again and again["state"] != HOLDS else [])})
