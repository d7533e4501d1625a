# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a choice costs, and what else it changes."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    costs as work_costs,
    limits,
    paired,
    recorded,
    smt_metrics,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import outcomes
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_arms import exposure
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import OPPOSITE
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

MIB = 1024 * 1024
OVERCOMMIT_TESTS = {
    "enomem": "it was refused at once (ENOMEM)",
    "oom_killed": "it was promised them, and killed when it used them",
    "survived": "it was promised them, and could use them",
}


def _observed(result: HostResult) -> list[str]:
    """Describe the result of the overcommit test under each memory policy."""
    sentences = []
    for observation in result.observations or ():
        outcome = observation.overcommit_test and OVERCOMMIT_TESTS.get(observation.overcommit_test.outcome)
        if outcome and observation.asked_bytes:
            where = recorded.arm_title(result, observation.arm)
            sentences.append(
                f"A process that asked for {observation.asked_bytes / MIB:.0f} MiB and was confined to a part of them,"
                f" {where}: {outcome}."
            )
    return sentences


def _switching(result: HostResult) -> list[str]:
    """Say what switching itself took: it is a time in which the host's work stands still or stutters."""
    switches = result.plan.switches or {}
    taken = [
        f"{switch.seconds:.2g} s to {recorded.arm_title(result, name)} ({switch.count} times)"
        for name, switch in switches.items()
    ]
    if not taken:
        return []
    pause = f", and {result.plan.settle_seconds:g} s of pause after each" if result.plan.settle_seconds else ""
    return [f"A switch took, in the median, {wording.join(taken)}{pause}."]


def of_host(analysis: HostAnalysis) -> list[str]:
    """Return what SMT off, or another arm, costs beside what decides, one sentence each."""
    costs = _other_side(analysis.comparisons)
    result, comparisons, whole = analysis.result, analysis.comparisons, analysis.of_smt
    for comparison in comparisons:
        if (
            comparison.effect in ("cost_of_sharing", "cost_of_sharing_alone")
            and comparison.primary
            and comparison.verdict != "inconclusive"
        ):
            cost = smt_metrics.of_comparison(comparison.effect, comparison.aggregate, comparison)
            what = "work" if comparison.better == "higher" else comparison.metric
            costs.append(
                f"Cost of sharing a core, {comparison.title}: while another runs on its sibling, a worker's {what}"
                f" changes by {wording.change_and_interval(cost.change)}."
            )
    costs.extend(
        f"One worker alone, {comparison.subject}:"
        f" {wording.change_and_interval(comparison.change)} with"
        f" {recorded.arm_title(result, comparison.effect)}, {comparison.word}."
        for comparison in comparisons
        if (comparison.kind, comparison.placement) == ("arm", placements.SINGLE)
        and comparison.primary
        and comparison.verdict in ("gain", "loss")
        and not comparison.confounded
        # Else it is said first.
        and (whole or not comparison.is_of_smt)
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
    every = host_comparisons.at_widest(comparisons, every_metric=True)
    same = {
        comparison.place: comparison
        for comparison in every
        if comparison.primary and comparison.verdict == paired.EQUIVALENT
    }
    named = work_costs.TITLES
    return {
        (comparison.word, (comparison.metric, comparison.place)): (
            f"{comparison.title}, {comparison.candidate.arm_title} against"
            f" {comparison.baseline.arm_title}: the same"
            f" {same[comparison.place].metric}, and its {named[comparison.metric]} change by"
            f" {comparison.in_words}"
            f"{_charged(result, comparison)}."
        )
        for comparison in every
        if comparison.metric in work_costs.METRICS
        and comparison.is_called
        and not comparison.confounded
        and comparison.place in same
    }


def _charged(result: HostResult, comparison: Comparison) -> str:
    """Say where a change of CPU time is one of the number of threads that are charged for the same time."""
    before, after = outcomes.ran(result, comparison) or (0, 0)
    if comparison.metric != work_costs.CPU_BY_WORK or before == after:
        return ""
    return f": {'fewer' if after < before else 'more'} threads are charged for the same time"


def _narrower(comparisons: t.Sequence[Comparison]) -> list[str]:
    """Describe what SMT off does to several workers that leave a part of the machine idle, where that is the opposite
    of what it does to the whole machine.
    """
    opposite = {
        comparison.workload: OPPOSITE.get(comparison.verdict) for comparison in host_comparisons.of_smt(comparisons)
    }
    narrower = [
        comparison.of_smt_off()
        for comparison in comparisons
        if comparison.kind == "arm"
        and comparison.primary
        and comparison.placement not in (host_comparisons.WHOLE_MACHINE, placements.SINGLE)
        and placements.numbered(comparison.placement) is None
        and comparison.is_of_smt
        and not comparison.confounded
    ]
    against = [comparison for comparison in narrower if comparison.verdict == opposite.get(comparison.workload)]
    sentences = [
        f"With {placements.title(comparison.placement)} turning SMT off changes {comparison.subject}"
        f" by {comparison.in_words}."
        for comparison in against
    ]
    return wording.first_of(sentences, "placements", [comparison.word for comparison in against])


def _other_side(comparisons: t.Sequence[Comparison]) -> list[str]:
    further = [*beside_equal(comparisons), *against_primary(comparisons)]
    sentences = [
        f"The other side of it, {comparison.title}: with {comparison.candidate.arm_title}"
        f" {work_costs.TITLES.get(comparison.metric, comparison.metric)} changes by {comparison.in_words}."
        for comparison in further
    ]
    return wording.first_of(sentences, "metrics", [comparison.word for comparison in further])


def beside_equal(comparisons: t.Sequence[Comparison]) -> list[Comparison]:
    """Return the response times that an arm changes while the workload's primary metric stays the same, those that
    became worse first. Other times follow from how many workers there are.
    """
    further = [
        comparison
        for comparison in _further(comparisons, paired.EQUIVALENT)
        if comparison.is_called and (comparison.aggregate == "max" or comparison.metric.startswith("latency_"))
    ]
    return sorted(further, key=lambda comparison: comparison.verdict != paired.LOSS)


def against_primary(comparisons: t.Sequence[Comparison]) -> list[Comparison]:
    """Return the further metrics on which an arm has the opposite effect of that on the workload's primary metric. CPU
    time is none of them: beside a busy sibling a thread is charged for all of its time (docs/measures.md).
    """
    return [
        comparison
        for verdict, opposite in OPPOSITE.items()
        for comparison in _further(comparisons, verdict)
        if comparison.verdict == opposite and comparison.metric != work_costs.CPU_BY_WORK
    ]


def _further(comparisons: t.Sequence[Comparison], verdict: str) -> list[Comparison]:
    """Return the further metrics of workloads with this verdict of their primary metric, of SMT off against SMT on and
    of other arms.
    """
    every = [comparison.of_smt_off() for comparison in host_comparisons.at_widest(comparisons, every_metric=True)]
    asked = {comparison.place for comparison in every if comparison.primary and comparison.verdict == verdict}
    # A most load is of all loads: what is served at each of them is beside it.
    most = {
        place[:1] + place[2:]
        for place, comparison in ((comparison.place, comparison) for comparison in every)
        if place in asked and comparison.metric == limits.MOST_LOAD
    }
    return [
        comparison
        for comparison in every
        if not comparison.primary
        and not comparison.confounded
        and ((place := comparison.place) in asked or place[:1] + place[2:] in most)
    ]
