# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paired t test on ranks by block with the standard library, for the plan on a host: the test of the controller's reports (``_analysis/paired.py``).

Both give the same result for one value of each side in a block, to the last digit: tests/unit/_looks/test_ranks.py holds them against each other.
docs/verdicts.md describes the method and its sources.
"""

import bisect
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._looks import student
from ansible_collections.threadwise.smt.plugins.module_utils._looks.verdicts import LEAST_BLOCKS_RANKED

# Up to this many pairs of a baseline and a candidate value every shift is considered; beyond, a grid of as many shifts is fine enough.
MOST_PAIRS = 1000000
# Decimals of a logarithm: equal ratios stay equal.
_UNIT = 1e12


class Paired:
    """Both sides of a comparison, turned so that a larger value is better.

    Args:
        before: the value of each block, above zero.
        after: the other side of the same blocks.
        better: ``higher`` or ``lower``.

    Attributes:
        n: the number of blocks.
        ranked: whether there are enough blocks for ranks; with fewer, logarithms are used.
    """

    def __init__(self, before: "t.Sequence[float]", after: "t.Sequence[float]", better: str) -> None:
        sign = 1.0 if better == "higher" else -1.0
        logs = [math.log(value) for value in before], [math.log(value) for value in after]
        self.n = len(before)
        self.ranked = self.n >= LEAST_BLOCKS_RANKED
        self._ratios = [sign * (other - one) for one, other in zip(*logs)]
        self._before, self._after = ([_rounded(sign * value) for value in side] for side in logs)
        self._least_half = max(map(_half_step, (self._before, self._after)))
        self._cached_gaps: list[float] = []
        self._seen: dict[int, float] = {}

    def p_value(self) -> float:
        """Return the two-sided p-value of no effect; 1 for one block."""
        if self.n < 2:
            return 1.0
        return student.p_value(self._rank_statistic(0.0) if self.ranked else _t_statistic(self._ratios), self.n - 1)

    def interval(self, level: float) -> "tuple[float, float, float]":
        """Return the log-ratio and its interval at confidence 1 - level; without limits for one block."""
        if self.n < 2:
            return self._ratios[0], -math.inf, math.inf
        centre, low, high = self._ranked(level) if self.ranked else self._student(level)
        return centre, min(low, centre - self._least_half), max(high, centre + self._least_half)

    def _student(self, level: float) -> "tuple[float, float, float]":
        centre = math.fsum(self._ratios) / self.n
        variance = math.fsum((ratio - centre) ** 2 for ratio in self._ratios) / (self.n - 1)
        half = student.quantile(level, self.n - 1) * math.sqrt(variance / self.n)
        return centre, centre - half, centre + half

    def _ranked(self, level: float) -> "tuple[float, float, float]":
        critical = student.quantile(level, self.n - 1)
        centre = (self._lowest(0.0) + self._highest(0.0)) / 2
        low, high = self._lowest(critical), self._highest(critical)
        # Few blocks may not reach a very high confidence even when the sides do not overlap: then ranks give no bound.
        _centre, student_low, student_high = self._student(level)
        if self._rank_statistic(self._gaps()[0]) <= critical:
            low = min(low, student_low)
        if self._rank_statistic(self._gaps()[-1]) >= -critical:
            high = max(high, student_high)
        return centre, low, high

    def _gaps(self) -> "list[float]":
        """Return the shifts at which the statistic changes, ascending, between two at which one side is above the other."""
        if not self._cached_gaps:
            least, most = min(self._after) - max(self._before), max(self._after) - min(self._before)
            if self.n**2 > MOST_PAIRS:
                inner = [least + number * ((most - least) / (MOST_PAIRS - 1)) for number in range(MOST_PAIRS - 1)] + [most]
            else:
                inner = sorted({_rounded(other - one) for one in self._before for other in self._after})
            self._cached_gaps = [least - 1e-9, *inner, most + 1e-9]
        return self._cached_gaps

    def _lowest(self, critical: float) -> float:
        """Return the smallest shift from which the rank statistic is at most ``critical``."""
        return self._gaps()[self._first(lambda number: self._statistic_in_gap(number) <= critical)]

    def _highest(self, critical: float) -> float:
        """Return the largest shift up to which the rank statistic is at least -critical."""
        last = len(self._gaps()) - 1
        return self._gaps()[last - self._first(lambda number: self._statistic_in_gap(last - 1 - number) >= -critical)]

    def _first(self, passes: "t.Callable[[int], bool]") -> int:
        """Find the first gap that passes a test, by bisection; the statistic falls with the shift except for extreme samples."""
        first, last = 0, len(self._gaps()) - 1
        while first < last:
            middle = (first + last) // 2
            if passes(middle):
                last = middle
            else:
                first = middle + 1
        return first

    def _statistic_in_gap(self, number: int) -> float:
        if number not in self._seen:
            self._seen[number] = self._rank_statistic((self._gaps()[number] + self._gaps()[number + 1]) / 2)
        return self._seen[number]

    def _rank_statistic(self, shift: float) -> float:
        """Compute Student's t of the blocks' differences of ranks, with the logarithms after reduced by a shift."""
        after = [value - shift for value in self._after]
        ordered = sorted(self._before + after)

        def twice_the_rank(value: float) -> int:
            return bisect.bisect_left(ordered, value) + bisect.bisect_right(ordered, value)

        return _t_statistic([float(twice_the_rank(other) - twice_the_rank(one)) for one, other in zip(self._before, after)])


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
