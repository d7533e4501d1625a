# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Made-up noise of known kinds, worse and cleaner than what a machine gives."""

import numpy

WINDOW = 56


def gaussian(source):
    return source.normal(0, 0.015, WINDOW)


def heavy_tails(source):
    """Student's t with 2 degrees of freedom: no variance."""
    return 0.008 * source.standard_t(2, WINDOW)


def skewed(source):
    """Always slower, never faster: log-normal additions."""
    return numpy.log1p(0.02 * numpy.exp(source.normal(0, 1, WINDOW)))


def autocorrelated(source):
    """AR(1) of 0.9 from sample to sample."""
    values = [source.normal(0, 0.03)]
    for step in source.normal(0, 0.012, WINDOW - 1):
        values.append(0.9 * values[-1] + step)
    return numpy.array(values)


def random_walk(source):
    return numpy.cumsum(source.normal(0, 0.01, WINDOW)) + source.normal(0, 0.006, WINDOW)


def linear_drift(source):
    return source.uniform(-0.3, 0.3) * numpy.linspace(0, 1, WINDOW) + source.normal(0, 0.01, WINDOW)


def level_shifts(source):
    values = source.normal(0, 0.01, WINDOW)
    for start in source.integers(0, WINDOW, source.integers(1, 4)):
        values[start:] += source.normal(0, 0.1)
    return values


def two_frequencies(source):
    """A clock that changes between two speeds, 10 % apart, about every twenty samples."""
    return 0.1 * (numpy.cumsum(source.random(WINDOW) < 0.05) % 2) + source.normal(0, 0.006, WINDOW)


def bursts(source):
    """Each sample is hit with a chance of 15 %."""
    hit = source.random(WINDOW) < 0.15
    return source.normal(0, 0.008, WINDOW) + hit * numpy.log1p(source.exponential(0.3, WINDOW))


def one_burst(source):
    """One sample takes up to four times as long."""
    values = source.normal(0, 0.01, WINDOW)
    values[source.integers(WINDOW)] += source.choice([0.3, 1.0, 1.4])
    return values


def coarse_clock(source):
    """Whole milliseconds of about 50."""
    return numpy.log(numpy.round(50 * numpy.exp(source.normal(0, 0.012, WINDOW))))


KINDS = (
    gaussian, heavy_tails, skewed, autocorrelated, random_walk, linear_drift, level_shifts, two_frequencies, bursts,
    one_burst, coarse_clock,
)  # fmt: skip
