# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Student's t distribution with the standard library, for hosts; the controller uses SciPy.

Source: the continued fraction of the incomplete beta function, NIST Digital Library of Mathematical Functions, 8.17.22,
evaluated by the method of W. J. Lentz, Applied Optics 15 (1976).
"""

import functools
import math

_TINY = 1e-300


def p_value(statistic: float, freedom: int) -> float:
    """Return the probability of a value at least as far from zero, accurate to 11 digits.

    Args:
        statistic: a value of t, also an infinite one.
        freedom: degrees of freedom, at least 1.
    """
    if math.isinf(statistic):
        return 0.0
    square = statistic * statistic
    return _beta_share(freedom / (freedom + square), square / (freedom + square), freedom / 2, 0.5)


@functools.lru_cache(maxsize=1000)
def quantile(level: float, freedom: int) -> float:
    """Return the value that t exceeds, to either side, with the probability ``level`` (above 0, below 1),
    accurate to 11 digits.
    """
    low, high = 0.0, 1.0
    while p_value(high, freedom) > level:
        low, high = high, 2 * high
    for _step in range(100):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if p_value(middle, freedom) > level:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _beta_share(share: float, rest: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function at ``share``, which is 1 - ``rest``."""
    if share <= 0 or rest <= 0:
        return 0.0 if share <= 0 else 1.0
    factor = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(share) + b * math.log(rest))
    if share > (a + 1) / (a + b + 2):
        return 1 - factor * _fraction(rest, b, a) / b
    return factor * _fraction(share, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    upper, lower = 1.0, 1 - (a + b) * x / (a + 1)
    lower = 1 / (lower if abs(lower) > _TINY else _TINY)
    value = lower
    for step in range(1, 1000):
        before = value
        for term in (
            step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step)),
            -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1)),
        ):
            lower = 1 + term * lower
            lower = 1 / (lower if abs(lower) > _TINY else _TINY)
            upper = 1 + term / upper
            upper = upper if abs(upper) > _TINY else _TINY
            value *= lower * upper
        if abs(value - before) <= 1e-16 * abs(value):
            break
    return value
