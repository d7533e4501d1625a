# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paired comparison of two arms by block: ratio, interval and verdict.

The block is the statistical unit: its samples of both arms were taken within seconds of each other, so drift of the
machine affects both. The test is that of the plan on the host (``statistics/ranks.py``). The interval contains the
ratios by which one side can be scaled so that the test does not reject (test inversion). Ranks limit the weight of
outliers: a burst that doubles a sample's time counts no more than any other high value. docs/verdicts.md defines each
verdict and shows its error rate on recorded noise.
"""

from __future__ import annotations

import itertools
import math
import numbers
import statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import (
    distributions,
    early,
    ranks,
    spending,
    verdicts,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.verdicts import (
    EQUIVALENT,
    GAIN,
    INCONCLUSIVE,
    LOSS,
    MIN_BLOCKS,
    MIN_BLOCKS_RANKED,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Judged

__all__ = ["EQUIVALENT", "GAIN", "INCONCLUSIVE", "LOSS", "MIN_BLOCKS", "MIN_BLOCKS_RANKED"]

# The probability that an effect of the size "minimum_detectable" gets a verdict of gain or loss.
POWER = 0.9

MAX_VALUES = 100_000
# Limits outside the range of any real rate or time, within which ratios stay finite.
MOST = 1e100
LEAST = 1e-100

Looks = tuple[spending.Look, ...]
Block = float | t.Sequence[float]


class Span(t.NamedTuple):
    """A quantity over blocks.

    Attributes:
        value: its typical value; None without a block.
        low: the lower end of its interval; None for fewer than two blocks.
        high: the upper end.
        n: the number of blocks.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int


class SampleError(ValueError):
    """Invalid samples or settings. The message names the block and the value."""


def compare(
    before: t.Sequence[Block],
    after: t.Sequence[Block],
    better: str = "higher",
    margin: float = 0.01,
    confidence: float = 0.95,
) -> Judged:
    """Compare two sides that were measured in the same blocks.

    Args:
        before: one number, or a list of numbers, for each block, in the order taken; all above zero, in one unit.
        after: the other side of the same blocks.
        better: the direction of the metric, ``higher`` or ``lower``.
        margin: effects within this share of 1 count as none, from 0 to below 1.
        confidence: of the interval, from 0.5 to 0.9999.

    Raises:
        SampleError: a value or a setting is not valid.
    """
    return compare_family([(before, after, better)], margin, confidence)[0]


def compare_family(
    family: t.Sequence[tuple[t.Sequence[Block], t.Sequence[Block], str]],
    margin: float = 0.01,
    confidence: float = 0.95,
    looks: t.Sequence[Looks] | None = None,
    deciding: t.Sequence[bool] | None = None,
) -> list[Judged]:
    """Compare several workloads with a family-wise error rate of at most ``1 - confidence`` (Holm).

    Args:
        family: ``(before, after, better)`` of each workload, as in :func:`compare`.
        margin: as in :func:`compare`.
        confidence: of all verdicts combined.
        looks: for each comparison, the planned looks at its blocks so far; empty where the number of blocks did not
            depend on what they said.
        deciding: for each comparison, whether the looks were at it, so that its own result could end the plan; default:
            at all of them.

    Returns:
        In the same order, each. One block has no interval. With looks the interval is the repeated one of the last
        look, ``p_adjusted`` holds for all looks together, and ``ratio`` is corrected for stopping early (:mod:`early`)
        where the comparison may have ended the plan: it is a deciding one, and no look before the last one had found a
        gain or loss.

    Raises:
        SampleError: a value or a setting is not valid.
    """
    _check_settings(margin, confidence)
    samples = [_samples(*compared) for compared in family]
    taken = looks or [()] * len(samples)
    p_values = [sample.p_value() for sample in samples]
    over_all_looks = [spending.adjusted(p_value, of_one) for p_value, of_one in zip(p_values, taken)]
    adjusted = holm(over_all_looks)
    alphas = holm_levels(over_all_looks, 1 - float(confidence))
    # As the plan itself, which knows no p-values of the others: the strictest level of Holm's procedure.
    at_look = (1 - float(confidence)) / max(1, len(samples))
    kept = [
        early.share_kept(p_value, of_one, alpha) if decides and not _found_before(compared, of_one, at_look) else 1.0
        for compared, p_value, alpha, of_one, decides in zip(
            family, p_values, alphas, taken, deciding or [True] * len(samples)
        )
    ]
    return [
        _judged(better, *tested, of_one, share, float(margin), float(confidence), len(samples))
        for (_before, _after, better), tested, of_one, share in zip(
            family, zip(samples, p_values, adjusted, alphas), taken, kept
        )
    ]


def _found_before(comparison: tuple[t.Sequence[Block], t.Sequence[Block], str], looks: Looks, alpha: float) -> bool:
    """Return whether a look before the last one had found a gain or loss.

    Then the plan went on for another comparison's sake, whatever this one said.
    """
    before, after, better = comparison
    return any(
        _samples(before[: look.blocks], after[: look.blocks], better).p_value() <= level
        for look, level in zip(looks[:-1], spending.levels(looks[:-1], alpha))
    )


