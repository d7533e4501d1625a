# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What disturbed one side of a comparison alone, which moves the ratio: what both had alike widens the interval."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult, Sample
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    recorded,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison

# A pinned, CPU-bound worker gets nearly all of its CPU's time: the rest goes to interrupts and short-lived tasks.
MIN_CPU_SHARE = 0.9
# From which difference of two sides on: in steal time, a share; in CPUs that others used, at least so many and so many
# for each worker; in frequency, a ratio.
STEAL, OTHERS, OTHERS_OF_WORKER, FREQUENCY = 0.02, 0.1, 0.05, 1.1
# What each CPU has by itself grows with their number, and disturbs no side more: others count from this ratio of what
# they used of a CPU without a worker on.
OTHERS_OF_CPU = 1.1
# A side is throttled where this share of its samples is, and the other side where not half as many are.
THROTTLED = 0.2


_CLAUSES = {
    "steal": "with {more.name} the hypervisor took {more.steal:.0%} of the CPU time, with {less.name} {less.steal:.0%}",
    "others": "with {more.name} other processes used {more.others:.1f} CPUs, with {less.name} {less.others:.1f}",
    "share": "with {less.name} a worker got {less.share:.0%} of its CPU's time, with {more.name} {more.share:.0%}",
    "throttled": "with {more.name} cores were throttled in {more.throttled:.0%} of the samples, with {less.name}"
    " in {less.throttled:.0%}",
    "frequency": "with {less.name} the CPUs ran at {less.frequency:.0f} MHz, with {more.name} at {more.frequency:.0f}",
}


@dataclasses.dataclass(frozen=True)
class _Side:
    """What one side's samples had beside their work, in the mean; None where it is not known: shares of the CPU time
    that the hypervisor took, and of its own CPU's that a worker got, CPUs that others used, the share of the samples in
    which a core was throttled, and MHz.
    """

    name: str
    workers: float
    cpus: float
    steal: float | None
    share: float | None
    others: float | None
    throttled: float | None
    frequency: float | None

    @property
    def idle(self) -> float:
        """The CPUs without a worker, on which others run."""
        return max(1.0, self.cpus - self.workers)


def cautions(result: HostResult, comparisons: t.Sequence[Comparison]) -> dict[str, str]:
    """Return a sentence for each comparison of a primary metric of which one side alone was disturbed, those of the
    whole machine first, each with the name of that side; arguments as in :func:`conclusion.conclude`.
    """
    keyed: dict[tuple[str, str, str], list[Sample]] = {}
    for sample in result.samples:
        if sample.ok:
            keyed.setdefault((sample.workload, sample.arm, sample.placement), []).append(sample)
    own = alone(result)
    sentences = {}
    for comparison in sorted(
        comparisons, key=lambda comparison: comparison.placement != host_comparisons.WHOLE_MACHINE
    ):
        of_arms = comparison.kind == "arm"
        sides = [
            _side(
                side.arm_title if of_arms else placements.title(spot),
                [
                    sample
                    for sample in keyed.get((comparison.workload, arm, recorded.sampled_as(result, spot, arm)), ())
                    if comparison.parameter in (None, sample.parameter)
                ],
                comparison.workload in own,
            )
            for side in (comparison.candidate, comparison.baseline)
            for arm, _title, spot in [side]
            if comparison.primary
        ]
        differences = _differences(sides[0], sides[1], of_arms) if sides else {}
        if differences:
            where = f" with {placements.title(comparison.placement)}" if of_arms else ""
            sentences[
                f"{comparison.title}, {sides[0].name} against {sides[1].name}{where}: {'; '.join(differences)}. So"
                " the difference is not theirs alone: measure again when nothing disturbs one side."
            ] = " and ".join(dict.fromkeys(differences.values()))
    return sentences


def alone(result: HostResult) -> set[str]:
    """Return the names of the workloads beside whose workers nothing runs by the plan."""
    return {workload.name for workload in result.plan.workloads or () if not workload.co_runners}


