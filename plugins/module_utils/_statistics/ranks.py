# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paired t test on ranks by block with the standard library, for the plan on a host: the test of the controller's
reports (``_analysis/paired.py``).

Both give the same result for one value of each side in a block, to the last digit: tests/unit/_statistics/test_ranks.py
holds them against each other. docs/verdicts.md describes the method and its sources.
"""

import bisect
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._statistics import student
from ansible_collections.threadwise.smt.plugins.module_utils._statistics.verdicts import MIN_BLOCKS_RANKED

# Up to this many pairs of a baseline and a candidate value every shift is considered; beyond, a grid of as many shifts
# is fine enough.
MAX_PAIRS = 1000000
# Decimals of a logarithm: equal ratios stay equal.
_UNIT = 1e12


class Inversion:
    """The shifts of one side that a test on ranks does not reject: its interval.

    The controller searches with this class, too.

    Args:
        gaps: the shifts at which the statistic changes, ascending; between two consecutive ones it is constant. The
            first and the last lie just beyond the shifts at which all of one side is above, or below, all of the other.
        statistic: the test's statistic for a shift.
    """

    def __init__(self, gaps: "t.Sequence[float]", statistic: "t.Callable[[float], float]") -> None:
        self._gaps = gaps
        self._statistic = statistic
        self._seen: dict[int, float] = {}

    def interval(self, critical: float, student_low: float, student_high: float) -> "tuple[float, float, float]":
        """Return the estimate, in the middle of the range of shifts where the statistic is zero, and its interval.

        Args:
            critical: the test rejects where the statistic is further than this from zero.
            student_low: the lower end of Student's interval, for where ranks give no bound: few blocks may not reach a
                very high confidence even when the sides do not overlap.
            student_high: its upper end.
        """
        centre = (self._lowest(0.0) + self._highest(0.0)) / 2
        low, high = self._lowest(critical), self._highest(critical)
        if self._statistic(self._gaps[0]) <= critical:
            low = min(low, student_low)
        if self._statistic(self._gaps[-1]) >= -critical:
            high = max(high, student_high)
        return centre, low, high

    def _lowest(self, critical: float) -> float:
        """Return the smallest shift from which the statistic is at most ``critical``."""
        return float(self._gaps[self._first(lambda number: self._in_gap(number) <= critical)])

    def _highest(self, critical: float) -> float:
        """Return the largest shift up to which the statistic is at least -critical; searched from the end, so that
        swapped sides mirror the interval.
        """
        last = len(self._gaps) - 1
        return float(self._gaps[last - self._first(lambda number: self._in_gap(last - 1 - number) >= -critical)])

    def _first(self, passes: "t.Callable[[int], bool]") -> int:
        """Find the first gap that passes a test, by bisection;
        the statistic falls with the shift except for extreme samples.
        """
        first, last = 0, len(self._gaps) - 1
        while first < last:
            middle = (first + last) // 2
            if passes(middle):
                last = middle
            else:
                first = middle + 1
        return first

    def _in_gap(self, number: int) -> float:
        """Return the statistic inside a gap; kept, since both searches start at the same gaps."""
        if number not in self._seen:
            self._seen[number] = self._statistic((self._gaps[number] + self._gaps[number + 1]) / 2)
        return self._seen[number]


class Paired:
    """Both sides of a comparison, turned so that a larger value is better.

    Args:
        before: the value of each block, above zero; of two blocks or more.
        after: the other side of the same blocks.
        better: ``higher`` or ``lower``.

    Attributes:
        n: the number of blocks.
    """

    def __init__(self, before: "t.Sequence[float]", after: "t.Sequence[float]", better: str) -> None:
        sign = 1.0 if better == "higher" else -1.0
        logs = [math.log(value) for value in before], [math.log(value) for value in after]
        self.n = len(before)
        self._ratios = [sign * (other - one) for one, other in zip(*logs)]
        self._before, self._after = ([_rounded(sign * value) for value in side] for side in logs)

    def interval(self, level: float) -> "tuple[float, float, float]":
        """Return the log-ratio and its interval at confidence 1 - level,
        by ranks where there are enough blocks for them.
        """
        critical = student.quantile(level, self.n - 1)
        centre = math.fsum(self._ratios) / self.n
        half = critical * math.sqrt(math.fsum((ratio - centre) ** 2 for ratio in self._ratios) / (self.n - 1) / self.n)
        low, high = centre - half, centre + half
        if self.n >= MIN_BLOCKS_RANKED:
            centre, low, high = Inversion(self._gaps(), self._rank_statistic).interval(critical, low, high)
        least_half = max(map(_half_step, (self._before, self._after)))
        return centre, min(low, centre - least_half), max(high, centre + least_half)

    def _gaps(self) -> "list[float]":
        least, most = min(self._after) - max(self._before), max(self._after) - min(self._before)
        if self.n**2 > MAX_PAIRS:
            inner = [least + number * ((most - least) / (MAX_PAIRS - 1)) for number in range(MAX_PAIRS - 1)] + [most]
        else:
            inner = sorted({_rounded(other - one) for one in self._before for other in self._after})
        return [least - 1e-9, *inner, most + 1e-9]

    def _rank_statistic(self, shift: float) -> float:
        """Compute Student's t of the blocks' differences of ranks, with the logarithms after reduced by a shift."""
        after = [value - shift for value in self._after]
        ordered = sorted(self._before + after)

        def twice_the_rank(value: float) -> int:
            return bisect.bisect_left(ordered, value) + bisect.bisect_right(ordered, value)

        return _t_statistic(
            [float(twice_the_rank(other) - twice_the_rank(one)) for one, other in zip(self._before, after)]
        )


def _rounded(value: float) -> float:
    return round(value * _UNIT) / _UNIT


def _half_step(values: "list[float]") -> float:
    """Return half of the smallest difference between two distinct values; 0 where all are equal."""
    distinct = sorted(set(values))
    return min((above - below for below, above in zip(distinct, distinct[1:])), default=0.0) / 2


def _t_statistic(differences: "list[float]") -> float:
    """Return the mean divided by its standard error; infinite for a non-zero mean without variance."""
    n = len(differences)
    mean = math.fsum(differences) / n
    scatter = math.sqrt(math.fsum((difference - mean) ** 2 for difference in differences) / (n - 1))
    if abs(mean) < 1e-12:
        return 0.0
    if scatter < 1e-12:
        return math.copysign(math.inf, mean)
    return mean / scatter * math.sqrt(n)
