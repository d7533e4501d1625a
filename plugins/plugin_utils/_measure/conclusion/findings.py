# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an evaluation was asked for beside SMT on against off, as sentences that are said first: what two factors do,
which CPUs share a core, and how much room is left.
"""

from __future__ import annotations

import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult, Workload
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    limits,
    measures,
    paired,
    smt_metrics,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_arms import factors
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording


def of_host(analysis: HostAnalysis) -> list[str]:
    """Return what a host's result says of the questions that its plan asked, in sentences."""
    return [*_factors(analysis), *_sharing(analysis.result, analysis.comparisons)]


def _factors(analysis: HostAnalysis) -> list[str]:
    factorials = factors.of_host(analysis)
    kinds = {True: "in which one factor depends on the other", False: "in which none is known to"}
    depends = [kinds[factorial.interaction.is_called] for factorial in factorials]
    return wording.first_of([factorial.sentence() for factorial in factorials], "workloads", depends)


def measured(analysis: HostAnalysis) -> list[str]:
    """Say what was measured where nothing can be compared, such as streams that the scheduler places: the primary
    metric of each workload at its widest placement, and at the highest value of its parameter.
    """
    sentences: dict[str, str] = {}
    for level in analysis.levels:
        if level.primary and level.value is not None:
            measure = measures.describe_workload(analysis.result, level.workload, level.parameter)
            ends = [wording.amount(end, 4) for end in (level.low, level.high) if end is not None]
            interval = f" ({' to '.join(ends)})" if ends else ""
            where, value = placements.title(level.placement), wording.amount(level.value, 4)
            sentences[level.workload] = f"{measure.title}, {where}: {value} {measure.unit}{interval}."
    return list(sentences.values())


def _sharing(result: HostResult, comparisons: t.Sequence[Comparison]) -> list[str]:
    """Say which of the explicit CPUs share a core, as two workers on them show, and whether the kernel says so, too.
    Where one workload loses too little for a single CPU, it is none, however much others lose.
    """
    siblings = [set(core) for core in result.facts.core_cpus]
    # Each was compared with the first one, which may itself be a core that two workers share.
    measured: dict[tuple[t.Any, ...], dict[str, tuple[float, float]]] = {}
    for comparison in comparisons:
        if (
            comparison.effect == host_comparisons.OTHER_CPUS
            and comparison.primary
            and comparison.n >= paired.MIN_BLOCKS
            and comparison.ci_low is not None
            and comparison.ci_high is not None
        ):
            first = comparison.baseline.placement
            key = *comparison.work, comparison.baseline.arm, first
            of_first = measured.setdefault(key, {first: (1.0, 1.0)})
            of_first[comparison.candidate.placement] = comparison.ci_low, comparison.ci_high
    shares: dict[tuple[int, ...], list[str]] = {}
    for spots in measured.values():
        fastest = max(spots.values(), key=math.prod)
        for name, (low, high) in spots.items():
            cpus = placements.explicit(name) or ()
            of_ends = {smt_metrics.what_two_share(end, 1.0) for end in (low / fastest[1], high / fastest[0])}
            if len(cpus) == 2 and len(of_ends) == 1:
                shares.setdefault(cpus, []).append(of_ends.pop())
    clauses = []
    for cpus, names in shares.items():
        is_known = any(set(cpus) <= core for core in siblings)
        pair = f"CPUs {cpus[0]} and {cpus[1]}"
        if "core" in names:
            kernel = "as the kernel says" if is_known else "and the kernel says otherwise"
            clauses.append(f"{pair} share a core, {kernel}.")
        elif "cpu" in names and is_known:
            clauses.append(f"{pair}, siblings of a core by the kernel, do no more work than one CPU.")
        elif "cpu" in names:
            clauses.append(f"{pair} are one CPU, and the kernel says otherwise.")
    return clauses


def room(analysis: HostAnalysis, workload: Workload) -> str | None:
    """Say how much room usage promises at the lowest load, and how much there is within the limit of response times, at
    least that where more load may bring more; None where that is not known, or both are the same.
    """
    result, metric = analysis.result, workload.metrics[workload.primary]
    if metric.better == "lower":
        return None
    usages = [
        usage
        for usage in analysis.usage.get(workload.name, {}).values()
        if usage.rate and usage.by_usage and usage.real and usage.parameter is not None
        if usage.saturated or (usage.real.value or 0.0) > 0
    ]
    if not usages:
        return None
    least = min(usages, key=lambda usage: (usage.arm != result.arms[0].name, usage.parameter or 0))
    promised, real = least.by_usage, least.real
    if not promised or not real or promised.low is None or real.high is None or promised.low <= real.high:
        return None
    at = measures.describe_workload(result, workload.name, least.parameter).title
    where = placements.title(least.placement)
    by_usage, in_truth = ((room.value or 0.0) * (least.rate or 0.0) for room in (promised, real))
    truth = f"for {'' if least.saturated else 'at least '}{wording.amount(in_truth)}" if in_truth > 0 else "for none"
    within = f" {limits.within(workload.response_limit)}" if workload.name in limits.limited(result) else ""
    promised_more = f"by CPU usage there is room for {wording.amount(by_usage)} {metric.unit} more"
    return f"{at}, {where}: {promised_more}, in truth {truth}{within}."
