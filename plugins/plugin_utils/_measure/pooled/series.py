# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several runs that say something of one effect: where it has changed, and whether the latest still says the same."""

from __future__ import annotations

import itertools
import math
import statistics
import typing as t

# How sure a change has to be.
LEVEL = 0.05
# Whether the latest run says what those before it say.
HOLDS, CHANGED, NOT_DECIDED = "holds", "changed", "not decided"
# What it may differ by and still hold, a share.
NEAR = 0.05
# Of more runs no part between two of them is tried by itself.
MAX_BETWEEN = 100


class Interval(t.NamedTuple):
    """What a run says of an effect.

    Attributes:
        ratio: after against before.
        low: the lower end of its interval.
        high: the upper end.
        confidence: of the interval.
    """

    ratio: float
    low: float
    high: float
    confidence: float

    @property
    def log(self) -> float:
        """The logarithm of the ratio."""
        return math.log(self.ratio)

    @property
    def error(self) -> float:
        """The standard error of it, as the interval has it."""
        quantile = statistics.NormalDist().inv_cdf((1 + self.confidence) / 2)
        return max(1e-6, math.log(self.high / self.low) / (2 * quantile))

    def turned(self) -> Interval:
        """Return what before is against after."""
        return self._replace(ratio=1 / self.ratio, low=1 / self.high, high=1 / self.low)


class Turn(t.NamedTuple):
    """A change between two runs.

    Attributes:
        place: number of the first run after it.
        before: mean ratio of the runs before it, since the turn before.
        after: that of the runs from it on, until the next turn.
        p_value: how often chance alone gives such a turn at one of the possible places.
    """

    place: int
    before: float
    after: float
    p_value: float


def interval(ratio: float | None, low: float | None, high: float | None, confidence: float | None) -> Interval | None:
    """Return what a run says of an effect; None where it has no interval, or an impossible one."""
    if not (low and high and ratio and 0 < low <= ratio <= high):
        return None
    return Interval(ratio, low, high, min(0.9999, max(0.5, confidence or 0.95)))


def turns(runs: t.Sequence[Interval], margin: float, level: float = LEVEL) -> list[Turn]:
    """Return where the effect has changed, by its intervals.

    The runs are split where the weighted means before and after differ most, in standard errors, or else where those
    between two places differ most from the others; the p-value of that is multiplied by the number of ways in which
    they could have been split. Then the parts are split likewise. Runs on
    other days differ by more than their own intervals say: by the margin, or by as much as the runs within the parts do
    (DerSimonian and Laird, Control. Clin. Trials 7, 1986). A difference below the margin is none.

    docs/fleet.md says how often it finds a change, and calls one where there is none. apache-otava, which finds changes
    in series of values, does not know their intervals and needs four of them, so it is not used.

    Args:
        runs: what they say of one thing, in order.
        margin: effects within this share of 1 count as none.
        level: how sure a change has to be.
    """
    places = _split(runs, 0, margin, level)
    ends = [0, *(place for place, _p_value in places), len(runs)]
    means = [math.exp(_mean(runs[begin:end], 0.0)[0]) for begin, end in itertools.pairwise(ends)]
    return [Turn(place, *pair, p_value) for (place, p_value), pair in zip(places, itertools.pairwise(means))]


def standing(runs: t.Sequence[Interval], past_turns: t.Sequence[Turn], margin: float) -> str | None:
    """Return whether the latest run says what those before it say since the last turn: ``HOLDS`` where it cannot differ
    by more than :data:`NEAR`, ``CHANGED`` where a turn is at it, or ``NOT_DECIDED``; None for a single run.

    Args:
        runs: what they say of one thing, in order.
        past_turns: from :func:`turns`.
        margin: as there.
    """
    last = len(runs) - 1
    if last < 1:
        return None
    if past_turns and past_turns[-1].place == last:
        return CHANGED
    since = past_turns[-1].place if past_turns else 0
    difference, error = _difference(runs[since:last], runs[last:], margin)
    reach = difference + statistics.NormalDist().inv_cdf(1 - LEVEL) * error
    return HOLDS if reach <= math.log1p(NEAR) else NOT_DECIDED


def _split(runs: t.Sequence[Interval], first: int, margin: float, level: float) -> list[tuple[int, float]]:
    if len(runs) < 2:
        return []
    count = len(runs)
    # A part from one place on, or, as where a release is worse and the next one is not, one between two places.
    single = [(place, count) for place in range(1, count)]
    places = itertools.combinations(range(1, count if count <= MAX_BETWEEN else 0), 2)
    between = [(begin, end) for begin, end in places if end - begin > 1]
    # All count as tried, also those that are no step.
    ways = len(single) + len(between)
    between = [ends for ends in between if _is_a_step(runs, *ends)]
    for ends in (single, between):
        tried = []
        for begin, end in ends:
            difference, error = _difference([*runs[:begin], *runs[end:]], runs[begin:end], margin)
            tried.append((difference / error, difference, begin, end))
        score, difference, begin, end = max(tried, default=(0.0, 0.0, 0, 0))
        p_value = min(1.0, 2 * (1 - statistics.NormalDist().cdf(score)) * ways)
        if p_value <= level and difference > math.log1p(margin):
            parts = [(0, begin), (begin, end), (end, count)]
            turned = [(first + place, p_value) for place in (begin, end) if place < count]
            inner = [_split(runs[low:high], first + low, margin, level) for low, high in parts]
            return sorted([*turned, *itertools.chain(*inner)])
    return []


def _is_a_step(runs: t.Sequence[Interval], begin: int, end: int) -> bool:
    """Return whether all runs between two places are apart from the others, to one side: one that is far off alone is
    no step, nor is it one with those beside it.
    """
    others, part = ([run.log for run in group] for group in ([*runs[:begin], *runs[end:]], runs[begin:end]))
    centre = statistics.median(others)
    apart = [distance - centre for distance in part]
    step = statistics.fmean(apart)
    return len(part) > 1 and all(distance * step > 0 and abs(distance) >= abs(step) / 2 for distance in apart)


def _difference(before: t.Sequence[Interval], after: t.Sequence[Interval], margin: float) -> tuple[float, float]:
    """Return by how much two parts differ, and the standard error of that."""
    pairs = [_heterogeneity(part) for part in (before, after) if len(part) > 1]
    denominator = sum(scale for _excess, scale in pairs)
    between = sum(excess for excess, _scale in pairs) / denominator if denominator else 0.0
    variance = max(math.log1p(margin) ** 2, between)
    (first, of_first), (second, of_second) = _mean(before, variance), _mean(after, variance)
    return abs(second - first), math.sqrt(of_first + of_second)


def _mean(runs: t.Sequence[Interval], between: float) -> tuple[float, float]:
    """Return the weighted mean of logarithms, and its variance."""
    weights = [1 / (run.error**2 + between) for run in runs]
    whole = sum(weights)
    return sum(weight * run.log for weight, run in zip(weights, runs)) / whole, 1 / whole


def _heterogeneity(runs: t.Sequence[Interval]) -> tuple[float, float]:
    """Return Cochran's Q beyond its degrees of freedom, and what turns that into a variance between runs."""
    weights = [1 / run.error**2 for run in runs]
    centre, _variance = _mean(runs, 0.0)
    excess = sum(weight * (run.log - centre) ** 2 for weight, run in zip(weights, runs)) - (len(runs) - 1)
    return max(0.0, excess), sum(weights) - sum(weight**2 for weight in weights) / sum(weights)
