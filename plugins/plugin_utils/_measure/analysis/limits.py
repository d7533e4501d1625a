# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The most load within a limit of response times, in each arm and placement, block by block.

A workload that is measured at several loads under a limit of its response times has this for an answer. The loads that
were measured are its resolution: nothing is interpolated between them. A load whose sample fails was not sustained, so
that it counts as over the limit.
"""

from __future__ import annotations

import itertools
import math
import statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import units
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import response_limit
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import (
    DeclaredMetric,
    HostResult,
    Sample,
    Value,
    Workload,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired, smt_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Judged

# Name of the metric: it is of the whole machine, so that it adds up over workers.
MOST_LOAD = "most_load"

# The samples of the loads of a workload in one block: load -> response time in seconds, infinite where it failed.
Responses = dict[float, float]
# workload, placement, arm, block, boot, pair
_Group = tuple[str, str, str, int, "int | None", "int | None"]


def limited(result: HostResult) -> dict[str, Workload]:
    """Return the workloads with a limit whose response times are measured at several loads of the whole machine, by
    name.
    """
    return {
        workload.name: workload
        for workload in result.plan.workloads or ()
        if workload.response_limit is not None
        and workload.parameter
        and MOST_LOAD not in workload.metrics
        and response_metric(workload)
    }


def response_metric(workload: Workload) -> str | None:
    """Return the name of a workload's response time, or None where it declares none, or of a worker's own load."""
    if workload.parameter and workload.parameter.per_worker:
        return None
    return response_limit.carrier(
        (name, metric.unit, metric.better, metric.aggregate) for name, metric in workload.metrics.items()
    )


def meaning(workload: Workload, metric: str) -> DeclaredMetric:
    """Return what a metric of a workload is, the most load included."""
    if metric != MOST_LOAD or MOST_LOAD in workload.metrics or workload.parameter is None:
        return workload.metrics[metric]
    return DeclaredMetric(unit=workload.parameter.unit or workload.parameter.name, better="higher", aggregate="sum")


def within(seconds: float | None) -> str:
    """Return a limit as ``within 2 s`` or ``within 300 ms``."""
    time = seconds or 0.0
    return f"within {time:g} s" if time >= 1 else f"within {1000 * time:g} ms"


def samples(result: HostResult) -> list[Sample]:
    """Return the most load within its limit as a sample of each block, placement and arm, without a parameter.

    A sample fails where no load that was measured is within the limit. There is none where loads are missing below the
    first one over the limit, and none of a workload whose limit was nowhere exceeded: its most load is not known.
    """
    kept = []
    for name, workload in limited(result).items():
        limit = workload.response_limit or 0.0
        groups = responses_by_load(result, workload)
        loads: dict[str, set[float]] = {}
        for group, responses in groups.items():
            loads.setdefault(group[1], set()).update(responses)
        if not any(response > limit for responses in groups.values() for response in responses.values()):
            continue
        for (_name, placement, arm, block, boot, pair), responses in groups.items():
            known = list(itertools.takewhile(responses.__contains__, sorted(loads[placement])))
            if len(known) < len(loads[placement]) and all(responses[load] <= limit for load in known):
                continue
            most = smt_metrics.most_clients({load: responses[load] for load in known}, limit)
            unit = meaning(workload, MOST_LOAD).unit
            kept.append(
                Sample(
                    workload=name,
                    placement=placement,
                    arm=arm,
                    block=block,
                    boot=boot,
                    pair=pair,
                    ok=most is not None,
                    metrics={} if most is None else {MOST_LOAD: Value(value=most, unit=unit, better="higher")},
                )
            )
    return kept


def not_sustained(result: HostResult) -> frozenset[int]:
    """Return the places in a result of the failed samples that are an answer: their load was not sustained, while in
    the same block a smaller one was, or where none was, one of another arm or placement was within the limit.
    """
    least: dict[_Group, float] = {}
    served = set()
    for name, workload in limited(result).items():
        for group, responses in responses_by_load(result, workload).items():
            least[group] = min((load for load, response in responses.items() if response < math.inf), default=math.inf)
            if min(responses.values()) <= (workload.response_limit or 0.0):
                served.add((name, *group[3:]))
    return frozenset(
        place
        for place, sample in enumerate(result.samples)
        if not sample.ok and sample.parameter is not None and (group := _group(sample)) in least
        if sample.parameter > least[group] or (least[group] == math.inf and (group[0], *group[3:]) in served)
    )


def of_loads(
    before: t.Sequence[t.Sequence[float]],
    after: t.Sequence[t.Sequence[float]],
    alone: t.Sequence[int],
    judged: Judged,
) -> dict[str, t.Any]:
    """Return what a comparison of most loads says: loads that were measured, no interval where no block differs, and no
    verdict against which blocks speak that have no ratio.

    Args:
        before: the baseline's loads in each block.
        after: the candidate's.
        alone: in how many more blocks the baseline alone serves a load, and the candidate alone.
        judged: their comparison by :func:`paired.compare_family`.
    """
    sides = [[load for block in side for load in block] for side in (before, after)]
    base, candidate = map(statistics.median_low, sides)
    ratio = float(f"{candidate / base:.11g}")
    against = {paired.GAIN: alone[0], paired.LOSS: alone[1], paired.EQUIVALENT: sum(alone)}.get(judged.verdict)
    verdict = paired.INCONCLUSIVE if against else judged.verdict
    fields = {"baseline_value": base, "candidate_value": candidate, "ratio": ratio, "verdict": verdict}
    if judged.ci_low is None or judged.ci_high is None or all(len(set(side)) == 1 for side in sides):
        same = "the same loads in each block: they do not scatter, so there is no interval"
        ends: dict[str, t.Any] = {
            "ci_low": None,
            "ci_high": None,
            "minimum_detectable": None,
            "method": f"{judged.method}; {same}",
        }
    else:
        ends = {"ci_low": min(judged.ci_low, ratio), "ci_high": max(judged.ci_high, ratio)}
    return {**fields, **ends}


def level(blocks: t.Sequence[t.Sequence[float]], span: paired.Span) -> paired.Span:
    """Return the summary of one side with a load that was measured, and no interval where no block differs.

    Args:
        blocks: the loads in each block that has any.
        span: their summary by :func:`paired.level`.
    """
    loads = [load for block in blocks for load in block]
    if not loads:
        return span
    most = span._replace(value=statistics.median_low(loads))
    return most if len(set(loads)) > 1 else most._replace(low=None, high=None)


def responses_by_load(result: HostResult, workload: Workload) -> dict[_Group, Responses]:
    """Return the response times of each block, placement and arm of a workload."""
    groups: dict[_Group, Responses] = {}
    for sample in result.samples:
        if sample.workload == workload.name and sample.parameter is not None:
            responses = groups.setdefault(_group(sample), {})
            responses[sample.parameter] = max(response(workload, sample), responses.get(sample.parameter, 0.0))
    return groups


def _group(sample: Sample) -> _Group:
    return sample.workload, sample.placement, sample.arm, sample.block, sample.boot, sample.pair


def response(workload: Workload, sample: Sample) -> float:
    """Return a sample's response time in seconds; infinity where it failed or has none above zero."""
    name = response_metric(workload) or ""
    value = sample.metrics[name].value if sample.ok and name in sample.metrics else None
    return value * units.SECONDS[workload.metrics[name].unit] if value is not None and value > 0 else math.inf
