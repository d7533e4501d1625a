# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The most load within a limit of response times (:mod:`_measure.analysis.limits`), in words."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    limits,
    measures,
    paired,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Compared
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.measures import Level
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import outcomes
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

RESOLUTION = "of the loads measured"


def clause(result: HostResult, comparison: Compared, change: str) -> str:
    """Return what both arms serve: ``within 2 s SAP SD serves 650 users with SMT on against 550 with SMT off, +18 % in
    each block``. Of which loads that is said :func:`resolution` tells.

    Args:
        result: from :func:`result_files.load`.
        comparison: a comparison of most loads, from :meth:`Comparison.as_said`, or of :func:`outcomes.served_by_one`.
        change: its change, with its interval where it has one.
    """
    title = _title(result, comparison)
    # Of one side alone it is the other one's.
    values = [
        (comparison.candidate_value, comparison.candidate.arm_title),
        (comparison.baseline_value, comparison.baseline.arm_title),
    ]
    if comparison.metric != limits.MOST_LOAD:
        had = [f"{wording.amount(value or 0.0)} with {arm}" for value, arm in values[::-1]]
        return f"{title} {comparison.metric}: {wording.join(had)}, {wording.VERDICT_TITLES[comparison.verdict]}"
    (value, arm), (other_value, other) = sorted(values, key=lambda side: side[0] is None)
    serves = f"{limits.within(comparison.response_limit)} {title} serves {value:.15g} {comparison.unit}"
    blocks = (
        f"in {comparison.n} of {comparison.n + comparison.dropped_blocks} blocks" if comparison.dropped_blocks else ""
    )
    few = (
        f"not decided by {comparison.n} of at least {paired.MIN_BLOCKS} blocks"
        if comparison.n < paired.MIN_BLOCKS
        else ""
    )
    if other_value is None:
        none = f"{serves} with {arm}, and with {other} none {RESOLUTION}"
        return ", ".join(filter(None, [none, few or blocks]))
    if comparison.verdict == paired.EQUIVALENT:
        return f"{serves} with {arm} as with {other}, {RESOLUTION}"
    if few:
        change = few
    elif comparison.ci_low is None:
        change = f"{change} {blocks or 'in each block'}"
    elif blocks:
        change = f"{change} {blocks}"
    if not few and comparison.verdict == paired.INCONCLUSIVE:
        change = f"{change}, not decided"
    return f"{serves} with {arm} against {other_value:.15g} with {other}, {change}"


def resolution(result: HostResult, used: t.Sequence[Compared]) -> list[str]:
    """Return which loads were tried of workloads of which the most load is compared: nothing is known between them."""
    workloads = limits.limited(result)
    sentences = []
    for title, comparison in {
        _title(result, comparison): comparison for comparison in used if comparison.is_most_load
    }.items():
        parameter = workloads[comparison.workload].parameter
        tried = [f"{value:.15g}" for value in sorted(parameter.values if parameter else ())]
        loads = wording.join(tried) if len(tried) <= wording.NAMED else f"{len(tried)} loads, {tried[0]} to {tried[-1]}"
        sentences.append(f"{title} was measured with {loads} {comparison.unit} only.")
    return sentences


def _title(result: HostResult, comparison: Compared) -> str:
    """Return the name of the workload of a comparison without the unit of its loads."""
    return measures.describe_workload(result, comparison.workload).title.removesuffix(f", {comparison.unit}")


def cautions(analysis: HostAnalysis) -> list[str]:
    """Return sentences about limits that the loads measured say nothing of: none is over the limit, or none within it
    in an arm.
    """
    result = analysis.result
    answers = [level for level in analysis.levels if level.metric == limits.MOST_LOAD]
    sentences = []
    for name, workload in limits.limited(result).items():
        title = measures.describe_workload(result, name).title
        within = limits.within(workload.response_limit)
        of_one = [level for level in answers if level.workload == name]
        if not of_one and any(sample.workload == name and sample.ok for sample in result.samples):
            sentences.append(
                f"Each load of {title} that was measured is served {within}: measure higher loads to see the most."
            )
        for level in of_one:
            where = f"with {level.arm_title}, {placements.title(level.placement)}"
            if cold := outcomes.cold_starts(result, level):
                sentences.append(
                    f"{title}: {where}, the smallest load is over the limit in {wording.counted(cold, 'block')}, and"
                    " larger ones are within it: warm it up, and measure again."
                )
            elif level.value is None:
                why = _why_failed(result, level)
                sentences.append(
                    f"No load of {title} that was measured is served {within} {where}{why}: measure smaller loads."
                )
            elif level.failed:
                sentences.append(
                    f"No load of {title} that was measured is served {within} {where}, in {level.failed} of"
                    f" {level.n + level.failed} blocks, which are left out of its comparisons: measure smaller loads."
                )
    return sentences


def _why_failed(result: HostResult, level: Level) -> str:
    """Return the usual errors of the samples of a level that serves no load, in parentheses; nothing without one."""
    errors = collections.Counter(
        sample.error or "no reason given"
        for sample in result.samples
        if not sample.ok
        and (sample.workload, sample.placement, sample.arm) == (level.workload, level.measured_as, level.arm)
    )
    reasons = "; ".join(f"{count} of its samples failed: {error}" for error, count in errors.most_common(wording.NAMED))
    return f" ({reasons})" if reasons else ""
