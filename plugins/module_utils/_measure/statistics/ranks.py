# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paired t test on ranks by block, and the interval of the ratios that it does not reject.

All values of both sides are ranked together, each block contributes the difference of its two mean ranks, and Student's
t tests whether these differences are chance. docs/verdicts.md describes the method.

Source of the rank transform of a paired t: W. J. Conover, R. L. Iman, Rank transformations as a bridge between
parametric and nonparametric statistics, The American Statistician 35 (1981); of the estimate: J. L. Hodges, E. L.
Lehmann, Estimates of location based on rank tests, The Annals of Mathematical Statistics 34 (1963).
"""

import functools
import itertools
import math
import operator
import typing as t
from bisect import bisect_left, bisect_right

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import distributions
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.verdicts import MIN_BLOCKS_RANKED

# Logarithms are counted in these units, as whole numbers: a difference of logarithms is exact to some 1e-14, and so
# equal ratios stay equal.
_UNITS = 1e12
# By how much the first and the last shift are beyond those at which a side as a whole is above the other.
_BEYOND = 1000.5
# Up to this many differences between the sides all are listed; of more, a few around what is looked for.
_MAX_LISTED, _FEW = 4096, 64

# The logarithms of the values of each block.
Logs = t.Sequence[t.Sequence[float]]
_IsPassed = t.Callable[[float, float], bool]


class _Side:
    """One side of a comparison.

    Attributes:
        values: of all blocks, in units.
        ordered: the same, ascending.
        ranks: the rank of each among them, counted from 0; equal values have the middle of theirs.
        sizes: the number of values of each block.
    """

    def __init__(self, blocks: Logs, sign: float) -> None:
        factor = sign * _UNITS
        self.values = [float(round(factor * value)) for block in blocks for value in block]
        self.ordered = sorted(self.values)
        self.ranks = [
            (bisect_left(self.ordered, value) + bisect_right(self.ordered, value)) / 2 for value in self.values
        ]
        self.sizes = list(map(len, blocks))

    def sums(self, numbers: "t.Sequence[float]") -> "list[float]":
        """Return the sum over each block of a number for each value."""
        until = [0.0, *itertools.accumulate(numbers)]
        ends = [0, *itertools.accumulate(self.sizes)]
        return [until[end] - until[start] for start, end in zip(ends, ends[1:])]

    def half_step(self) -> float:
        """Return half of the smallest difference between two distinct values; 0 where all are equal."""
        steps = [above - below for below, above in zip(self.ordered, self.ordered[1:]) if above > below]
        return min(steps, default=0.0) / _UNITS / 2


class Paired:
    """Both sides of a comparison, turned so that a larger value is better.

    Args:
        before: the logarithms of each block's values; no block is empty.
        after: the other side of the same blocks.
        better: ``higher`` or ``lower``.

    Attributes:
        n: the number of blocks.
        log_ratio: the mean of the blocks' log-ratios.
        is_ranked: whether there are enough blocks for ranks; the test of fewer is Student's t of the log-ratios.
    """

    def __init__(self, before: Logs, after: Logs, better: str) -> None:
        sign = 1.0 if better == "higher" else -1.0
        self.n = len(before)
        self.is_ranked = self.n >= MIN_BLOCKS_RANKED
        self._ratios = [sign * (mean(other) - mean(block)) for block, other in zip(before, after)]
        self.log_ratio = mean(self._ratios)
        self._before, self._after = _Side(before, sign), _Side(after, sign)
        sizes = self._before.sizes, self._after.sizes
        self._is_even = all(len(set(of_side)) == 1 for of_side in sizes)
        self._is_single = self._is_even and sizes[0][0] == sizes[1][0] == 1
        # Student's t does not depend on the unit: multiples of the means of even blocks are whole numbers or halves.
        self._weights = sizes[::-1] if self._is_even else [[1 / size for size in of_side] for of_side in sizes]
        self._own = self._by_block(self._before.ranks, self._after.ranks)

    @classmethod
    def of_values(cls, before: "t.Sequence[float]", after: "t.Sequence[float]", better: str) -> "Paired":
        """Return the comparison of blocks with one value of each side, above zero."""
        first, second = ([[math.log(value)] for value in side] for side in (before, after))
        return cls(first, second, better)

    def p_value(self) -> float:
        """Return the two-sided p-value of no effect; 1 for one block."""
        if self.n < 2:
            return 1.0
        statistic = self.statistic(0.0) if self.is_ranked else t_statistic(self._ratios)
        return distributions.student_p_value(statistic, self.n - 1)

    def statistic(self, shift: float) -> float:
        """Return Student's t of the blocks' differences of mean ranks, with the logarithms after reduced by a shift."""
        return t_statistic(self.differences(shift))

    def differences(self, shift: float) -> "list[float]":
        """Return the difference of mean ranks in each block, with the logarithms after reduced by a shift; of blocks
        of several values a multiple of it, the same for all of them.
        """
        # Equal values have the middle of the ranks that they have if they count as lower, and as higher.
        fewer, more = (
            self._crossed(shift * _UNITS, *places)[0]
            for places in ((bisect_left, bisect_right), (bisect_right, bisect_left))
        )
        return [own + (less + other) / 2 for own, less, other in zip(self._own, fewer, more)]

    def interval(self, level: float) -> "tuple[float, float, float]":
        """Return the log-ratio and its interval at confidence 1 - level, of two blocks or more."""
        centre, low, high = student_interval(self._ratios, level)
        if self.is_ranked:
            centre, low, high = self._inverted(distributions.student_quantile(level, self.n - 1), low, high)
        # A metric with a resolution (such as clock ticks) is not known better than half a step, however often it is
        # read.
        least_half = max(self._before.half_step(), self._after.half_step())
        return centre, min(low, centre - least_half), max(high, centre + least_half)

    def _inverted(self, critical: float, student_low: float, student_high: float) -> "tuple[float, float, float]":
        """Return the shift at which the statistic is zero, and the interval of those at which the test does not reject.

        Args:
            critical: the test rejects where the statistic is further than this from zero.
            student_low: the lower end of Student's interval, for where ranks give no bound: few blocks may not reach a
                very high confidence even when the sides do not overlap.
            student_high: its upper end.
        """
        shifts = _Shifts(self._point, self._before.ordered, self._after.ordered)
        centre = shifts.median() if self._is_even else (shifts.lowest(0.0) + shifts.highest(0.0)) / 2
        low, high = shifts.lowest(critical) / _UNITS, shifts.highest(-critical) / _UNITS
        if shifts.first.statistic <= critical:
            low = min(low, student_low)
        if shifts.last.statistic >= -critical:
            high = max(high, student_high)
        return centre / _UNITS, low, high

    def _point(self, shift: float) -> "_Point":
        """Return the test at a shift, in units, at which no value equals one of the other side."""
        crossed, above = self._crossed(shift, bisect_left, bisect_right)
        return _Point(shift, t_statistic(list(map(operator.add, self._own, crossed))), above)

    def _crossed(
        self, shift: float, place: "t.Callable[..., int]", other_place: "t.Callable[..., int]"
    ) -> "tuple[list[float], int]":
        """Return the blocks' differences of mean ranks among the values of the other side, and the number of pairs of
        values that are further apart than the shift.
        """
        before, after = self._before.ordered, self._after.ordered
        lower = [place(before, value - shift) for value in self._after.values]
        return self._by_block([other_place(after, value + shift) for value in self._before.values], lower), sum(lower)

    def _by_block(self, before: "t.Sequence[float]", after: "t.Sequence[float]") -> "list[float]":
        """Return the difference of both sides' means in each block, from a number for each value."""
        if self._is_single:
            return list(map(operator.sub, after, before))
        return [
            weight * other - weight_before * sum_before
            for sum_before, weight_before, other, weight in zip(
                self._before.sums(before), self._weights[0], self._after.sums(after), self._weights[1]
            )
        ]


