# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a choice costs, and what else it changes."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import (
    change,
    comparisons as host_comparisons,
    costs as work_costs,
    limits,
    paired,
    recorded,
    smt_metrics,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.comparisons import Comparison, place_of
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import outcomes, wording
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion.of_arms import exposure

MIB = 1024 * 1024
OVERCOMMIT_TESTS = {
    "enomem": "it was refused at once (ENOMEM)",
    "oom_killed": "it was promised them, and killed when it used them",
    "survived": "it was promised them, and could use them",
}
# A decided verdict -> its opposite.
DECIDED = {paired.GAIN: paired.LOSS, paired.LOSS: paired.GAIN}


def _observed(result: HostResult) -> list[str]:
    """Describe the result of the overcommit test under each memory policy."""
    sentences = []
    for one in result.observations or ():
        outcome = one.overcommit_test and OVERCOMMIT_TESTS.get(one.overcommit_test.outcome)
        if outcome and one.asked_bytes:
            where = recorded.arm_title(result, one.arm)
            sentences.append(
                f"A process that asked for {one.asked_bytes / MIB:.0f} MiB and was confined to a part of them,"
                f" {where}: {outcome}."
            )
    return sentences


def _switching(result: HostResult) -> list[str]:
    """Say what switching itself took: it is a time in which the host's work stands still or stutters."""
    switches = result.plan.switches or {}
    taken = [
        f"{one.seconds:.2g} s to {recorded.arm_title(result, name)} ({one.count} times)"
        for name, one in switches.items()
    ]
    if not taken:
        return []
    pause = f", and {result.plan.settle_seconds:g} s of pause after each" if result.plan.settle_seconds else ""
    return [f"A switch took, in the median, {wording.join(taken)}{pause}."]


def of_host(analysis: HostAnalysis) -> list[str]:
    """Return what SMT off, or another arm, costs beside what decides, one sentence each."""
    costs = _other_side(analysis.comparisons)
    result, comparisons, whole = analysis.result, analysis.comparisons, analysis.of_smt
    for one in comparisons:
        if (
            one["effect"] in ("cost_of_sharing", "cost_of_sharing_alone")
            and one["primary"]
            and one["verdict"] != "inconclusive"
        ):
            cost = smt_metrics.of_comparison(one["effect"], one)
            what = "work" if one["better"] == "higher" else one["metric"]
            costs.append(
                f"Cost of sharing a core, {one['title']}: while another runs on its sibling, a worker's {what} changes"
                f" by {wording.change_and_interval(cost.change)}."
            )
    costs.extend(
        f"One worker alone, {wording.subject_of(one)}: {wording.change_and_interval(change.Change.read(one))} with"
        f" {recorded.arm_title(result, one['effect'])}, {wording.VERDICT_TITLES[one['verdict']]}."
        for one in comparisons
        if (one["kind"], one["placement"]) == ("arm", placements.SINGLE)
        and one["primary"]
        and one["verdict"] in ("gain", "loss")
        and not one["confounded"]
        # Else it is said first.
        and (whole or not host_comparisons.is_of_smt(one))
    )
    costs += _narrower(comparisons)
    same = _of_the_same_work(result, comparisons)
    costs += wording.first_of(list(same.values()), "workloads", [word for word, _place in same])
    costs += _switching(result)
    names = exposure.exposed(result)
    if names:
        costs.append(
            f"With SMT on the kernel calls this host vulnerable to {wording.join(names)}; speed says nothing about"
            " that."
        )
    for arm in exposure.of_arms(result):
        opened = [name for name, state in arm.states.items() if state == exposure.OPENED]
        if opened:
            costs.append(
                f"{wording.capital(arm.title)} ends the mitigation of {wording.join(opened)} ({arm.basis}); speed says"
                " nothing about that."
            )
    return [*costs, *_observed(result)]


def _of_the_same_work(result: HostResult, comparisons: t.Iterable[Comparison]) -> dict[tuple[str, t.Any], str]:
    """Return a sentence for each workload whose work is the same in two arms and costs more or less in one of them, by
    whether that is better, and where.
    """
    found = host_comparisons.at_widest(comparisons, every_metric=True)
    same = {place_of(one): one for one in found if one["primary"] and one["verdict"] == paired.EQUIVALENT}
    named = work_costs.TITLES
    return {
        (_word(one), (one["metric"], place_of(one))): (
            f"{one['title']}, {one['candidate']['arm_title']} against {one['baseline']['arm_title']}: the same"
            f" {same[place_of(one)]['metric']}, and its {named[one['metric']]} change by {wording.judged(one)}"
            f"{_charged(result, one)}."
        )
        for one in found
        if one["metric"] in work_costs.METRICS
        and one["verdict"] in DECIDED
        and not one["confounded"]
        and place_of(one) in same
    }


