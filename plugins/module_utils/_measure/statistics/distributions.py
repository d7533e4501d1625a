# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probabilities and quantiles of Student's t, of Fisher's F and of the normal distribution, with the standard library.

Source: the continued fraction of the incomplete beta function, NIST Digital Library of Mathematical Functions, 8.17.22,
evaluated by the method of W. J. Lentz, Applied Optics 15 (1976); t and F by 8.17(iii) and M. Abramowitz, I. A. Stegun,
Handbook of Mathematical Functions (1964), 26.6.2 and 26.7.1.
"""

import functools
import math

_TINY = 1e-300
# No test is made at a smaller level; the square of its quantile is still finite.
_MIN_LEVEL = 1e-100


def student_p_value(statistic: float, freedom: float) -> float:
    """Return the probability of a value of t at least as far from zero, accurate to nine digits.

    Args:
        statistic: a value of t, also an infinite one.
        freedom: degrees of freedom, at least 1; they need not be whole.
    """
    square = statistic * statistic
    return _beta_share(freedom / (freedom + square), square / (freedom + square), freedom / 2, 0.5)


# Plans and reports ask for the same few levels and numbers of blocks.
@functools.lru_cache(maxsize=10000)
def student_quantile(level: float, freedom: float) -> float:
    """Return the value that t exceeds, to either side, with the probability ``level``, accurate to nine digits.

    Args:
        level: above 0, below 1.
        freedom: degrees of freedom, at least 1; they need not be whole.
    """
    level = max(level, _MIN_LEVEL)
    value = normal_quantile(level / 2)
    # Newton's method for the logarithm of the probability as a function of that of the value. The function is concave,
    # so from the second step on the value comes down to the quantile, and no step leads out of its range.
    for _step in range(100):
        square = value * value
        density = 2 * _beta_factor(freedom / (freedom + square), square / (freedom + square), freedom / 2, 0.5)
        p_value = student_p_value(value, freedom)
        step = math.log(p_value / level) * p_value / density
        value *= math.exp(step)
        # The next step is of the order of the square of this one.
        if abs(step) < 1e-9:
            break
    return value


def fisher_p_value(statistic: float, freedom: float, other_freedom: float) -> float:
    """Return the probability of a value of F at least as large, accurate to nine digits.

    Args:
        statistic: a value of F, from 0 on.
        freedom: degrees of freedom of the numerator, above 0.
        other_freedom: those of the denominator, above 0.
    """
    part = freedom * statistic
    whole = part + other_freedom
    return _beta_share(other_freedom / whole, part / whole, other_freedom / 2, freedom / 2)


def normal_quantile(share: float) -> float:
    """Return the value that a standard normal variable exceeds with the probability ``share``, of at most a half."""
    low, high = 0.0, 40.0
    for _step in range(60):
        middle = (low + high) / 2
        if math.erfc(middle / math.sqrt(2)) / 2 > share:
            low = middle
        else:
            high = middle
    return high


def _beta_share(share: float, rest: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function at ``share``, which is 1 - ``rest``."""
    if share <= 0 or rest <= 0:
        return 0.0 if share <= 0 else 1.0
    factor = _beta_factor(share, rest, a, b)
    if share > (a + 1) / (a + b + 2):
        return 1 - factor * _fraction(rest, b, a) / b
    return factor * _fraction(share, a, b) / a


def _beta_factor(share: float, rest: float, a: float, b: float) -> float:
    """Return the density of the beta distribution at ``share``, times share * rest."""
    return math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(share) + b * math.log(rest))


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
