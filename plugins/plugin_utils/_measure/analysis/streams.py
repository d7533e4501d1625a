# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From how many streams on SMT helps: the crossover of the curves with SMT on and off,
from the comparison at each number of streams.

Up to one stream a core SMT has nothing to share, so a crossover lies above the number of cores, and is only known where
streams were measured on both sides of it, in both arms. Between the numbers of cores and of threads some cores are
shared and others are not, and SMT often costs most: without a number of streams from there nothing is decided.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms, placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    measures,
    paired,
    recorded,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison

FOUND, SOME, NEVER, UNDECIDED, UNKNOWN = "found", "some", "never", "undecided", "unknown"


@dataclasses.dataclass(frozen=True)
class Crossover:
    """The number of streams from which on SMT helps a workload.

    Attributes:
        status: ``found``; ``some``: it helps with some numbers of streams, and not from one of them on, or only numbers
            on one side of the cores were measured; ``never``: it helps with none that was measured; ``undecided``:
            whether it helps is not decided; ``unknown``: the streams that were measured cannot show it.
        streams: the smallest number of streams, above that of the cores, from which on each ratio is in favour of SMT;
            None unless found.
        low: the smallest such number from which on no verdict is against SMT; None unless found.
        high: the smallest such number from which on each verdict is in favour of SMT; None unless found.
        cores: the number of cores that the streams had; None where it is not known.
        measured: the numbers of streams that were compared, in rising order.
        threads: the number of threads that the streams had, where streams above the cores were compared, but none
            between their numbers; else None.
        gains: the numbers of streams with which SMT is called a gain.
        open: those whose comparison is not decided.
    """

    status: str
    streams: int | None
    low: int | None
    high: int | None
    cores: int | None
    measured: tuple[int, ...]
    threads: int | None = None
    gains: tuple[int, ...] = ()
    open: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Curve:
    """The comparisons of SMT on against off by number of streams, for the primary metric of a workload.

    Attributes:
        workload: name of the workload.
        title: of the workload.
        comparisons: number of streams -> comparison, in rising order.
        crossover: from which number of streams on SMT helps.
    """

    workload: str
    title: str
    comparisons: dict[int, Comparison]
    crossover: Crossover

    def deciding(self) -> list[Comparison]:
        """Return the comparisons of SMT off against SMT on that decide: those with more streams than cores, which SMT
        is for, and those with fewer that differ all the same, as where the scheduler puts two streams on one core.
        """
        core_count = self.crossover.cores
        above = [core_count is not None and count > core_count for count in self.comparisons]
        return [
            comparison.turned()
            for comparison, is_above in zip(self.comparisons.values(), above)
            if is_above or (any(above) and comparison.is_called)
        ]


def curves(result: HostResult, comparisons: t.Iterable[Comparison]) -> list[Curve]:
    """Return the curve of each workload without a parameter that was compared at any number of streams.

    Args:
        result: from :func:`result_files.load`.
        comparisons: from :func:`comparisons.compare_host`.
    """
    by_workload: dict[str, dict[int, Comparison]] = {name: {} for name in recorded.primary_metrics(result)}
    for comparison in comparisons:
        streams = placements.numbered(comparison.placement)
        of_streams = streams and streams.kind == placements.FREE and comparison.kind == "arm" and comparison.is_of_smt
        if streams and of_streams and comparison.primary and comparison.parameter is None:
            by_workload[comparison.workload][streams.workers] = (
                comparison if comparison.effect == arms.SMT_ON else comparison.turned()
            )
    core_count, thread_count = cores(result), _cpus_of_streams(result, arms.SMT_ON)
    of_workloads = []
    for name, unordered in by_workload.items():
        if unordered:
            by_streams = dict(sorted(unordered.items()))
            title = measures.describe_workload(result, name).title
            of_workloads.append(Curve(name, title, by_streams, crossover(by_streams, core_count, thread_count)))
    return of_workloads


def cores(result: HostResult) -> int | None:
    """Return the number of cores that streams could use: the CPUs of any stream with SMT off, else the cores of the
    host's facts; None where not known.
    """
    return _cpus_of_streams(result, arms.SMT_OFF) or result.facts.cores or None


def _cpus_of_streams(result: HostResult, arm: str) -> int | None:
    """Return the number of CPUs of any stream in an arm; None where it has none."""
    for name, where in (result.plan.placements or {}).get(arm, {}).items():
        streams = placements.numbered(name)
        if streams and streams.kind == placements.FREE and where.workers:
            return len(cpulist.parse_or_empty(where.workers[0])) or None
    return None


def crossover(
    by_streams: t.Mapping[int, Comparison], core_count: int | None, thread_count: int | None = None
) -> Crossover:
    """Return the crossover of one workload.

    Args:
        by_streams: the comparisons of a :class:`Curve`.
        core_count: from :func:`cores`.
        thread_count: the number of CPUs that the streams had with SMT on, None where it is not known.
    """
    measured = tuple(by_streams)
    gains, undecided = (
        tuple(count for count, comparison in by_streams.items() if comparison.verdict == verdict)
        for verdict in (paired.GAIN, paired.INCONCLUSIVE)
    )

    def without(status: str, threads: int | None = None) -> Crossover:
        return Crossover(status, None, None, None, core_count, measured, threads, gains, undecided)

    above = [] if core_count is None else [count for count in measured if count > core_count]
    one_sided = not above or above[0] == measured[0]
    if not one_sided and thread_count is not None and thread_count <= above[0] and thread_count - (core_count or 0) > 1:
        return without(UNDECIDED, thread_count)
    if one_sided or above[-1] not in gains:
        if gains:
            return without(SOME)
        if not above:
            return without(UNKNOWN)
        return without(NEVER if set(above).isdisjoint(undecided) else UNDECIDED)

    def smallest(passes: t.Callable[[Comparison], bool]) -> int:
        least = above[-1]
        for count in reversed(above):
            if not passes(by_streams[count]):
                break
            least = count
        return least

    return Crossover(
        FOUND,
        smallest(lambda comparison: comparison.ratio > 1),
        smallest(lambda comparison: comparison.verdict != paired.LOSS),
        smallest(lambda comparison: comparison.verdict == paired.GAIN),
        core_count,
        measured,
        gains=gains,
        open=undecided,
    )
