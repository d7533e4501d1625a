# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look at a comparison decides: a verdict, that no verdict can be expected any more, or nothing yet."""

import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import (
    distributions,
    spending,
    verdicts,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.ranks import Paired

FUTILE = "futile"

# A plan that stops because the rest is not worth it may be wrong with at most this probability.
MIN_CHANCE = 0.05
# With fewer blocks the scatter is not known well enough to say that more blocks would not help.
MIN_BLOCKS_FUTILE = 8
# The scatter may be over-estimated: futility has to hold for the one that is exceeded with this probability, too.
_LUCK = 0.9


def decide(
    comparison: Paired, looks: "t.Sequence[spending.Look]", alpha: float, margin: float, more: int
) -> "str | None":
    """Return the outcome of a comparison: a verdict of :mod:`verdicts`, :data:`FUTILE`, or None to go on.

    Args:
        comparison: the blocks so far.
        looks: all looks so far, this one last.
        alpha: the error probability of this comparison over all looks.
        margin: the equivalence margin, such as 0.01.
        more: how many more blocks are possible.
    """
    level = spending.levels(looks, alpha)[-1]
    centre, low, high = comparison.interval(level)
    verdict = verdicts.verdict(centre, low, high, math.log1p(margin))
    if verdict != verdicts.INCONCLUSIVE:
        return verdict
    if not more or comparison.n < MIN_BLOCKS_FUTILE:
        return None
    scatter = (high - low) / 2 / distributions.student_quantile(level, comparison.n - 1) * math.sqrt(comparison.n)
    last = spending.levels([*looks, spending.Look(looks[-1].blocks + more, 1.0)], alpha)[-1]
    lucky = scatter * math.sqrt((comparison.n - 1) / _chi_square(_LUCK, comparison.n - 1))
    hopeless = all(
        chance(centre, deviation, comparison.n, more, last, math.log1p(margin)) < MIN_CHANCE
        for deviation in (scatter, lucky)
    )
    return FUTILE if hopeless else None


def chance(centre: float, deviation: float, blocks: int, more: int, level: float, margin: float) -> float:
    """Return the predictive probability of a verdict after more blocks.

    Source: predictive power with a flat prior; D. J. Spiegelhalter, L. S. Freedman, P. R. Blackburn, Monitoring
    clinical trials: conditional or predictive power?, Controlled Clinical Trials 7 (1986).

    Args:
        centre: the log-ratio so far.
        deviation: the standard deviation of a block's log-ratio.
        blocks: how many there are.
        more: how many are still to come.
        level: the level of the test after all of them.
        margin: the equivalence margin, as a logarithm.
    """
    total = blocks + more
    half = distributions.student_quantile(level, total - 1) * deviation / math.sqrt(total)
    step = deviation * math.sqrt(1 / blocks - 1 / total)
    least = verdicts.least_centre(half, margin)
    share = _beyond(least - centre, step) + _beyond(least + centre, step)
    inside = margin - half
    if inside > 0:
        share += max(0.0, 1 - _beyond(inside - centre, step) - _beyond(inside + centre, step))
    return share


def _beyond(distance: float, deviation: float) -> float:
    """Return the probability that a normal variable with mean 0 exceeds a distance."""
    return math.erfc(distance / deviation / math.sqrt(2)) / 2 if deviation > 0 else float(distance < 0)


def _chi_square(share: float, freedom: int) -> float:
    """Return a quantile above the median of the chi-square distribution, accurate to 1 % from 5 degrees of freedom on.

    Source: E. B. Wilson, M. M. Hilferty, The distribution of chi-square, Proceedings of the National Academy of
    Sciences 17 (1931).
    """
    return float(
        freedom * (1 - 2 / (9 * freedom) + distributions.normal_quantile(1 - share) * math.sqrt(2 / (9 * freedom))) ** 3
    )