class _Point(t.NamedTuple):
    """The test at a shift.

    Attributes:
        shift: in units.
        statistic: Student's t.
        above: the number of pairs of values that are further apart than the shift.
    """

    shift: float
    statistic: float
    above: int


class _Shifts:
    """The shifts at which the statistic changes, the differences of a value after and one before; between two
    consecutive ones it is constant.

    Args:
        point: the test at a shift.
        before: the values before, ascending.
        after: the values after, ascending.

    Attributes:
        first: below all shifts.
        last: above all of them.
    """

    def __init__(
        self, point: "t.Callable[[float], _Point]", before: "t.Sequence[float]", after: "t.Sequence[float]"
    ) -> None:
        self._before, self._after = before, after
        # The searches begin at the same shifts.
        self._point = functools.lru_cache(maxsize=None)(point)
        self._lists: dict[tuple[_Point, _Point], tuple[list[float], list[float]]] = {}
        self.first = self._point(after[0] - before[-1] - _BEYOND)
        self.last = self._point(after[-1] - before[0] + _BEYOND)

    def lowest(self, level: float) -> float:
        """Return the smallest shift from which the statistic is at most this."""
        shifts, after = self._around(level, operator.le)
        return shifts[_first(lambda number: after(number) <= level, len(shifts) - 1)]

    def highest(self, level: float) -> float:
        """Return the largest shift up to which the statistic is at least this; searched from the end, so that swapped
        sides mirror the interval.
        """
        shifts, after = self._around(level, operator.lt)
        last = len(shifts) - 1
        return shifts[last - _first(lambda number: after(last - 1 - number) >= level, last)]

    def median(self) -> float:
        """Return the median of all pairs' shifts: there the statistic of even blocks is zero, since each pair that is
        passed takes the same off the sum of the differences of ranks.
        """
        pairs, middle = self.first.above, 0.0
        for place, is_passed in (((pairs - 1) // 2, operator.le), (pairs // 2, operator.lt)):
            low, high = self._bracket(0.0, is_passed)
            middle += self._between(low, high)[0][place - (pairs - low.above)] / 2
        return middle

    def _around(self, level: float, is_passed: _IsPassed) -> "tuple[list[float], t.Callable[[int], float]]":
        """Return distinct shifts around that from which the statistic has passed a level, beginning and ending beside
        them; and a function that has the statistic between one of them, by its number, and the next.
        """
        _pairs, shifts = self._between(*self._bracket(level, is_passed))
        return shifts, lambda number: self._point((shifts[number] + shifts[number + 1]) / 2).statistic

    def _between(self, low: _Point, high: _Point) -> "tuple[list[float], list[float]]":
        """Return the shifts between two points, ascending: of each pair of values; and each once, with the points."""
        if (low, high) not in self._lists:
            pairs: list[float] = []
            for value in self._after:
                start, end = (bisect_left(self._before, value - point.shift) for point in (high, low))
                # In ascending runs they are sorted in a fraction of the time.
                pairs += [value - other for other in reversed(self._before[start:end])]
            pairs.sort()
            distinct = [shift for shift, above in zip(pairs, pairs[1:]) if shift < above]
            self._lists[low, high] = pairs, [low.shift, *distinct, *pairs[-1:], high.shift]
        return self._lists[low, high]

    def _bracket(self, level: float, is_passed: _IsPassed) -> "tuple[_Point, _Point]":
        """Return two points with few shifts between them, where the statistic has not and where it has passed a level.

        It falls with the shift, except that of extreme samples of few blocks may pass a level more than once: this is
        then one of the places.
        """
        low, high = self.first, self.last
        listed = _MAX_LISTED if low.above <= _MAX_LISTED else _FEW
        for step in itertools.count(1):
            if low.above - high.above <= listed or high.shift - low.shift <= 1:
                break
            rise, fall = low.statistic - level, level - high.statistic
            # Along the straight line between both, a fifth further, so that the other one comes near, too; a half each
            # fifth time, since outliers bend the line.
            is_line = step % 5 and rise > 0 and fall > 0 and rise + fall < math.inf
            part = rise / (rise + fall) if is_line else 0.5
            part = 1.2 * part if part <= 0.5 else 1 - 1.2 * (1 - part)
            shift = math.floor(low.shift + part * (high.shift - low.shift)) + 0.5
            middle = self._point(min(max(shift, low.shift + 1), high.shift - 1))
            low, high = (low, middle) if is_passed(middle.statistic, level) else (middle, high)
        return low, high


def _first(passes: "t.Callable[[int], bool]", last: int) -> int:
    """Find the first number that passes a test, or the last one, by bisection."""
    first = 0
    while first < last:
        middle = (first + last) // 2
        if passes(middle):
            last = middle
        else:
            first = middle + 1
    return first


def mean(values: "t.Sequence[float]") -> float:
    """Return the mean of one value or more."""
    return math.fsum(values) / len(values)


def student_interval(values: "t.Sequence[float]", level: float) -> "tuple[float, float, float]":
    """Return the mean of two values or more, and its interval by Student's t at confidence 1 - level."""
    centre, scatter = moments(values)
    half = distributions.student_quantile(level, len(values) - 1) * scatter / math.sqrt(len(values))
    return centre, centre - half, centre + half


def moments(values: "t.Sequence[float]") -> "tuple[float, float]":
    """Return the mean and the standard deviation of two values or more."""
    centre = mean(values)
    rest = [value - centre for value in values]
    return centre, math.sqrt(math.fsum(map(operator.mul, rest, rest)) / (len(values) - 1))


def t_statistic(values: "t.Sequence[float]") -> float:
    """Return the mean divided by its standard error; infinite for a mean other than zero without scatter."""
    centre, scatter = moments(values)
    if abs(centre) < 1e-12:
        return 0.0
    return centre / scatter * math.sqrt(len(values)) if scatter >= 1e-12 else math.copysign(math.inf, centre)
