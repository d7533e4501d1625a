# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stopping at a verdict does to an estimate: a plan that stops when an effect shows has looked at a lucky moment
more often than at an unlucky one.

The corrected estimate is median-unbiased with the stagewise ordering of results: the effect with which a result as
extreme, by an earlier end or by a larger sum at the same look, has a probability of a half. At the first look nothing
is corrected. Source: A. A. Tsiatis, G. L. Rosner, C. R. Mehta, Exact confidence intervals following a group sequential
test, Biometrics 40 (1984). docs/calibration.md shows how much it matters.

It is right for a comparison that could end the plan, and did so at the last look or not at all; the controller's
``paired.compare_family`` knows which one could.
"""

import math
import typing as t
from math import erfc, exp

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import distributions, spending

# The integrals over the looks are accurate to five digits: the share is rounded up to a multiple of one of this many.
_SHARES = 2**20


def share_kept(p_value: float, looks: "tuple[spending.Look, ...]", alpha: float) -> float:
    """Return by what an estimate that ended a plan at the last of these looks is multiplied.

    Args:
        p_value: the two-sided p-value of no effect at the last look, of this look alone.
        looks: all looks, in their order.
        alpha: the error probability over all of them.

    Returns:
        From 0 to 1; 1 at the first look.
    """
    if len(looks) < 2 or not 0 < p_value < 1:
        return 1.0
    total = distributions.normal_quantile(p_value / 2) * math.sqrt(looks[-1].blocks)
    naive = total / looks[-1].blocks
    as_extreme = _as_extreme(total, looks, alpha)
    share = _root(lambda share: as_extreme(share * naive) - 0.5)
    return math.ceil(share * _SHARES) / _SHARES


def _as_extreme(total: float, looks: "tuple[spending.Look, ...]", alpha: float) -> "t.Callable[[float], float]":
    """Return a function that has, by the mean of a block, the probability that the plan ends above at an earlier look,
    or exceeds the total at the last one.
    """
    stages = spending.stages(looks, alpha)
    limits = [stage.limit for stage in stages[:-1]] + [total]
    steps = [
        # The density of a sum at a look with a mean is that without one times a likelihood ratio; it is added as a
        # logarithm, since a ratio alone may exceed a double.
        (
            [(value, math.log(mass)) for node, mass in zip(stage.nodes, stage.mass) if mass for value in (node, -node)],
            look.blocks,
            after.blocks - look.blocks,
            limit,
        )
        for look, stage, after, limit in zip(looks, stages, looks[1:], limits[1:])
    ]

    def probability(drift: float) -> float:
        result = erfc((limits[0] - drift * looks[0].blocks) / math.sqrt(2 * looks[0].blocks))
        for sums, blocks, more, limit in steps:
            minus, missing, spread = drift * drift * blocks / 2, limit - drift * more, math.sqrt(2 * more)
            result += sum(
                [exp(log_mass + drift * value - minus) * erfc((missing - value) / spread) for value, log_mass in sums]
            )
        return result / 2

    return probability


def _root(function: "t.Callable[[float], float]") -> float:
    """Return where a rising function is zero between 0 and 1; 1 where it is below zero up to there.

    Source: the method "Illinois", M. Dowell, P. Jarratt, A modified regula falsi method for computing the root of an
    equation, BIT 11 (1971).
    """
    low, high, at_low, at_high = 0.0, 1.0, function(0.0), function(1.0)
    root = high
    for _step in range(100 if at_high > 0 else 0):
        before, root = root, high - at_high * (high - low) / (at_high - at_low)
        if abs(root - before) < 1e-11:
            break
        at_root = function(root)
        # An end that stays for a second time counts half, so that the other one moves, too.
        if at_root < 0:
            at_high /= 2 if before == low else 1
            low, at_low = root, at_root
        else:
            at_low /= 2 if before == high else 1
            high, at_high = root, at_root
    return root
