# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a plan looks at its data: after fixed numbers of blocks, and after the last block."""

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.spending import Look
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.verdicts import MIN_BLOCKS

# Each look costs some of the error probability, and each block between two looks costs a host's time: a large effect
# shows in the first few blocks, and later looks are worth it when there is a quarter more to see.
_PLACES = (MIN_BLOCKS, 5, 6, 8, 11, 15, 19, 23, 28)
_GROWTH = 1.25
# Blocks from which on half as many again are waited for.
_MANY, _GROWTH_OF_MANY = 100, 1.5
MAX_LOOKS = 40


def places() -> "list[int]":
    """Return the numbers of blocks after which a plan looks at its data, rising: 4, 5, 6, 8, 11, 15, 19, 23, 28, 35,
    44, ...
    """
    order = list(_PLACES)
    while len(order) < MAX_LOOKS - 1:
        order.append(round(order[-1] * (_GROWTH if order[-1] < _MANY else _GROWTH_OF_MANY)))
    return order


class Schedule:
    """The looks of a plan.

    Attributes:
        looks: those that have been taken, in their order.
    """

    def __init__(self) -> None:
        self.looks: list[Look] = []
        self._places = places()

    def take(self, blocks: int, more: int) -> bool:
        """Take a look if one is due.

        The share of the plan that is done grows with each look by its part of the blocks that were still possible then.
        It therefore ends at 1 however the forecast changed, and a changed forecast is no error as long as it does not
        depend on the effect that is looked for (K. K. G. Lan, D. L. DeMets, Changing frequency of interim analysis in
        sequential monitoring, Biometrics 45 (1989)).

        Args:
            blocks: the number of blocks that are done.
            more: how many more blocks are possible by now.

        Returns:
            Whether a look is due.
        """
        before = self.looks[-1] if self.looks else Look(0, 0.0)
        # Blocks of a trial are done several at a time: then the first number of them from a planned place on is looked
        # at.
        if (
            blocks < MIN_BLOCKS
            or blocks <= before.blocks
            or (more and not any(before.blocks < place <= blocks for place in self._places))
        ):
            return False
        new = blocks - before.blocks
        self.looks.append(Look(blocks, before.share + (1 - before.share) * new / (new + more)))
        return True