def _charged(result: HostResult, one: Comparison) -> str:
    """Say where a change of CPU time is one of the number of threads that are charged for the same time."""
    before, after = outcomes.ran(result, one) or (0, 0)
    if one["metric"] != work_costs.CPU_BY_WORK or before == after:
        return ""
    return f": {'fewer' if after < before else 'more'} threads are charged for the same time"


def _word(one: Comparison) -> str:
    return wording.VERDICT_TITLES[one["verdict"]]


def _narrower(comparisons: t.Sequence[Comparison]) -> list[str]:
    """Describe what SMT off does to several workers that leave a part of the machine idle, where that is the opposite
    of what it does to the whole machine.
    """
    opposite = {one["workload"]: DECIDED.get(one["verdict"]) for one in host_comparisons.of_smt(comparisons)}
    found = [
        host_comparisons.as_of_smt_off(one)
        for one in comparisons
        if one["kind"] == "arm"
        and one["primary"]
        and one["placement"] not in (host_comparisons.WHOLE_MACHINE, placements.SINGLE)
        and placements.numbered(one["placement"]) is None
        and host_comparisons.is_of_smt(one)
        and not one["confounded"]
    ]
    against = [one for one in found if one["verdict"] == opposite.get(one["workload"])]
    sentences = [
        f"With {placements.title(one['placement'])} turning SMT off changes {wording.subject_of(one)} by"
        f" {wording.judged(one)}."
        for one in against
    ]
    return wording.first_of(sentences, "placements", list(map(_word, against)))


def _other_side(comparisons: t.Sequence[Comparison]) -> list[str]:
    found = [*beside_equal(comparisons), *against_primary(comparisons)]
    sentences = [
        f"The other side of it, {one['title']}: with {one['candidate']['arm_title']}"
        f" {work_costs.TITLES.get(one['metric'], one['metric'])} changes by {wording.judged(one)}."
        for one in found
    ]
    return wording.first_of(sentences, "metrics", list(map(_word, found)))


def beside_equal(comparisons: t.Sequence[Comparison]) -> list[Comparison]:
    """Return the response times that an arm changes while the workload's primary metric stays the same, those that
    became worse first. Other times follow from how many workers there are.
    """
    found = [
        one
        for one in _further(comparisons, paired.EQUIVALENT)
        if one["verdict"] in DECIDED and (one["aggregate"] == "max" or one["metric"].startswith("latency_"))
    ]
    return sorted(found, key=lambda one: one["verdict"] != paired.LOSS)


def against_primary(comparisons: t.Sequence[Comparison]) -> list[Comparison]:
    """Return the further metrics on which an arm has the opposite effect of that on the workload's primary metric. CPU
    time is none of them: beside a busy sibling a thread is charged for all of its time (docs/measures.md).
    """
    return [
        one
        for verdict, opposite in DECIDED.items()
        for one in _further(comparisons, verdict)
        if one["verdict"] == opposite and one["metric"] != work_costs.CPU_BY_WORK
    ]


def _further(comparisons: t.Sequence[Comparison], verdict: str) -> list[Comparison]:
    """Return the further metrics of workloads with this verdict of their primary metric, of SMT off against SMT on and
    of other arms.
    """
    every = [
        host_comparisons.as_of_smt_off(one) if host_comparisons.is_of_smt(one) else one
        for one in host_comparisons.at_widest(comparisons, every_metric=True)
    ]
    asked = {place_of(one) for one in every if one["primary"] and one["verdict"] == verdict}
    # A most load is of all loads: what is served at each of them is beside it.
    most = {
        place[:1] + place[2:]
        for place, one in ((place_of(one), one) for one in every)
        if place in asked and one["metric"] == limits.MOST_LOAD
    }
    return [
        one
        for one in every
        if not one["primary"]
        and not one["confounded"]
        and ((place := place_of(one)) in asked or place[:1] + place[2:] in most)
    ]
