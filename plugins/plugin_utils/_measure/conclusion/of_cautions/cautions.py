# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes the numbers of a host less sure than they look."""

from __future__ import annotations

import collections
import typing as t
from statistics import median

from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import (
    source as sibling_source,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import quotas
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    limits,
    measures,
    recorded,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.measures import Level
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import outcomes
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions import disturbances, spread
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_loads import load_limit
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

# How values of workers are combined that say what one of them has.
OF_EACH_WORKER = ("mean", workload_metrics.MEAN_PER_JOB, "max")
# From which ratio on arithmetic means are named of what is 0 in some samples, and so has no verdict.
FAR_APART = 2.0
# Programs that one caution names.
MAX_NAMED = 3
# Shares of stolen time above this are reported.
NOTABLE_SHARE = 0.01


def of_host(analysis: HostAnalysis) -> list[str]:
    """Return the cautions about a host's result, one sentence each."""
    result, comparisons = analysis.result, analysis.comparisons
    return [
        *_of_the_run(result),
        *_of_disturbances(analysis),
        *load_limit.cautions(analysis),
        *wording.first_of(_of_each_worker(result, comparisons), "workloads"),
        *wording.first_of(list(zeros := zero_on_one_side(analysis)), "metrics", list(zeros.values())),
        *_tails(comparisons),
    ]


def of_disturbances(analysis: HostAnalysis) -> list[str]:
    """Return what disturbed the measurement: other work, a hypervisor that took time, quotas and heat; not what is
    uncertain about the host itself, such as its siblings.
    """
    result = analysis.result
    cautions = background_load(result)
    used = disturbances.work_of_others(result)
    if used is not None and not cautions:
        # The median worker does not show one process that keeps a CPU busy.
        cautions.append(f"Other processes used {used:.1f} CPUs during the samples. Measure again when they do not run.")
    cautions += _stolen_time(result)
    stopped = [failure for failure in failures(result) if failure.reason.startswith(quotas.REFUSED)]
    if stopped:
        count = sum(failure.samples for failure in stopped)
        reason = wording.clause(stopped[0].reason)
        cautions.append(f"{count} of {len(result.samples)} samples failed: {reason}.")
    hot = [events > 0 for sample in result.samples if (events := recorded.telemetry_of(sample).throttled) is not None]
    if hot and sum(hot) >= disturbances.THROTTLED * len(hot):
        share = wording.percent(sum(hot) / len(hot))
        cautions.append(f"In {share} of the samples cores were throttled, as heat does.")
    return [*cautions, *_of_disturbances(analysis)]


def _of_disturbances(analysis: HostAnalysis) -> list[str]:
    sentences = disturbances.cautions(analysis.result, analysis.comparisons)
    return wording.first_of(
        list(sentences), "comparisons", [f"of which {side} was disturbed" for side in sentences.values()]
    )


def _of_the_run(result: HostResult) -> list[str]:
    cautions = []
    if result.outcome != "completed":
        ended = "failed" if result.outcome == "failed" else "was interrupted"
        cautions.append(
            f"The run {ended}: {wording.clause(result.message or 'no message was left')}. What it had measured until"
            " then is shown."
        )
    samples = result.samples
    reasons: collections.Counter[str] = collections.Counter()
    places: collections.Counter[str] = collections.Counter()
    for failure in failures(result):
        reasons[failure.reason] += failure.samples
        title = measures.describe_workload(result, failure.workload).title
        places[f"{title} with {failure.arm_title}"] += failure.samples
    for usual, count in reasons.most_common(1):
        left_out = "their blocks are left out of the comparisons they belong to"
        why = f"Of {'all' if count == reasons.total() else 'most'} the reason is"
        if reasons.total() == 1:
            left_out, why = "its block is left out of the comparisons it belongs to", "The reason is"
        (first, most), *others = places.most_common()
        where = f"{most} of them of {first}" if others else f"{'of' if most == 1 else 'all of'} {first}"
        cautions.append(
            f"{reasons.total()} of {len(samples)} samples failed, {where}; {left_out}. {why}: {wording.clause(usual)}."
        )
    cautions += [*_undeclared(result), *_consumers(result)]
    cautions += [*background_load(result), *_stolen_time(result), *_hypervisor(result)]
    if not result.facts.complete:
        cautions.append("The topology is not complete: the place of some CPUs is not known.")
    return cautions


def _stolen_time(result: HostResult) -> list[str]:
    stolen = [steal for sample in result.samples if (steal := recorded.telemetry_of(sample).steal) is not None]
    if not stolen or max(stolen) <= NOTABLE_SHARE:
        return []
    return [f"The hypervisor took up to {wording.percent(max(stolen))} of the CPU time away during a sample."]


def _undeclared(result: HostResult) -> list[str]:
    """Return cautions about workloads whose number nobody has said what it is of: of one operation, or of all."""
    return [
        f"{workload.title}: {name} was compared only between as many workers with as many CPUs, so not between SMT on"
        " and off with every thread busy, because it is not declared what it is of: set aggregate of the metric"
        " (per_operation, per_job, or max for a response time)."
        for workload in result.plan.workloads or ()
        for name, metric in list(workload.metrics.items())[:1]
        if metric.aggregate == workload_metrics.UNDECLARED and len(result.arms) > 1
    ]


def _consumers(result: HostResult) -> list[str]:
    """Return a caution about servers that count CPUs when they start, and did not count again in each arm."""
    counted = [consumer.has for consumer in result.facts.consumers_after_switch or ()]
    switched = len({arm.name for arm in result.arms} & set(recorded.OF_SMT)) > 1
    if not (counted and switched and any(workload.server for workload in result.plan.workloads or ())):
        return []
    named = [*counted[:MAX_NAMED], *([f"{len(counted) - MAX_NAMED} more"] if len(counted) > MAX_NAMED else [])]
    return [
        (
            "While SMT was switched, programs went on with the number of CPUs that they had counted:"
            f" {wording.join(named)}. Where a workload asks one of them, let smt_trial decide: with smt_trial_consumers"
            " they follow each switch."
        )
    ]


def _of_each_worker(result: HostResult, comparisons: t.Sequence[Comparison]) -> list[str]:
    """Return cautions about what one worker has, such as a response time, where one side ran more of them at once."""
    sentences = []
    for comparison in host_comparisons.at_widest(comparisons):
        declared = limits.meaning(recorded.declaration(result, comparison.workload), comparison.metric)
        ran = outcomes.ran(result, comparison)
        if declared.aggregate in OF_EACH_WORKER and comparison.parameter is None and len(set(ran)) > 1:
            sides = [
                f"with {side.arm_title} {wording.counted(count, 'worker')}"
                for side, count in zip((comparison.baseline, comparison.candidate), ran)
            ]
            sentences.append(
                f"{comparison.subject} is that of each worker, and {wording.join(sides)} ran at once: it"
                " does not say how much they did together."
            )
    return sentences


def failed_on_one_side(analysis: HostAnalysis) -> bool:
    """Return whether samples of SMT on or of SMT off failed with every online thread busy, and none of the other."""
    failed: dict[str, set[str]] = {}
    for failure in failures(analysis.result):
        whole = recorded.sampled_as(analysis.result, host_comparisons.WHOLE_MACHINE, failure.arm)
        if failure.placement == whole and failure.arm in recorded.OF_SMT:
            failed.setdefault(failure.workload, set()).add(failure.arm)
    return any(len(arms) == 1 for arms in failed.values())


def zero_on_one_side(analysis: HostAnalysis) -> dict[str, str]:
    """Return cautions about further metrics that are 0 in some samples, such as errors, and far apart in two arms or 0
    in one of them: there is no ratio, so they are not compared. Each with the arm that has most of it.
    """
    judged = {(comparison.workload, comparison.metric) for comparison in outcomes.served_by_one(analysis)}
    zeros, sides = recorded.sometimes_zero(analysis.result) - judged, {}
    by_place: dict[tuple[t.Any, ...], list[Level]] = {}
    for level in analysis.levels if zeros else ():
        if (level.workload, level.metric) in zeros and level.value is not None:
            place = level.workload, level.parameter, level.metric, level.placement
            by_place.setdefault(place, []).append(level)
    for (workload, parameter, metric, placement), levels in by_place.items():
        amounts = [level.value or 0.0 for level in levels]
        if placement == host_comparisons.WHOLE_MACHINE and max(amounts) > FAR_APART * min(amounts):
            title = measures.describe_workload(analysis.result, workload, parameter).title
            values = [f"{wording.amount(level.value or 0.0)} with {level.arm_title}" for level in levels]
            most = levels[amounts.index(max(amounts))].arm_title
            sides[f"{title}: {metric} was {wording.join(values)}, which has no ratio and no verdict."] = (
                f"with most of it with {most}"
            )
    return sides


def _hypervisor(result: HostResult) -> list[str]:
    """Return cautions about siblings that a hypervisor may report wrongly."""
    facts = result.facts
    if facts.source in sibling_source.NOT_THE_KERNELS:
        return [f"The siblings are those {facts.source}, not those that the kernel shows."]
    if facts.disagreement:
        return [
            f"{facts.disagreement} The placements are the kernel's, so what they compare is not what their names say."
        ]
    name = result.environment.hypervisor
    if not name or (facts.measured and facts.measured.agrees_with_kernel):
        return []
    known = "was measured and is not clear" if facts.measured else "was not measured (smt_eval_probe: always)"
    return [f"This host is a guest ({name}), and which of its CPUs share a core of the real machine {known}."]


def background_load(result: HostResult) -> list[str]:
    """Return a caution when background load used the measured CPUs, as workers show that have a CPU each,
    and work that does not pause.
    """
    full = recorded.full_loads(result)
    own = disturbances.alone(result)
    samples = [
        sample
        for sample in result.samples
        if sample.ok and sample.workload in own and sample.parameter == full.get(sample.workload, sample.parameter)
    ]
    shares = [share for sample in samples for share in disturbances.share_of_cpus(sample)]
    typical = median(shares) if shares else 1.0
    if typical >= disturbances.MIN_CPU_SHARE:
        return []
    # Workers that wait, as for a disk, leave their CPUs idle; other work does not.
    others = [used for sample in samples if (used := disturbances.others_by_worker(sample)) is not None]
    if others and median(others) < (1 - typical) / 2:
        return []
    load = result.environment.load_average
    average = f" (load average before the run: {load})" if isinstance(load, (int, float)) else ""
    return [
        (
            f"This host was too busy with other work to be measured well{average}: in the median a worker got"
            f" {wording.percent(typical)} of its CPU's time. Measure again when it is quiet."
        )
    ]


def _tails(comparisons: t.Sequence[Comparison]) -> list[str]:
    """Return cautions about typical values that say the opposite of means or tails, the largest first."""
    apart = sorted(spread.find(comparisons), key=lambda entry: -abs(entry.against_change))
    rises = ["of which the typical value rises" if entry.change > 0 else "of which it falls" for entry in apart]
    return wording.first_of(list(map(spread.caution, apart)), "metrics", rises)


class Missing(t.NamedTuple):
    """What was planned and not measured, and why; None means all."""

    workload: str | None
    placement: str | None
    arm: str | None
    arm_title: str | None
    reason: str


class Failure(t.NamedTuple):
    """Samples that failed, and why."""

    workload: str
    placement: str
    arm: str
    arm_title: str
    reason: str
    samples: int


def failures(result: HostResult) -> list[Failure]:
    """Count the failed samples by workload, placement, arm and reason, without those that only say that a load was not
    sustained (:func:`limits.not_sustained`).
    """
    counts: collections.Counter[tuple[str, str, str, str]] = collections.Counter()
    primary, answers = recorded.primary_metrics(result), limits.not_sustained(result)
    for place, sample in enumerate(result.samples):
        if place not in answers and recorded.good_value(sample, primary[sample.workload]) is None:
            reason = sample.error or "its value is not a rate or time above zero"
            counts[sample.workload, sample.placement, sample.arm, reason] += 1
    return [
        Failure(workload, placement, arm, recorded.arm_title(result, arm), reason, count)
        for (workload, placement, arm, reason), count in counts.items()
    ]


def not_measured(result: HostResult) -> list[Missing]:
    """Return what was planned and has no sample."""
    planned = (result.plan.placements or {}).items()
    missing = [
        *((None, None, arm.name, arm.reason) for arm in result.arms_left_out),
        *((skip.workload, skip.placement, skip.arm, skip.reason) for skip in result.skipped),
        *(
            (None, placement, arm, spot.reason or "no reason given")
            for arm, spots in planned
            for placement, spot in spots.items()
            if spot.workers is None
        ),
    ]
    return [
        Missing(workload, placement, arm, arm and recorded.arm_title(result, arm), reason)
        for workload, placement, arm, reason in missing
    ]