def level(blocks: t.Sequence[Block], confidence: float = 0.95) -> Span:
    """Summarise one side by itself.

    Args:
        blocks: one number, or a list of numbers, for each block.
        confidence: of the interval, from 0.5 to 0.9999.

    Returns:
        The geometric mean over blocks and its Student's t interval on the logarithms.

    Raises:
        SampleError: a value or a setting is not valid.
    """
    _check_settings(0, confidence)
    means = [ranks.mean(values) for values in _logs(blocks, "values")]
    ends = ranks.student_interval(means, 1 - confidence)[1:] if len(means) > 1 else None
    low, high = map(_ratio, ends) if ends else (None, None)
    return Span(math.exp(ranks.mean(means)), low, high, len(means))


def sides(before: t.Sequence[Block], after: t.Sequence[Block], better: str, ratio: float) -> tuple[float, float]:
    """Return typical values of both sides of a comparison, in its unit, whose quotient is its ratio.

    The ratio is an estimate by ranks, so quotients of means differ from it where samples scatter. These values are as
    far apart as it says, around the median over blocks of the middle between both sides (of logarithms).

    Args:
        before: as in :func:`compare`.
        after: as in :func:`compare`.
        better: as in :func:`compare`.
        ratio: as :func:`compare` returned it.

    Raises:
        SampleError: a value is not valid.
    """
    half = math.log(ratio) / (2 if better == "higher" else -2)
    middle = statistics.median(
        (ranks.mean(block) + ranks.mean(other)) / 2
        for block, other in zip(_logs(before, "before"), _logs(after, "after"))
    )
    return math.exp(middle - half), math.exp(middle + half)


def mean_change(before: t.Sequence[Block], after: t.Sequence[Block]) -> float:
    """Return the change of the arithmetic mean over blocks, after / before - 1, in the metric's own direction. A few
    slow answers move it, and hardly the typical value that a verdict is about. Arguments as in :func:`compare`.

    Raises:
        SampleError: a value is not valid.
    """
    sides = [[value for block in _logs(side, "side") for value in block] for side in (before, after)]
    # Values are taken in terms of the largest one, so that none overflows.
    most = max(map(max, sides))
    first, second = (
        math.log(ranks.mean([math.exp(value - most) for value in side]) or math.ulp(0.0)) for side in sides
    )
    return _ratio(second - first) - 1


def interval(
    before: t.Sequence[Block], after: t.Sequence[Block], better: str, alpha: float
) -> tuple[float, float | None, float | None]:
    """Return the log-ratio of two sides and its interval at confidence ``1 - alpha``; the ends are None for one block.

    Args:
        before: as in :func:`compare`.
        after: as in :func:`compare`.
        better: as in :func:`compare`.
        alpha: from 0 to 1, both excluded.

    Raises:
        SampleError: a value is not valid.
    """
    return _interval(_samples(before, after, better), alpha)


