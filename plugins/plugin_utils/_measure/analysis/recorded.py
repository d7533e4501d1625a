# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a result has of its arms, workloads and samples, read in one place.

A key of samples is (workload, placement, arm, parameter value).
"""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary.arms import AS_FOUND, SMT_OFF, SMT_ON
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import (
    HostResult,
    NamedArm,
    Sample,
    Telemetry,
    Workload,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import limits, paired

# workload, placement, arm, parameter value
Key = tuple[str, str, str, float | None]
# Samples by key, and by block or pair of boots.
Samples = dict[Key, dict[int, list[Sample]]]

OF_SMT = (SMT_ON, SMT_OFF)
_NO_TELEMETRY = Telemetry()


def asked_arms(result: HostResult) -> tuple[NamedArm, ...]:
    """Return the arms that were asked for, measured or not, the baseline first."""
    return (*result.arms, *result.arms_left_out)


def arm_title(result: HostResult, name: str) -> str:
    """Return the title of an arm of this result."""
    return next((arm.title for arm in asked_arms(result) if arm.name == name), name)


def restored(result: HostResult) -> str:
    """Return one sentence on whether the host is back in its original state."""
    proof = result.restored
    if proof is None or proof.ok is None:
        return "It is not known whether the host was restored: the result has no record of it."
    if proof.ok:
        return "The host was read back afterwards and is in its original state."
    return f"The host is NOT in its original state: {'; '.join(proof.differences or ['no details'])}."


def is_compared(result: HostResult) -> bool:
    """Return whether a result compares arms."""
    return len(result.arms) > 1


def why_not_compared(result: HostResult) -> str:
    """Return why a result compares no arms."""
    left_out = result.arms_left_out
    return left_out[0].reason if left_out else "no other arm was asked for"


def other_arms(result: HostResult) -> dict[str, str]:
    """Return the arms that were asked for and have nothing to do with SMT: name -> title."""
    return {arm.name: arm.title for arm in asked_arms(result) if arm.name not in (*OF_SMT, AS_FOUND)}


def concerns_smt(result: HostResult) -> bool:
    """Return whether a run asks for SMT on or off: it has both arms, or no other arm than these."""
    names = {arm.name for arm in asked_arms(result)}
    return names >= set(OF_SMT) or not other_arms(result)


def sampled_as(result: HostResult, placement: str, arm: str) -> str:
    """Return the placement whose samples stand for ``placement``: the plan measures the same set of CPUs only once."""
    spot = (result.plan.placements or {}).get(arm, {}).get(placement)
    return (spot and spot.same_as) or placement


def declaration(result: HostResult, name: str) -> Workload:
    """Return the plan's declaration of a workload."""
    return next(workload for workload in result.plan.workloads or () if workload.name == name)


def primary_metrics(result: HostResult) -> dict[str, str]:
    """Return the metric of each workload that decides: name of the workload -> name of the metric."""
    return {workload.name: workload.primary for workload in result.plan.workloads or ()}


def full_loads(result: HostResult) -> dict[str, float]:
    """Return the highest load of each workload whose parameter is the load that each worker is offered:
    name -> value.
    """
    return {
        workload.name: max(workload.parameter.values)
        for workload in result.plan.workloads or ()
        if workload.parameter and workload.parameter.per_worker
    }


def good_value(sample: Sample, metric: str, or_zero: bool = False) -> float | None:
    """Return a metric of a successful sample, else None; also None for values that are not above zero, but for 0 itself
    where that is asked for, or are implausibly large.
    """
    measured = sample.metrics.get(metric) if sample.ok else None
    if measured is None or measured.value is None:
        return None
    return (
        float(measured.value)
        if paired.LEAST <= measured.value <= paired.MOST or (or_zero and measured.value == 0)
        else None
    )


def is_within_limit(result: HostResult, sample: Sample) -> bool:
    """Return whether a sample's response time is within the limit of its workload; true where there is none."""
    declared = declaration(result, sample.workload)
    limit = declared.response_limit or float("inf")
    return not limits.response_metric(declared) or limits.response(declared, sample) <= limit


def sometimes_zero(result: HostResult) -> set[tuple[str, str]]:
    """Return the workloads and their further metrics that are 0 in a successful sample, as a number of errors is."""
    good = [sample for sample in result.samples if sample.ok]
    zeros = {(sample.workload, name) for sample in good for name, metric in sample.metrics.items() if metric.value == 0}
    return zeros - set(primary_metrics(result).items())


def telemetry_of(sample: Sample) -> Telemetry:
    """Return what was recorded beside the work of a sample; empty where nothing was."""
    return sample.telemetry or _NO_TELEMETRY


def cpus_of(text: t.Any) -> tuple[int, ...]:
    """Return the CPUs of a kernel CPU list, or none for a value that is not one."""
    try:
        return cpulist.parse(text) if isinstance(text, str) else ()
    except cpulist.CpuListError:
        return ()


def by_key(result: HostResult, by_pair: bool = False) -> Samples:
    """Group samples by key, and by block or pair of boots."""
    samples: Samples = {}
    for sample in itertools.chain(result.samples, limits.samples(result)):
        blocks = samples.setdefault((sample.workload, sample.placement, sample.arm, sample.parameter), {})
        pair = sample.pair if by_pair else None
        blocks.setdefault(sample.block if pair is None else pair, []).append(sample)
    return samples


def good_values(blocks: dict[int, list[Sample]], metric: str, or_zero: bool = False) -> dict[int, list[float]]:
    """Return the good values of a metric by block; a block with failed samples only has an empty list."""
    return {
        block: [value for sample in samples if (value := good_value(sample, metric, or_zero)) is not None]
        for block, samples in blocks.items()
    }
