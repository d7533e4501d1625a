# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of the arms in each block, balanced so that drift, and what an arm leaves behind for the next one,
affect all arms alike.
"""

import typing as t

DESCRIPTION = (
    "a Williams design: each arm follows each other one equally often; every second block takes its samples in reverse"
    " order"
)


def of_block(arms: "t.Sequence[str]", block: int) -> "list[str]":
    """Return the arms of a block in order: a row of a Williams design, two arms alternate A B, B A.

    Source: E. J. Williams, Experimental designs balanced for the estimation of residual effects of treatments (1949).

    Args:
        arms: the arms, the baseline first.
        block: the number of the block, from 0.
    """
    count = len(arms)
    # 0, 1, n-1, 2, n-2, ...: adjacent numbers differ by each value once. With an odd number of arms the mirrored rows
    # are needed too.
    first = [0, *((step + 1) // 2 if step % 2 else count - step // 2 for step in range(1, count))]
    rows = count if count % 2 == 0 else 2 * count
    row = block % rows
    shifted = [(place + row % count) % count for place in first]
    return [arms[place] for place in (shifted if row < count else shifted[::-1])]
