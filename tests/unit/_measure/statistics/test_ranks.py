# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Distributions, the test on ranks and its interval, held against SciPy's at each ratio that could be an end."""

from __future__ import annotations

import itertools
import math
import random

import night
import numpy
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import distributions, ranks, verdicts
from scipy import special, stats

KINDS = ("even", "ticks", "coarse", "bursts", "drift", "levels", "wild")


def logs(source, kind, sizes, effect):
    """The logarithms of the values of one side, by block."""
    made = []
    for block, size in enumerate(sizes):
        values = []
        for _number in range(size):
            log = effect + source.gauss(0, 0.7 if kind == "wild" else 0.01)
            log += {"drift": 0.02 * block, "levels": 0.3 * (block % 7 > 3)}.get(kind, 0)
            log += source.expovariate(0.5) if kind == "bursts" and source.random() < 0.1 else 0
            step = {"ticks": 2, "coarse": 10}.get(kind)
            values.append(math.log(step * max(1, round(100 * math.exp(log) / step))) if step else log)
        made.append(values)
    return made


def made(number, least=verdicts.MIN_BLOCKS_RANKED, most=16):
    """A comparison by its number: both sides, and which direction is better."""
    source = random.Random(number)
    kind, blocks = KINDS[number % len(KINDS)], source.randint(least, most)
    shape = source.choice(("one", "three", "uneven", "mixed"))
    of_sides = {"one": (1, 1), "three": (3, 3), "uneven": (1, 3)}.get(shape, (None, None))
    sizes = [[size or source.randint(1, 4) for _block in range(blocks)] for size in of_sides]
    before, after = (
        logs(source, kind, of_side, effect) for of_side, effect in zip(sizes, (0, source.choice((0, 0.01, 0.05, -0.3))))
    )
    return before, after, source.choice(("higher", "lower"))


class Oracle:
    """The same test with SciPy's ranks."""

    def __init__(self, before, after, better):
        sign = 1 if better == "higher" else -1
        self.sides = [[numpy.round(sign * numpy.array(block), 12) for block in side] for side in (before, after)]
        flat = [numpy.concatenate(side) for side in self.sides]
        self.shifts = numpy.unique(numpy.round(numpy.subtract.outer(flat[1], flat[0]), 12))
        self.blocks = [
            numpy.concatenate([numpy.full(len(block), n) for n, block in enumerate(side)]) for side in self.sides
        ]
        self.flat = flat

    def differences(self, shift):
        """Differences of mean ranks, by block."""
        ranked = stats.rankdata(numpy.round(numpy.concatenate([self.flat[0], self.flat[1] - shift]), 14))
        sides = numpy.split(ranked, [len(self.flat[0])])
        means = [numpy.bincount(blocks, side) / numpy.bincount(blocks) for blocks, side in zip(self.blocks, sides)]
        return means[1] - means[0]

    def statistic(self, shift):
        differences = self.differences(shift)
        mean, scatter = differences.mean(), differences.std(ddof=1)
        if abs(mean) < 1e-12:
            return 0.0
        return mean / scatter * math.sqrt(len(differences)) if scatter > 1e-12 else math.copysign(math.inf, mean)

    def between(self):
        """The statistic before the first shift, between all of them, and after the last."""
        ends = [self.shifts[0] - 1e-9, *self.shifts, self.shifts[-1] + 1e-9]
        return [self.statistic((one + other) / 2) for one, other in itertools.pairwise(ends)]


@pytest.mark.night(after=len(KINDS))
@pytest.mark.parametrize("number", range(150))
def test_the_p_value_is_that_of_scipys_t_test_on_scipys_ranks(number):
    sides = made(number)
    differences, actual = Oracle(*sides).differences(0.0), ranks.Paired(*sides).p_value()
    if numpy.ptp(differences) > 1e-9:
        assert actual == pytest.approx(stats.ttest_1samp(differences, 0.0).pvalue, rel=1e-9, abs=1e-300)
    else:
        assert actual == (1.0 if abs(differences[0]) < 1e-9 else 0.0)


@pytest.mark.night(after=len(KINDS))
@pytest.mark.parametrize("number", range(150))
def test_the_interval_ends_where_that_test_begins_to_reject(number):
    oracle, comparison, level = Oracle(*made(number)), ranks.Paired(*made(number)), (0.05, 0.0031)[number % 2]
    centre, low, high = comparison.interval(level)
    shifts, between, last = oracle.shifts, oracle.between(), len(oracle.shifts) - 1
    middle = min(n for n in range(last + 1) if between[n + 1] <= 0), max(n for n in range(last + 1) if between[n] >= 0)
    assert centre == pytest.approx(sum(shifts[n] for n in middle) / 2, abs=1e-11)
    # Of extreme samples the statistic may cross the limit more than once.
    critical, half = special.stdtrit(comparison.n - 1, 1 - level / 2), max(map(half_step, oracle.flat))
    if between[0] > critical:
        ends = [shifts[n] for n in range(last + 1) if between[n] > critical >= between[n + 1]]
        assert min(abs(low - min(end, centre - half)) for end in ends) < 1e-11, (low, ends)
    if between[-1] < -critical:
        ends = [shifts[n] for n in range(last + 1) if between[n] >= -critical > between[n + 1]]
        assert min(abs(high - max(end, centre + half)) for end in ends) < 1e-11, (high, ends)


