# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Samples before and after, paired by block -> ratio, interval, verdict.

The unit of evidence is the block: its samples before and after were taken within seconds of each other, so what the machine did in the
meantime hits both. Each block gives one log-ratio; all that follows works on these. docs/verdicts.md defines each verdict and shows
how often it is wrong on recorded noise.
"""

from __future__ import annotations

import math
import numbers
import typing as t

try:
    import numpy
    from scipy import stats
except ImportError as error:
    MISSING_LIBRARY: ImportError | None = error
else:
    MISSING_LIBRARY = None

GAIN = "gain"
LOSS = "loss"
EQUIVALENT = "equivalent"
INCONCLUSIVE = "inconclusive"

# With fewer blocks their own scatter is not known well enough to call anything.
LEAST_BLOCKS = 4
# The chance with which an effect of the size "minimum_detectable" is called.
POWER = 0.9

MOST_VALUES = 1_000_000
# Beyond any rate or time a machine reaches, and far enough from the largest double that ratios stay finite.
MOST = 1e100
LEAST = 1e-100

Result = t.Dict[str, t.Any]
Block = t.Union[float, t.Sequence[float]]


class SampleError(ValueError):
    """Samples or settings that nothing can be computed from; the message names the block and the value."""


def compare(before: t.Sequence[Block], after: t.Sequence[Block], better: str = "higher", margin: float = 0.01, confidence: float = 0.95) -> Result:
    """Compare two sides that were measured in the same blocks.

    :param before: one number, or a list of numbers, for each block, in the order taken; all above zero, in any one unit
    :param after: the other side of the same blocks
    :param better: ``higher`` or ``lower``: which way the metric points
    :param margin: effects within this share of 1 do not matter, from 0 to below 1
    :param confidence: of the interval, from 0.5 to 0.9999
    :returns: plain data, see :func:`compare_family`
    :raises SampleError: what is wrong with which value
    """
    return compare_family([(before, after, better)], margin, confidence)[0]


def compare_family(family: t.Sequence[tuple[t.Sequence[Block], t.Sequence[Block], str]], margin: float = 0.01, confidence: float = 0.95) -> list[Result]:
    """Compare several workloads at once, with at most ``1 - confidence`` chance that any of them is called without cause (Holm).

    :param family: ``(before, after, better)`` of each workload, as :func:`compare` takes them
    :param margin: as :func:`compare` takes it
    :param confidence: of all verdicts together
    :returns: in the same order, each ``{ratio, ci_low, ci_high, confidence, n, margin, minimum_detectable, verdict, method, p_value, p_adjusted,
        interval_confidence, family}``: ``ratio`` is after / before turned so that above 1 is better; ``minimum_detectable`` is the share by which
        it would have to differ from 1 to be called in 90 % of such runs; ``interval_confidence`` is that of this one interval after the
        correction for the ``family`` (number of workloads). One block has no interval: ``None`` there.
    :raises SampleError: what is wrong with which value
    """
    _check_settings(margin, confidence)
    ratios = [log_ratios(before, after, better) for before, after, better in family]
    p_values = [_p_value(one) for one in ratios]
    adjusted = holm(p_values)
    levels = holm_levels(p_values, 1 - float(confidence))
    return [_result(*one, float(margin), float(confidence), len(ratios)) for one in zip(ratios, p_values, adjusted, levels)]


def log_ratios(before: t.Sequence[Block], after: t.Sequence[Block], better: str) -> list[float]:
    """The logarithm of after / before of each block, turned so that above 0 is better.

    :raises SampleError: what is wrong with which value
    """
    if better not in ("higher", "lower"):
        raise SampleError(f"better is {_brief(better)}: it must be higher or lower")
    first, second = _logs(before, "before"), _logs(after, "after")
    if len(first) != len(second):
        raise SampleError(
            f"before has {len(first)} blocks and after has {len(second)}: they are compared block by block, so give both sides of the same blocks"
        )
    sign = 1.0 if better == "higher" else -1.0
    return [sign * (_centre(b) - _centre(a)) for a, b in zip(first, second)]


def holm(p_values: t.Sequence[float]) -> list[float]:
    """P-values adjusted for their number by Holm's step-down procedure, in the same order.

    Source: S. Holm, A simple sequentially rejective multiple test procedure, Scandinavian Journal of Statistics 6 (1979).
    """
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = highest
    return adjusted


def holm_levels(p_values: t.Sequence[float], alpha: float) -> list[float]:
    """The level at which Holm's procedure tests each hypothesis, in the same order.

    It goes from the smallest p-value on, at alpha / m, alpha / (m - 1), ..., and stays at the level of the first that it does not reject. So an
    interval at 1 - level excludes no effect exactly where the procedure rejects.
    """
    levels = [alpha] * len(p_values)
    level, going = alpha, True
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if going:
            level = alpha / (len(p_values) - rank)
            going = p_values[index] <= level
        levels[index] = level
    return levels


def enough(result: Result, width: float) -> bool:
    """Whether the interval is narrow enough to stop measuring, whatever it says.

    :param result: of :func:`compare`
    :param width: the widest interval that is enough, as ci_high / ci_low - 1
    """
    return result["n"] >= LEAST_BLOCKS and result["ci_high"] / result["ci_low"] - 1 <= width


def _result(ratios: list[float], p_value: float, p_adjusted: float, level: float, margin: float, confidence: float, family: int) -> Result:
    centre, error = _location(ratios)
    n = len(ratios)
    result = {
        "ratio": _ratio(centre), "ci_low": None, "ci_high": None, "confidence": confidence, "n": n, "margin": margin,
        "minimum_detectable": None, "verdict": INCONCLUSIVE, "method": f"one block: no interval, at least {LEAST_BLOCKS} blocks are needed for a verdict",
        "p_value": p_value, "p_adjusted": p_adjusted, "interval_confidence": 1 - level, "family": family,
    }
    if n < 2:
        return result
    half = error * float(stats.t.ppf(1 - level / 2, n - 1))
    result["ci_low"], result["ci_high"] = _ratio(centre - half), _ratio(centre + half)
    found = max(half, math.log1p(margin)) + error * float(stats.t.ppf(POWER, n - 1))
    result["minimum_detectable"] = _ratio(found) - 1
    result["method"] = "paired log-ratio by block, Student's t interval"
    if n < LEAST_BLOCKS:
        result["method"] += f"; {n} blocks are too few for a verdict, at least {LEAST_BLOCKS} are needed"
    else:
        result["verdict"] = _verdict(centre, centre - half, centre + half, math.log1p(margin))
    return result


def _verdict(centre: float, low: float, high: float, margin: float) -> str:
    """All four on the log scale, where the margin lies alike on both sides."""
    if -margin <= low and high <= margin:
        return EQUIVALENT
    if low > 0 and centre > margin:
        return GAIN
    if high < 0 and centre < -margin:
        return LOSS
    return INCONCLUSIVE


def _location(ratios: list[float]) -> tuple[float, float]:
    """Mean and its standard error (0 for one block)."""
    mean = math.fsum(ratios) / len(ratios)
    if len(ratios) < 2:
        return mean, 0.0
    return mean, float(numpy.std(ratios, ddof=1)) / math.sqrt(len(ratios))


def _p_value(ratios: list[float]) -> float:
    """Two-sided, for no effect at all."""
    centre, error = _location(ratios)
    if len(ratios) < 2:
        return 1.0
    if error == 0:
        return 1.0 if centre == 0 else 0.0
    return float(2 * stats.t.sf(abs(centre) / error, len(ratios) - 1))


def _ratio(log: float) -> float:
    """e to the power of it, kept finite: an interval of two wild blocks may reach beyond the doubles."""
    return math.exp(min(max(log, -700.0), 700.0))


def _centre(values: list[float]) -> float:
    return math.fsum(values) / len(values)


def _check_settings(margin: t.Any, confidence: t.Any) -> None:
    if not _is_number(margin) or not 0 <= margin < 1:
        raise SampleError(f"margin is {_brief(margin)}: it must be a number from 0 to below 1, such as 0.01 for 1 %")
    if not _is_number(confidence) or not 0.5 <= confidence <= 0.9999:
        raise SampleError(f"confidence is {_brief(confidence)}: it must be a number from 0.5 to 0.9999, such as 0.95")


def _logs(blocks: t.Any, side: str) -> list[list[float]]:
    """Each block's values as logarithms, as plain data."""
    if not _is_list(blocks):
        raise SampleError(f"{side} is {_brief(blocks)}: it must be a list with one number, or one list of numbers, for each block")
    if not len(blocks):
        raise SampleError(f"{side} is empty: there is nothing to compare")
    logs, count = [], 0
    for index, block in enumerate(blocks):
        place = f"{side}, block {index + 1}"
        values = list(block) if _is_list(block) else [block]
        count += len(values)
        if not values:
            raise SampleError(f"{place}: has no values: leave the block out on both sides")
        if count > MOST_VALUES:
            raise SampleError(f"{side} has more than {MOST_VALUES} values")
        logs.append([_log(value, place) for value in values])
    return logs


def _log(value: t.Any, place: str) -> float:
    if _is_list(value):
        raise SampleError(f"{place}: lists are nested too deep: a block is a number or a list of numbers")
    if not _is_number(value):
        raise SampleError(f"{place}: {_brief(value)} is not a number")
    if value != value or value in (math.inf, -math.inf):
        raise SampleError(f"{place}: {_brief(value)} is not a finite number")
    if value <= 0:
        raise SampleError(f"{place}: {_brief(value)} has no ratio: rates and times must be above zero; leave failed samples out on both sides")
    if not LEAST <= value <= MOST:
        raise SampleError(f"{place}: {_brief(value)} is not between {LEAST:g} and {MOST:g}: no rate or time is so extreme")
    return math.log(value)


def _is_list(value: t.Any) -> bool:
    return isinstance(value, (list, tuple))


def _is_number(value: t.Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _brief(value: t.Any, most: int = 60) -> str:
    """A value for a message, short whatever it is."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 200:
        return f"an integer of {value.bit_length()} bits"
    if _is_list(value):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"a mapping of {len(value)}"
    text = repr(value[:most] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= most else f"{text[:most]}..."