def share_of_cpus(sample: Sample) -> list[float]:
    """Return the shares of their CPUs' time that workers got; none where they do not have a CPU each."""
    cpus = [worker.cpus for worker in sample.workers or ()]
    if len(set(cpus)) != len(cpus) or not all(cpu.isdecimal() for cpu in cpus):
        return []
    return [
        worker.cpu_seconds / worker.wall_seconds
        for worker in sample.workers or ()
        if worker.cpu_seconds is not None and worker.wall_seconds
    ]


def work_of_others(result: HostResult) -> float | None:
    """Return how many CPUs other processes used in the mean of all samples; None where that is not more than CPUs have
    by themselves, or not known.
    """
    own = alone(result)
    samples = [sample for sample in result.samples if sample.ok and sample.workload in own and share_of_cpus(sample)]
    used = _mean(list(map(_others, samples))) or 0.0
    workers = _mean([len(sample.workers or ()) for sample in samples]) or 0.0
    return used if used > max(OTHERS, OTHERS_OF_WORKER * workers) else None


def _side(name: str, samples: t.Sequence[Sample], by_itself: bool) -> _Side:
    telemetry = [recorded.telemetry_of(sample) for sample in samples]
    share = _mean([part for sample in samples for part in share_of_cpus(sample)]) if by_itself else None
    return _Side(
        name,
        workers=_mean([len(sample.workers or ()) for sample in samples]) or 0.0,
        cpus=_mean([len(record.cpu_usage or ()) for record in telemetry]) or 0.0,
        steal=_mean([record.steal for record in telemetry if record.steal is not None]),
        share=share,
        # Workers that wait, as for a server, do not do the work themselves.
        others=_mean(list(map(_others, samples))) if share is not None and share >= MIN_CPU_SHARE / 2 else None,
        throttled=_mean([record.throttled > 0 for record in telemetry if record.throttled is not None]),
        frequency=_mean([value for record in telemetry for value in (record.frequency or {}).values() if value]),
    )


def _others(sample: Sample) -> float:
    """Return how many CPUs other processes used during a sample, which lasts as long as its slowest worker."""
    usage = (recorded.telemetry_of(sample).cpu_usage or {}).values()
    workers = sample.workers if share_of_cpus(sample) else ()
    longest = max((worker.wall_seconds or 0.0 for worker in workers or ()), default=0.0)
    own = sum(worker.cpu_seconds or 0.0 for worker in workers or ()) / longest if longest else 0.0
    return max(0.0, sum(share or 0.0 for share in usage) - own)


def others_by_worker(sample: Sample) -> float | None:
    """Return how many CPUs other processes used during a sample, by worker; None where that is not known."""
    workers = share_of_cpus(sample)
    return _others(sample) / len(workers) if workers and recorded.telemetry_of(sample).cpu_usage else None


def _differences(first: _Side, other: _Side, of_arms: bool) -> dict[str, str]:
    """Return a clause for each disturbance that one of two sides had, with the name of that side."""
    differences = {}
    for name, clause in _CLAUSES.items():
        more, less = sorted((first, other), key=lambda side: -(getattr(side, name) or 0.0))
        if None not in (getattr(more, name), getattr(less, name)) and _is_apart(name, more, less, of_arms):
            text = clause.format(more=more, less=less).replace("%", " %")
            differences[text] = (less if name in ("share", "frequency") else more).name
    return differences


def _is_apart(name: str, more: _Side, less: _Side, of_arms: bool) -> bool:
    most, least = float(getattr(more, name)), float(getattr(less, name))
    return {
        "steal": most - least > STEAL,
        "others": most - least > max(OTHERS, OTHERS_OF_WORKER * min(more.workers, less.workers))
        and most / more.idle > OTHERS_OF_CPU * least / less.idle,
        "share": least < MIN_CPU_SHARE <= most,
        "throttled": most >= max(THROTTLED, 2 * least),
        # The more workers, the lower is the frequency by design: placements are not compared in it.
        "frequency": of_arms and most > FREQUENCY * least,
    }[name]


def _mean(values: t.Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
