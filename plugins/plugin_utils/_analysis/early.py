# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stopping at a verdict does to an estimate: a plan that stops when an effect shows has looked at a lucky moment
more often than at an unlucky one.

The corrected estimate is median-unbiased with the stagewise ordering of results: the effect with which a result as
extreme, by an earlier end or by a larger sum at the same look, has a probability of a half. At the first look nothing
is corrected. Source: A. A. Tsiatis, G. L. Rosner, C. R. Mehta, Exact confidence intervals following a group sequential
test, Biometrics 40 (1984). docs/verdicts.md shows how much it matters.

It is right for a comparison that could end the plan, and did so at the last look or not at all;
:func:`paired.compare_family` knows which one could.
"""

from __future__ import annotations

import functools
import math

try:
    import numpy
    from scipy import special
except ImportError as error:
    MISSING_LIBRARY: ImportError | None = error
else:
    MISSING_LIBRARY = None

from ansible_collections.threadwise.smt.plugins.module_utils._statistics import spending


def share_kept(p_value: float, looks: tuple[spending.Look, ...], alpha: float) -> float:
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
    blocks = looks[-1].blocks
    total = spending.upper_quantile(p_value / 2) * math.sqrt(blocks)
    naive = total / blocks
    low, high = 0.0, naive
    for _step in range(20):
        drift = (low + high) / 2
        if _as_extreme(drift, total, looks, alpha) < 0.5:
            low = drift
        else:
            high = drift
    return high / naive


def _as_extreme(drift: float, total: float, looks: tuple[spending.Look, ...], alpha: float) -> float:
    """Return the probability that the plan ends above at an earlier look, or exceeds the total at the last one,
    with this mean of a block.
    """
    first, sums, masses, blocks, more, limits = _integrals(looks, alpha)
    limits = numpy.where(numpy.isnan(limits), total, limits)
    # The density with a drift is that without one times a likelihood ratio.
    likelihood = numpy.exp(drift * sums - drift * drift * blocks / 2)
    found = special.ndtr((drift * looks[0].blocks - first) / math.sqrt(looks[0].blocks))
    return float(found + (masses * likelihood * special.ndtr((sums + drift * more - limits) / numpy.sqrt(more))).sum())


@functools.lru_cache(maxsize=1000)
def _integrals(
    looks: tuple[spending.Look, ...], alpha: float
) -> tuple[float, numpy.ndarray, numpy.ndarray, numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Return the limit of the first look, and for each sum with which a plan goes on: the sum, its mass, its blocks,
    those to the next look, its limit.

    The limit of the last look is not a number: there the sum that was seen takes its place.
    """
    stages = spending.stages(looks, alpha)
    rows = [
        (value, mass, look.blocks, after.blocks - look.blocks, math.nan if after is looks[-1] else limit.limit)
        for look, stage, after, limit in zip(looks, stages, looks[1:], stages[1:])
        for node, mass in zip(stage.nodes, stage.mass)
        for value in (node, -node)
    ]
    sums, masses, blocks, more, limits = numpy.array(rows).T
    return stages[0].limit, sums, masses, blocks, more, limits
