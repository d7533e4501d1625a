# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probabilities and quantiles, held against SciPy."""

from __future__ import annotations

import math
import random

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._statistics import distributions
from scipy import special

SOURCE = random.Random(20261126)


def freedoms(count):
    """Degrees of freedom: few and many, whole and not."""
    return [
        SOURCE.choice((SOURCE.randint(1, 60), SOURCE.uniform(1, 60), 10 ** SOURCE.uniform(0, 5)))
        for _number in range(count)
    ]


@pytest.mark.parametrize("freedom", freedoms(200))
def test_students_t_is_that_of_scipy(freedom):
    for statistic in (SOURCE.uniform(0, 0.01), SOURCE.uniform(0, 8), 10 ** SOURCE.uniform(0, 6)):
        expected = 2 * special.stdtr(freedom, -statistic)
        if expected > 1e-290:
            assert distributions.student_p_value(statistic, freedom) == pytest.approx(expected, rel=1e-9, abs=0)
        assert distributions.student_p_value(-statistic, freedom) == distributions.student_p_value(statistic, freedom)
    for level in (10 ** -SOURCE.uniform(1e-4, 1), 10 ** -SOURCE.uniform(1, 5), 10 ** -SOURCE.uniform(5, 12)):
        expected = -special.stdtrit(freedom, level / 2)
        assert distributions.student_quantile(level, freedom) == pytest.approx(expected, rel=1e-9)


def test_an_infinite_statistic_has_no_p_value_above_zero():
    assert distributions.student_p_value(math.inf, 5) == 0
    assert distributions.student_p_value(0.0, 5) == 1


@pytest.mark.parametrize("freedom", [1, 2.5, 30, 99_999])
@pytest.mark.parametrize("level", [0.0, 1e-300, 1e-90])
def test_no_level_is_too_small_for_a_quantile(freedom, level):
    value = distributions.student_quantile(level, freedom)
    assert distributions.student_quantile(1e-12, freedom) < value < math.inf


@pytest.mark.parametrize("other", freedoms(200))
def test_fishers_f_is_that_of_scipy(other):
    freedom, statistic = SOURCE.randint(1, 2000), 10 ** SOURCE.uniform(-2, 1.5)
    expected = special.fdtrc(freedom, other, statistic)
    if expected > 1e-40:
        assert distributions.fisher_p_value(statistic, freedom, other) == pytest.approx(expected, rel=1e-9, abs=0)


def test_no_difference_at_all_is_no_evidence():
    assert distributions.fisher_p_value(0.0, 3, 7.5) == 1


@pytest.mark.parametrize("share", [10 ** -SOURCE.uniform(0.31, 200) for _number in range(50)])
def test_the_normal_quantile_is_that_of_scipy(share):
    assert distributions.normal_quantile(share) == pytest.approx(-special.ndtri(share), rel=1e-9)
