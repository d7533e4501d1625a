# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What to measure next, and how long it would take."""

from __future__ import annotations

import datetime
import functools
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    limits,
    paired,
    streams,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Compared, Comparison

MINUTE = 60
# A measurement of more blocks is not practical.
MAX_BLOCKS = 10_000


class More(t.NamedTuple):
    """How much more to measure; a number that cannot be estimated is None."""

    text: str
    blocks: int | None = None
    seconds: int | None = None


def more_to_measure(
    result: HostResult, main: t.Sequence[Compared], curves: t.Sequence[streams.Curve] = ()
) -> More | None:
    """Estimate how much more to measure: an interval narrows with the square root of the number of blocks.

    Args:
        result: from :func:`result_files.load`.
        main: the comparisons that should be decided.
        curves: of the host, where streams may be missing.

    Returns:
        None where nothing is undecided.
    """
    open_ones = [comparison for comparison in main if comparison.verdict == "inconclusive"]
    instead = _instead_of_blocks(result, main, curves, open_ones)
    if instead:
        return More(instead)
    if not open_ones:
        return None
    needs = [need for need in map(blocks_needed, open_ones) if need is not None]
    if len(needs) < len(open_ones):
        return More("Measure more blocks: there are too few to say how many it would take.")
    most = max(needs)
    if most > MAX_BLOCKS:
        return More("The samples scatter too much for more of them to decide: measure on a quieter host.")
    seconds = seconds_a_block(result)
    time = f", about {_duration(most * seconds)} at the {seconds:.0f} s a block took here" if seconds else ""
    stopped = (
        "The plan stopped early: the rest of its budget would hardly have decided this. "
        if result.plan.stopped == decisions.FUTILE
        else ""
    )
    fewer = "; a quieter host needs fewer" if most > paired.MIN_BLOCKS else ""
    advice = f"{stopped}To decide, measure about {most} blocks{time}{fewer}."
    return More(advice, most, round(most * seconds) if seconds else None)


def _instead_of_blocks(
    result: HostResult,
    main: t.Sequence[Compared],
    curves: t.Sequence[streams.Curve],
    open_ones: t.Sequence[Compared],
) -> str | None:
    """Say what to measure where more of the same blocks would not decide; None where they would."""
    if any(comparison.confounded for comparison in main):
        state, what = ("state", "SMT") if all(comparison.is_of_smt for comparison in main) else ("arm", "the arms")
        return (
            f"One boot in each {state} cannot tell {what} from what else differs between two boots: measure several"
            f" (smt_eval_boots: {paired.MIN_BLOCKS})."
        )
    missing = next((curve.crossover for curve in curves if curve.crossover.threads), None)
    if missing and not any(comparison.placement == host_comparisons.WHOLE_MACHINE for comparison in main):
        return _streams_to_add(missing)
    between = [
        comparison
        for comparison in open_ones
        if comparison.metric == limits.MOST_LOAD and comparison.n >= paired.MIN_BLOCKS
    ]
    if between and len(between) == len(open_ones):
        return " ".join(map(functools.partial(_loads_to_add, result), between))
    if open_ones and result.plan.stopped == "size":
        # As on machines with very many CPUs: each sample has each of them.
        return (
            "The result had its maximum size before this was decided: measure fewer workloads, placements or parameter"
            " values here, so that more blocks fit."
        )
    return None


def _loads_to_add(result: HostResult, comparison: Compared) -> str:
    """Say which loads to measure: how far apart those are that were measured is what leaves a most load open."""
    parameter = limits.limited(result)[comparison.workload].parameter
    served = [comparison.baseline_value, comparison.candidate_value]
    known = [value for value in served if value is not None]
    above = [value for value in (parameter.values if parameter else ()) if value > max(known)]
    low, high = min(known), min(above, default=max(known))
    return (
        f"To decide, measure loads between {low:.15g} and {high:.15g} {comparison.unit} of {comparison.title}:"
        " more blocks of the same loads would hardly tell."
    )


def _streams_to_add(missing: streams.Crossover) -> str:
    cores, threads = missing.cores or 0, missing.threads or 0
    # A quarter, a half and three quarters of the way from the cores to the threads.
    between = sorted({cores + max(1, (threads - cores) * part // 4) for part in (1, 2, 3)})
    return (
        f"Between {cores} and {threads} streams some cores are shared and others are not: measure there as well"
        f" (smt_eval_streams: {sorted({*missing.measured, *between})})."
    )


def blocks_needed(comparison: Compared) -> int | None:
    """Estimate the blocks until the interval is half as wide as the distance to the nearest verdict (width ~ 1 /
    sqrt(blocks)).
    """
    if not isinstance(comparison, Comparison) or comparison.ci_low is None or comparison.ci_high is None:
        return None
    half = (math.log(comparison.ci_high) - math.log(comparison.ci_low)) / 2
    margin = math.log1p(comparison.margin)
    distance = abs(math.log(comparison.ratio))
    # Outside the margin the interval must exclude 1; inside, it must fit into the margin.
    wanted = max(distance if distance > margin else margin - distance, margin / 4)
    return max(comparison.n + 1, paired.MIN_BLOCKS, math.ceil(comparison.n * (half / wanted) ** 2))


def seconds_a_block(result: HostResult) -> float | None:
    """Return the seconds per block, from the first to the last sample, or None when unknown."""
    times = [time for time in (moment(sample.started) for sample in result.samples) if time is not None]
    if not times:
        return None
    blocks = len({sample.block for sample in result.samples})
    seconds = max(times) - min(times) + (result.samples[-1].wall_seconds or 0.0)
    return seconds / blocks if seconds > 0 else None


def moment(text: str | None) -> float | None:
    """Parse a time as results write it (ISO 8601); return seconds since 1970, or None for an invalid text."""
    try:
        time = datetime.datetime.fromisoformat(text or "")
        return (time if time.tzinfo else time.replace(tzinfo=datetime.UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _duration(seconds: float) -> str:
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    minutes = seconds / MINUTE
    return f"{minutes:.0f} minutes" if minutes < 120 else f"{minutes / 60:.0f} hours"
