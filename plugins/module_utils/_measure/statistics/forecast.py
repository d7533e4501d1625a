# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a budget can lead to a verdict, before anything is switched: how long a block takes at least,
and what has to be left out.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import verdicts

# A plan of so many blocks shows effects of a few per cent where samples scatter little.
GOOD_BLOCKS = 10
# What is left out first where the budget is too short, as far as it does not decide. Placements of users' own are left
# out last.
LEFT_OUT_FIRST = (
    placements.REMOTE_MEMORY,
    placements.PACKAGES,
    placements.SAME_CPU,
    placements.SINGLE,
    placements.SIBLINGS,
    placements.CORES,
    placements.ONE_PER_CORE,
    placements.UNPINNED,
)


class Cost(t.NamedTuple):
    """What a sample costs of each block.

    Attributes:
        workload: the name of the workload.
        placement: the name of the placement.
        seconds: at least.
        decides: whether a main comparison needs it.
    """

    workload: str
    placement: str
    seconds: float
    decides: bool


def left_out(costs: "t.Iterable[Cost]", others: float, budget: float) -> "list[str]":
    """Return the placements that have to be left out for the least number of blocks that a verdict needs to fit into a
    budget.

    Args:
        costs: of all samples of a block.
        others: seconds of a block that are not samples.
        budget: seconds.
    """
    kept = list(costs)
    dropped: list[str] = []
    optional = {cost.placement for cost in kept if not cost.decides}
    for place in [
        *(name for name in LEFT_OUT_FIRST if name in optional),
        *sorted(optional - set(LEFT_OUT_FIRST), key=placements.rank),
    ]:
        if needed(kept, others, verdicts.MIN_BLOCKS) <= budget:
            break
        kept = [cost for cost in kept if cost.decides or cost.placement != place]
        dropped.append(place)
    return dropped


def needed(costs: "t.Iterable[Cost]", others: float, blocks: int) -> float:
    """Return how many seconds so many blocks take at least."""
    return blocks * (others + sum(cost.seconds for cost in costs))


def too_short(costs: "t.Sequence[Cost]", others: float, budget: float) -> "str | None":
    """Return why a budget is too short for a verdict, with what would be enough, or None where it is not.

    Args:
        costs: of the samples of a block that a main comparison needs.
        others: seconds of a block that are not samples.
        budget: seconds.
    """
    least = needed(costs, others, verdicts.MIN_BLOCKS)
    if not costs or least <= budget:
        return None
    return (
        f"{budget:.0f} s are left of the budget, too few for a verdict: a block of what decides takes at least"
        f" {needed(costs, others, 1):.1f} s here, so {verdicts.MIN_BLOCKS} blocks, the least for a verdict, need"
        f" {least:.0f} s and {GOOD_BLOCKS} blocks {needed(costs, others, GOOD_BLOCKS):.0f} s: give the host a larger"
        " budget, fewer workloads, or shorter samples; nothing was switched"
    )
