# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probabilities and quantiles, held against SciPy."""

from __future__ import annotations

import math
import random

import night
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import distributions
from scipy import special

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


@pytest.mark.parametrize("freedom", [1, 2.5, 99_999])
def test_no_level_is_too_small_for_a_quantile(freedom):
    found = [distributions.student_quantile(level, freedom) for level in (1e-12, 1e-30, 1e-90, 1e-300, 0.0)]
    assert found[0] < found[1] < found[2] < found[3] == found[4] < math.inf


def test_fishers_f_is_that_of_scipy():
    for other in freedoms():
        freedom, statistic = SOURCE.randint(1, 2000), 10 ** SOURCE.uniform(-2, 1.5)
        expected, found = (
            special.fdtrc(freedom, other, statistic),
            distributions.fisher_p_value(statistic, freedom, other),
        )
        assert expected < 1e-40 or found == pytest.approx(expected, rel=1e-9, abs=0), (statistic, freedom, other)


def test_no_difference_is_no_evidence_and_an_infinite_one_is_certain():
    assert distributions.student_p_value(math.inf, 5) == 0 and distributions.student_p_value(0.0, 5) == 1
    assert distributions.fisher_p_value(0.0, 3, 7.5) == 1


def test_the_normal_quantile_is_that_of_scipy():
    for share in (10 ** -SOURCE.uniform(0.31, 200) for _number in range(night.number(5, 50))):
        assert distributions.normal_quantile(share) == pytest.approx(-special.ndtri(share), rel=1e-9), share
