# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is measured of a workload, and each metric in one placement and arm by itself."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import catalogue
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import limits, paired, recorded


@dataclasses.dataclass(frozen=True)
class Measure:
    """What is measured of a workload, as the plan declares it.

    Attributes:
        workload: name of the workload.
        title: of the workload, with the value of its parameter.
        metric: name of the metric.
        primary: whether it is the one that decides.
        unit: of the metric.
        better: ``higher`` or ``lower``.
        aggregate: how the values of workers become one.
        parameter: value of the workload's parameter, or None.
        response_limit: the limit of a most load in seconds, else None.
    """

    workload: str
    title: str
    metric: str
    primary: bool
    unit: str
    better: str
    aggregate: str
    parameter: float | None = None
    response_limit: float | None = None

    @property
    def adds_up(self) -> bool:
        """Whether the value of all workers is what they do together, so that it has a share for each CPU."""
        return (self.better, self.aggregate) == ("higher", "sum")

    def described(self) -> dict[str, t.Any]:
        """Return the fields as plain data, without those that are None."""
        return {name: value for name, value in vars(self).items() if value is not None}


def describe_workload(
    result: HostResult, name: str, parameter: float | None = None, metric: str | None = None
) -> Measure:
    """Return what is measured of a workload.

    Args:
        result: from :func:`result_files.load`.
        name: of the workload.
        parameter: value of its parameter, or None.
        metric: the metric, or None for the primary one.
    """
    declared = recorded.declaration(result, name)
    title, limit = catalogue.title(name, declared.title), None
    if parameter is not None and declared.parameter is not None:
        of_plan = declared.parameter
        # What is counted is often its own unit: "550 users", not "users 550 users".
        value = f"{parameter:.15g} {of_plan.unit or ''}".rstrip()
        value = value if of_plan.unit == of_plan.name else f"{of_plan.name} {value}"
        value = value.removesuffix("s") if of_plan.unit == of_plan.name and parameter == 1 else value
        title = f"{title.removesuffix(f', {of_plan.name}')}, {value}"
    metric = metric or declared.primary
    meaning = limits.meaning(declared, metric)
    if metric == limits.MOST_LOAD and metric not in declared.metrics:
        limit = declared.response_limit or 0.0
        title = f"{title}, most {meaning.unit} {limits.within(limit)}"
    return Measure(
        name,
        title,
        metric,
        metric == declared.primary,
        meaning.unit,
        meaning.better,
        meaning.aggregate,
        parameter if limit is None else None,
        limit,
    )


@dataclasses.dataclass(frozen=True)
class Level:
    """A metric of a workload in one placement and arm by itself.

    Attributes:
        workload: name of the workload.
        placement: name of the placement.
        arm: name of the arm.
        arm_title: of the arm.
        parameter: value of the workload's parameter, or None.
        metric: name of the metric.
        primary: whether it is the one that decides.
        value: mean over blocks, of a metric that is sometimes 0 the arithmetic one over samples; None where every
            sample failed.
        low: the lower end of its interval; None for fewer than two blocks, and for a metric that is sometimes 0.
        high: the upper end.
        n: number of blocks with a good sample.
        failed: number of the others.
        measured_as: the placement whose samples stand for this one.
    """

    workload: str
    placement: str
    arm: str
    arm_title: str
    parameter: float | None
    metric: str
    primary: bool
    value: float | None
    low: float | None
    high: float | None
    n: int
    failed: int
    measured_as: str

    def described(self) -> dict[str, t.Any]:
        """Return the fields as plain data."""
        return dict(vars(self))


def levels(result: HostResult, confidence: float = 0.95) -> list[Level]:
    """Summarise each metric of each workload in each placement and arm by itself, in the plan's order.

    These intervals include the drift from block to block: use the paired comparison to compare two of them.

    Args:
        result: from :func:`result_files.load`.
        confidence: of each interval, from 0.5 to 0.9999.
    """
    samples = recorded.by_key(result)
    limited, zeros = with_most_load(result, samples), recorded.sometimes_zero(result)
    rows = []
    for workload, placement, arm, parameter in _planned_keys(result, samples):
        measured_as = recorded.sampled_as(result, placement, arm)
        blocks = samples.get((workload, measured_as, arm, parameter))
        if blocks is None:
            continue
        declared = recorded.declaration(result, workload)
        metrics = sorted(declared.metrics, key=lambda name: name != declared.primary)
        for metric in [limits.MOST_LOAD] if parameter is None and workload in limited else metrics:
            with_zeros = (workload, metric) in zeros
            good = [values for values in recorded.good_values(blocks, metric, with_zeros).values() if values]
            if not good and metric not in (declared.primary, limits.MOST_LOAD):
                continue
            if with_zeros and good:
                span = paired.Span(statistics.fmean(itertools.chain(*good)), None, None, len(good))
            else:
                span = paired.level(good, confidence) if good else paired.Span(None, None, None, 0)
            if metric == limits.MOST_LOAD:
                span = limits.level(good, span)
            rows.append(
                Level(
                    workload=workload,
                    placement=placement,
                    arm=arm,
                    arm_title=recorded.arm_title(result, arm),
                    parameter=parameter,
                    metric=metric,
                    primary=metric == declared.primary,
                    value=span.value,
                    low=span.low,
                    high=span.high,
                    n=span.n,
                    failed=len(blocks) - len(good),
                    measured_as=measured_as,
                )
            )
    return rows


def _planned_keys(result: HostResult, samples: dict[recorded.Key, t.Any]) -> list[recorded.Key]:
    """Return every planned key, then any other key with samples."""
    parameters: dict[str, dict[float | None, None]] = {}
    for key in samples:
        parameters.setdefault(key[0], {})[key[3]] = None
    planned = [
        (workload.name, placement, arm, parameter)
        for workload in result.plan.workloads or ()
        for parameter in parameters.get(workload.name, [None])
        for arm, spots in (result.plan.placements or {}).items()
        for placement in spots
    ]
    workloads = list(dict.fromkeys(key[0] for key in [*planned, *samples]))
    arms = [arm.name for arm in result.arms]
    return sorted(
        dict.fromkeys([*planned, *samples]),
        key=lambda key: (workloads.index(key[0]), placements.rank(key[1]), arms.index(key[2]), key[:3], key[3] or 0),
    )


def with_most_load(result: HostResult, samples: t.Iterable[recorded.Key]) -> set[str]:
    """Return the workloads whose most load within a limit is known."""
    limited = limits.limited(result)
    return {key[0] for key in samples if key[0] in limited and key[3] is None}
