# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU usage against work: how much of a machine a workload used, the rate of a used CPU,
and how much more work is possible, by usage and in truth.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult, Sample
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    measures,
    paired,
    recorded,
    smt_metrics,
)

# The smallest usage for a meaningful rate per CPU.
MIN_USAGE = 1e-4
# A rate of at least this share of the highest is nearly the highest.
NEARLY = 0.98
# CPUs that are used for this share of the time are full; the share of a load's rise that is hardly more work.
FULL, RISE = 0.95, 0.1

Kind = tuple[str, str, "float | None"]


@dataclasses.dataclass(frozen=True)
class Usage:
    """The CPU usage of the good samples of one placement, arm and parameter value.

    Attributes:
        workload: name of the workload.
        placement: name of the placement.
        arm: name of the arm.
        parameter: value of the workload's parameter, or None.
        cpus: summed usage of the logical CPUs, 1 for one busy CPU.
        share: usage as a share of all logical CPUs' time, 0 to 1.
        rate: mean rate, summed over workers; None for a metric that is not a rate.
        achieved: rate by used CPU; None without a rate.
        by_usage: headroom that usage suggests, as a share of the rate; None without a rate.
        real: headroom as measured with every thread busy in the same arm, likewise; None where that was not measured.
        saturated: whether that is all there is (:func:`_is_saturated`), and not the least.
    """

    workload: str
    placement: str
    arm: str
    parameter: float | None
    cpus: float
    share: float
    rate: float | None
    achieved: float | None
    by_usage: paired.Span | None
    real: paired.Span | None
    saturated: bool

    def described(self) -> dict[str, t.Any]:
        """Return the fields as plain data."""
        spans = {name: span and span._asdict() for name, span in (("by_usage", self.by_usage), ("real", self.real))}
        return {**vars(self), **spans}

    def is_of_the_machine(self, result: HostResult) -> bool:
        """Return whether the workers kept all cores busy, or all threads."""
        return self.placement in {
            recorded.sampled_as(result, name, self.arm) for name in (placements.ONE_PER_CORE, placements.ALL_THREADS)
        }


def of_workload(
    result: HostResult, samples: t.Iterable[Sample], name: str, confidence: float = 0.95
) -> dict[Kind, Usage]:
    """Return the usage of each placement, arm and parameter value of a workload.

    Args:
        result: from :func:`result_files.load`.
        samples: of the workload.
        name: of the workload.
        confidence: of the intervals.
    """
    measure = measures.describe_workload(result, name)
    kinds: dict[Kind, list[Sample]] = {}
    for sample in samples:
        if recorded.good_value(sample, measure.metric) is not None:
            kinds.setdefault((sample.placement, sample.arm, sample.parameter), []).append(sample)
    rates = {
        kind: _by_block(members, lambda sample: recorded.good_value(sample, measure.metric))
        for kind, members in kinds.items()
    }
    capacity = _capacities(result, kinds, rates) if measure.adds_up else {}
    usages = {}
    for kind, every in kinds.items():
        if not (members := list(filter(_shares, every))):
            continue
        most, saturated = capacity.get(kind[1], ({}, False))
        shares = _by_block(members, _share)
        cpus = _mean([sum(_shares(sample)) for sample in members])
        rate = _mean(list(rates[kind].values())) if measure.adds_up else None
        usages[kind] = Usage(
            name,
            *kind,
            cpus=cpus,
            share=_mean(list(shares.values())),
            rate=rate,
            achieved=smt_metrics.achievement_rate(rate, cpus) if rate is not None and cpus >= MIN_USAGE else None,
            by_usage=None if rate is None else _headroom("by_usage", rates[kind], shares, rates[kind], confidence),
            real=_headroom("real", rates[kind], shares, most, confidence),
            saturated=saturated,
        )
    return usages


def _capacities(
    result: HostResult, kinds: t.Mapping[Kind, list[Sample]], rates: t.Mapping[Kind, dict[int, float]]
) -> dict[str, tuple[dict[int, float], bool]]:
    """Return the rates by block with every thread busy at a load above which the rate rises no more, and whether the
    highest load is saturated, by arm; of loads within the limit of response times.

    Of the loads with nearly the highest rate it is the highest load: the highest rate itself would be too high by what
    chance adds to the best of several.
    """
    full: dict[str, dict[float, Kind]] = {}
    for (placement, arm, parameter), members in kinds.items():
        is_whole = placement == recorded.sampled_as(result, placements.ALL_THREADS, arm)
        if is_whole and all(recorded.is_within_limit(result, sample) for sample in members):
            full.setdefault(arm, {})[parameter or 0.0] = placement, arm, parameter
    capacities = {}
    for arm, loads in full.items():
        by_load = {load: rates[kind] for load, kind in loads.items()}
        means = {load: _mean(list(blocks.values())) for load, blocks in by_load.items()}
        most = max(load for load, mean in means.items() if mean >= NEARLY * max(means.values()))
        capacities[arm] = by_load[most], _is_saturated(by_load, kinds[loads[max(loads)]])
    return capacities


def busy(samples: t.Iterable[Sample]) -> float | None:
    """Return the share of all CPUs' time that was used during these samples, None where no sample has it."""
    return _mean(known) if (known := list(map(_share, filter(_shares, samples)))) else None


def _is_saturated(rates: t.Mapping[float, t.Mapping[int, float]], highest_samples: list[Sample]) -> bool:
    """Return whether the highest load is all that can be done: its CPUs are full, or above a lower load the rate rises
    by at most :data:`RISE` of the load's rise, both as logarithms, with the upper end of its interval.

    With balanced jobs that share of the most work is still missing: J. Zahorjan et al., Balanced job bound analysis of
    queueing networks, Communications of the ACM 25 (1982).
    """
    highest = max(rates)
    for load, lower in rates.items():
        rise = paired.level([rate / lower[block] for block, rate in rates[highest].items() if block in lower])
        if 0 < load < highest and rise.value and (rise.high or rise.value) <= (highest / load) ** RISE:
            return True
    return (busy(highest_samples) or 0.0) >= FULL


def _headroom(
    which: str,
    rates: t.Mapping[int, float],
    shares: t.Mapping[int, float],
    capacity: t.Mapping[int, float],
    confidence: float,
) -> paired.Span | None:
    """Return a headroom as a share of the rate with its interval, from each block by itself:
    what its samples have in common cancels out.
    """
    rooms = [
        1 + smt_metrics.headroom(rate, shares[block], capacity[block])[which] / rate
        for block, rate in rates.items()
        if block in capacity and block in shares and MIN_USAGE <= shares[block] <= 1
    ]
    if not rooms or min(rooms) < paired.LEAST or max(rooms) > paired.MOST:
        return None
    level = paired.level(rooms, confidence)
    value, low, high = (None if end is None else end - 1 for end in level[:3])
    return paired.Span(value, low, high, level.n)


def _shares(sample: Sample) -> list[float]:
    """Return the usage of each logical CPU during a sample; none where it was not recorded."""
    return [share for share in (recorded.telemetry_of(sample).cpu_usage or {}).values() if share is not None]


def _share(sample: Sample) -> float:
    return _mean(_shares(sample))


def _by_block(samples: t.Iterable[Sample], value_of: t.Callable[[Sample], float | None]) -> dict[int, float]:
    """Return the mean over the samples of each block."""
    blocks: dict[int, list[float]] = {}
    for sample in samples:
        value = value_of(sample)
        if value is not None:
            blocks.setdefault(sample.block, []).append(value)
    return {block: _mean(values) for block, values in blocks.items()}


def _mean(values: t.Sequence[float]) -> float:
    return sum(values) / len(values)
