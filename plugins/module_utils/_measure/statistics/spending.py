# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of the error probability each planned look at the data may spend, and the level at which its test is made.

The share of the error that is spent grows with the power 1.5 of the share of the plan that is done, between the
functions that resemble the boundaries of Pocock and of O'Brien and Fleming; docs/calibration.md shows the three beside
each other.

Source: K. K. G. Lan, D. L. DeMets, Discrete sequential boundaries for clinical trials, Biometrika 70 (1983); the family
of powers: K. Kim, D. L. DeMets, Design and analysis of group sequential tests based on the type I error spending rate
function, Biometrika 74 (1987). The recursion over looks: P. Armitage, C. K. McPherson, B. C. Rowe, Repeated
significance tests on accumulating data, Journal of the Royal Statistical Society A 132 (1969). The statistics of the
looks are taken as jointly normal, with the correlations of a sum that grows, and the level that results is applied to
the p-value of the test in use, as by S. J. Pocock, Group sequential methods in the design and analysis of clinical
trials, Biometrika 64 (1977).
"""

import bisect
import functools
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.distributions import normal_quantile

POWER_OF_SHARE = 1.5

# Intervals of Simpson's rule over half of the range in which a plan goes on: the levels of ten looks are accurate to
# five digits.
_INTERVALS = 64
# The error probabilities between which adjusted() interpolates, and the steps in each factor of ten.
_MIN_EXPONENT, _STEPS = -12, 3
# Fleets have the same few plans; hostile results must not fill the memory.
_MAX_CACHED = 1000


class Look(t.NamedTuple):
    """A planned look at the data.

    Attributes:
        blocks: the number of blocks that are done.
        share: the share of the plan that is done, above 0 and at most 1; it rises from look to look.
    """

    blocks: int
    share: float


class Stage(t.NamedTuple):
    """The sum over blocks at a look.

    Attributes:
        limit: the plan ends where the sum is at least this far from zero.
        nodes: sums from 0 to the limit, for integration.
        mass: the density at these, and at their negatives, times the weight of each in the integral.
    """

    limit: float
    nodes: "list[float]"
    mass: "list[float]"


def spent(alpha: float, share: float) -> float:
    """Return how much of the error probability ``alpha`` is spent when this share (0 to 1) of the plan is done."""
    return float(alpha * share**POWER_OF_SHARE)


def levels(looks: "t.Sequence[Look]", alpha: float) -> "list[float]":
    """Return the level of the two-sided test at each look.

    Args:
        looks: in their order; blocks and shares rise.
        alpha: the probability of an error over all looks.
    """
    return [
        math.erfc(stage.limit / math.sqrt(2 * look.blocks)) for look, stage in zip(looks, stages(tuple(looks), alpha))
    ]


def adjusted(p_value: float, looks: "t.Sequence[Look]") -> float:
    """Return a p-value for all looks together: the least error probability over all of them at which the last one would
    be significant.

    Source: repeated p-values, in C. Jennison, B. W. Turnbull, Group Sequential Methods with Applications to Clinical
    Trials (2000), chapter 9. It is interpolated on logarithms between 37 probabilities, which is accurate to four
    digits.
    """
    if not looks or not 0 < p_value < 1:
        return p_value
    table = _table(tuple(looks))
    wanted = math.log(p_value)
    index = min(max(bisect.bisect([level for level, _alpha in table], wanted), 1), len(table) - 1)
    (below, low), (above, high) = table[index - 1], table[index]
    return min(1.0, math.exp(low + (high - low) * (wanted - below) / (above - below)))


@functools.lru_cache(maxsize=_MAX_CACHED)
def _table(looks: "tuple[Look, ...]") -> "list[tuple[float, float]]":
    """Return the logarithms of (level of the last look, error probability over all looks), rising."""
    alphas = [10 ** (_MIN_EXPONENT + step / _STEPS) for step in range(-_MIN_EXPONENT * _STEPS)] + [0.9999]
    return [(math.log(levels(looks, alpha)[-1]), math.log(alpha)) for alpha in alphas]


def stages(looks: "tuple[Look, ...]", alpha: float) -> "list[Stage]":
    """Return where the sum over blocks, of variance 1 each and without an effect, ends the plan at each look, and how
    it is distributed where it goes on.
    """
    return [_stage(looks[:count], alpha) for count in range(1, len(looks) + 1)]


@functools.lru_cache(maxsize=5 * _MAX_CACHED)
def _stage(looks: "tuple[Look, ...]", alpha: float) -> Stage:
    """Return the last stage of some looks. Plans that stopped at different looks have the earlier ones in common."""
    look = looks[-1]
    if len(looks) == 1:
        limit = normal_quantile(spent(alpha, look.share) / 2) * math.sqrt(look.blocks)
        nodes, weights = _simpson(limit)
        return Stage(
            limit, nodes, [_normal_density(node, look.blocks) * weight for node, weight in zip(nodes, weights)]
        )
    earlier = _stage(looks[:-1], alpha)
    variance = look.blocks - looks[-2].blocks
    limit = _limit(
        earlier, variance, spent(alpha, look.share) - spent(alpha, looks[-2].share), 40 * math.sqrt(look.blocks)
    )
    nodes, weights = _simpson(limit)
    # Both signs of a node, here and in _limit: the range is symmetric, and only half of it is stored.
    mass = [
        weight
        * sum(
            part * (_normal_density(after - node, variance) + _normal_density(after + node, variance))
            for node, part in zip(earlier.nodes, earlier.mass)
        )
        for after, weight in zip(nodes, weights)
    ]
    return Stage(limit, nodes, mass)


def _limit(earlier: Stage, variance: float, wanted: float, most: float) -> float:
    """Return the value that the next sum exceeds, to either side, with the wanted probability."""
    spread = math.sqrt(2 * variance)
    low, high = 0.0, most
    for _step in range(45):
        middle = (low + high) / 2
        beyond = sum(
            part * (math.erfc((middle - node) / spread) + math.erfc((middle + node) / spread))
            for node, part in zip(earlier.nodes, earlier.mass)
        )
        if beyond > wanted:
            low = middle
        else:
            high = middle
    return high


def _simpson(limit: float) -> "tuple[list[float], list[float]]":
    """Return nodes from 0 to a limit, and their weights by Simpson's rule."""
    step = limit / _INTERVALS
    factors = [1, *(4 if number % 2 else 2 for number in range(1, _INTERVALS)), 1]
    return [number * step for number in range(_INTERVALS + 1)], [factor * step / 3 for factor in factors]


def _normal_density(value: float, variance: float) -> float:
    return math.exp(-value * value / (2 * variance)) / math.sqrt(2 * math.pi * variance)
