# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stopping at a verdict does to an estimate: a plan that stops when an effect shows has looked at a lucky moment more often than at an unlucky one.

The corrected estimate is median-unbiased with the stagewise ordering of results: the effect with which a result as extreme, by an earlier end or by a larger
sum at the same look, has a probability of a half. At the first look nothing is corrected. Source: A. A. Tsiatis, G. L. Rosner, C. R. Mehta, Exact confidence
intervals following a group sequential test, Biometrics 40 (1984). docs/verdicts.md shows how much it matters.
"""

from __future__ import annotations

import functools
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._looks import spending


@functools.lru_cache(maxsize=10_000)
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
    stages = spending.stages(looks, alpha)
    low, high = 0.0, naive
    for _step in range(20):
        drift = (low + high) / 2
        if _as_extreme(drift, total, looks, stages) < 0.5:
            low = drift
        else:
            high = drift
    return high / naive


def _as_extreme(drift: float, total: float, looks: t.Sequence[spending.Look], stages: t.Sequence[spending.Stage]) -> float:
    """Return the probability that the plan ends above at an earlier look, or exceeds the total at the last one, with this mean of a block."""
    found = _beyond((stages[0].limit - drift * looks[0].blocks) / math.sqrt(looks[0].blocks))
    for number in range(1, len(looks)):
        earlier, blocks = stages[number - 1], looks[number - 1].blocks
        more = looks[number].blocks - blocks
        limit = total if number == len(looks) - 1 else stages[number].limit
        # The density with a drift is that without one times a likelihood ratio.
        found += sum(
            mass * math.exp(drift * value - drift * drift * blocks / 2) * _beyond((limit - value - drift * more) / math.sqrt(more))
            for node, mass in zip(earlier.nodes, earlier.mass)
            for value in (node, -node)
        )
    return found


def _beyond(value: float) -> float:
    return math.erfc(value / math.sqrt(2)) / 2