def holm(p_values: t.Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's step-down procedure, in the same order.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6
    (1979).
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def holm_levels(p_values: t.Sequence[float], alpha: float) -> list[float]:
    """Return the level at which Holm's procedure tests each hypothesis, in the same order.

    The procedure tests in rising order of p-values at alpha / m, alpha / (m - 1), ..., and keeps the level of the first
    hypothesis that it does not reject. So an interval at 1 - level excludes 1 exactly where the procedure rejects.
    """
    levels = [alpha] * len(p_values)
    level, going = alpha, True
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if going:
            level = alpha / (len(p_values) - rank)
            going = p_values[index] <= level
        levels[index] = level
    return levels


def _samples(before: t.Sequence[Block], after: t.Sequence[Block], better: str) -> ranks.Paired:
    """Return both sides of a comparison, checked."""
    if better not in ("higher", "lower"):
        raise SampleError(f"better is {_brief(better)}: it must be higher or lower")
    first, second = _logs(before, "before"), _logs(after, "after")
    if len(first) != len(second):
        raise SampleError(
            f"before has {len(first)} blocks and after has {len(second)}: they are compared block by block, so give"
            " both sides of the same blocks"
        )
    return ranks.Paired(first, second, better)


def _interval(samples: ranks.Paired, alpha: float) -> tuple[float, float | None, float | None]:
    return samples.interval(alpha) if samples.n > 1 else (samples.log_ratio, None, None)


def _judged(
    better: str,
    samples: ranks.Paired,
    p_value: float,
    p_adjusted: float,
    error: float,
    looks: Looks,
    kept: float,
    margin: float,
    confidence: float,
    family: int,
) -> Judged:
    alpha = spending.levels(looks, error)[-1] if looks else error
    centre, low, high = _interval(samples, alpha)
    return Judged(
        better=better,
        # The interval holds over all looks, so no correction leads out of it.
        ratio=_ratio(centre * kept if low is None or high is None else min(max(centre * kept, low), high)),
        ci_low=None if low is None else _ratio(low),
        ci_high=None if high is None else _ratio(high),
        confidence=confidence,
        n=samples.n,
        margin=margin,
        minimum_detectable=_minimum_detectable(low, high, samples.n, alpha, math.log1p(margin)),
        verdict=(
            INCONCLUSIVE
            if low is None or high is None or samples.n < MIN_BLOCKS
            else verdicts.verdict(centre, low, high, math.log1p(margin))
        ),
        method=_method(samples),
        p_value=p_value,
        p_adjusted=p_adjusted,
        interval_confidence=1 - alpha,
        family=family,
        looks=len(looks),
    )


def _method(samples: ranks.Paired) -> str:
    if samples.n < 2:
        return f"one block: no interval; at least {MIN_BLOCKS} blocks are needed for a verdict"
    method = "paired t on ranks by block, inverted" if samples.is_ranked else "paired t on log-ratios by block"
    return (
        method
        if samples.n >= MIN_BLOCKS
        else f"{method}; {samples.n} blocks are too few, at least {MIN_BLOCKS} blocks are needed for a verdict"
    )


def _minimum_detectable(low: float | None, high: float | None, n: int, alpha: float, margin: float) -> float | None:
    """Return the difference of the ratio from 1 at which a gain or loss has probability POWER."""
    if low is None or high is None:
        return None
    half = (high - low) / 2
    error = half / distributions.student_quantile(alpha, n - 1)
    beyond = error * distributions.student_quantile(2 * (1 - POWER), n - 1)
    return math.expm1(min(verdicts.least_centre(half, margin) + beyond, 700.0))


def _ratio(log: float) -> float:
    """Return exp(log) with 11 significant digits, limited to finite numbers:
    an interval of two extreme blocks may exceed a double.
    """
    return float(f"{math.exp(min(max(log, -700.0), 700.0)):.11g}")


def _check_settings(margin: t.Any, confidence: t.Any) -> None:
    if not _is_number(margin) or not 0 <= margin < 1:
        raise SampleError(f"margin is {_brief(margin)}: it must be a number from 0 to below 1, such as 0.01 for 1 %")
    if not _is_number(confidence) or not 0.5 <= confidence <= 0.9999:
        raise SampleError(f"confidence is {_brief(confidence)}: it must be a number from 0.5 to 0.9999, such as 0.95")


def _logs(blocks: t.Any, side: str) -> list[list[float]]:
    """Return the logarithms of each block's values."""
    if (usual := _usual_logs(blocks)) is not None:
        return usual
    if not _is_list(blocks):
        raise SampleError(
            f"{side} is {_brief(blocks)}: it must be a list with one number, or one list of numbers, for each block"
        )
    if not len(blocks):
        raise SampleError(f"{side} is empty: give at least one block")
    logs, count = [], 0
    for index, block in enumerate(blocks):
        values = block if _is_list(block) else [block]
        count += len(values)
        if not values:
            raise SampleError(f"{side}, block {index + 1}: has no values: leave the block out on both sides")
        if count > MAX_VALUES:
            raise SampleError(f"{side} has more than {MAX_VALUES} values")
        logs.append([_log(value, side, index) for value in values])
    return logs


def _usual_logs(blocks: t.Any) -> list[list[float]] | None:
    """Return the logarithms of lists of floats within the limits, as results have them; None for anything else."""
    if not isinstance(blocks, list) or set(map(type, blocks)) != {list} or not all(blocks):
        return None
    values = list(itertools.chain.from_iterable(blocks))
    is_usual = (
        set(map(type, values)) == {float}
        and len(values) <= MAX_VALUES
        and math.isfinite(sum(values))
        and min(values) >= LEAST
        and max(values) <= MOST
    )
    return [list(map(math.log, block)) for block in blocks] if is_usual else None


def _log(value: t.Any, side: str, index: int) -> float:
    if isinstance(value, float) and LEAST <= value <= MOST:
        return math.log(value)
    place = f"{side}, block {index + 1}"
    if _is_list(value):
        raise SampleError(f"{place}: lists are nested too deep: a block is a number or a list of numbers")
    if not _is_number(value):
        raise SampleError(f"{place}: {_brief(value)} is not a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise SampleError(f"{place}: {_brief(value)} is not a finite number")
    if value <= 0:
        raise SampleError(
            f"{place}: {_brief(value)} has no ratio: rates and times must be above zero; leave failed samples out on"
            " both sides"
        )
    if not LEAST <= value <= MOST:
        raise SampleError(
            f"{place}: {_brief(value)} is not between {LEAST:g} and {MOST:g}, the range of rates and times"
        )
    return math.log(value)


def _is_list(value: t.Any) -> bool:
    return isinstance(value, (list, tuple))


def _is_number(value: t.Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _brief(value: t.Any, most: int = 60) -> str:
    """Return a short representation of any value for a message."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    if _is_list(value):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    text = repr(value[:most] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= most else f"{text[:most]}..."