def half_step(values):
    """Half of the smallest difference between two values."""
    steps = numpy.diff(numpy.unique(values))
    return steps.min() / 2 if len(steps) else 0.0


@pytest.mark.night(after=len(KINDS))
@pytest.mark.parametrize("number", range(60))
def test_fewer_blocks_have_students_t_of_their_log_ratios(number):
    before, after, better = made(number, 2, verdicts.MIN_BLOCKS_RANKED - 1)
    comparison = ranks.Paired(before, after, better)
    ratios = [(numpy.mean(b) - numpy.mean(a)) * (1 if better == "higher" else -1) for a, b in zip(before, after)]
    if numpy.ptp(ratios) < 1e-9:
        return
    expected = stats.ttest_1samp(ratios, 0.0)
    assert comparison.p_value() == pytest.approx(expected.pvalue, rel=1e-9)
    centre, low, high = comparison.interval(0.05)
    half = max(half_step(numpy.concatenate(side)) for side in (before, after))
    limits = expected.confidence_interval(0.95)
    assert centre == pytest.approx(numpy.mean(ratios))
    assert (low, high) == pytest.approx((min(limits.low, centre - half), max(limits.high, centre + half)), rel=1e-8)


def test_where_ranks_give_no_bound_the_interval_is_students():
    ratios = [0.29, 0.33, 0.3, 0.31, 0.28, 0.32]
    before = [[value] for value in (0.06, 0.01, 0.05, 0.02, 0.03, 0.04)]
    after = [[one + ratio] for (one,), ratio in zip(before, ratios)]
    level = 1e-6
    limits = stats.ttest_1samp(ratios, 0.0).confidence_interval(1 - level)
    actual = ranks.Paired(before, after, "higher").interval(level)
    assert actual[1:] == pytest.approx((limits.low, limits.high), rel=1e-9)


def test_hundreds_of_equal_values_are_one_difference():
    comparison = ranks.Paired([[math.log(50 + n % 2)] for n in range(400)], [[math.log(50)]] * 400, "lower")
    centre, low, high = comparison.interval(0.05)
    tick = math.log(51 / 50)
    assert (centre, low, high) == pytest.approx((tick / 2, 0.0, tick), abs=1e-11)
    # What is known no finer than a tick has no narrower interval.
    alike = [[math.log(50 + n % 2)] for n in range(8)]
    assert ranks.Paired(alike, alike, "lower").interval(0.05) == pytest.approx((0.0, -tick / 2, tick / 2), abs=1e-11)


SOURCE = random.Random(20261126)


def freedoms():
    """Degrees of freedom: few and many, whole and not."""
    for _number in range(night.number(4, 70)):
        yield from (SOURCE.randint(1, 60), SOURCE.uniform(1, 60), 10 ** SOURCE.uniform(0, 5))


def test_students_t_is_that_of_scipy():
    for freedom in freedoms():
        for statistic in (SOURCE.uniform(0, 0.01), SOURCE.uniform(0, 8), 10 ** SOURCE.uniform(0, 6)):
            expected, found = 2 * special.stdtr(freedom, -statistic), distributions.student_p_value(statistic, freedom)
            assert expected < 1e-290 or found == pytest.approx(expected, rel=1e-9, abs=0), (statistic, freedom)
            assert distributions.student_p_value(-statistic, freedom) == found
        for level in (10 ** -SOURCE.uniform(1e-4, 1), 10 ** -SOURCE.uniform(1, 5), 10 ** -SOURCE.uniform(5, 12)):
            expected = -special.stdtrit(freedom, level / 2)
            assert distributions.student_quantile(level, freedom) == pytest.approx(expected, rel=1e-9), (level, freedom)


def test_fishers_f_is_that_of_scipy():
    for other in freedoms():
        freedom, statistic = SOURCE.randint(1, 2000), 10 ** SOURCE.uniform(-2, 1.5)
        expected = special.fdtrc(freedom, other, statistic)
        found = distributions.fisher_p_value(statistic, freedom, other)
        assert expected < 1e-40 or found == pytest.approx(expected, rel=1e-9, abs=0), (statistic, freedom, other)


def test_the_normal_quantile_is_that_of_scipy():
    for share in (10 ** -SOURCE.uniform(0.31, 200) for _number in range(night.number(5, 50))):
        assert distributions.normal_quantile(share) == pytest.approx(-special.ndtri(share), rel=1e-9), share
