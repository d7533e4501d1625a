# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What two factors do, as comparisons of two sides: on the host, which looks at them, and in the report.

Of four arms, both levels of one factor with both of the other, each block has a value of each: a main effect compares
the geometric means over the levels of the other factor, so that every sample counts for both factors. The interaction
is the effect of the first factor at the second level of the other one, divided by that at the first. Source: D. C.
Montgomery, Design and Analysis of Experiments, the 2^k factorial design, on logarithms.
"""

import typing as t

# The values of both sides, one for each block.
Sides = t.Tuple[t.List[float], t.List[float]]


def of_factors(
    base: "t.Sequence[float]", second: "t.Sequence[float]", first: "t.Sequence[float]", both: "t.Sequence[float]"
) -> "list[Sides]":
    """Return the sides of the main effect of the first factor, of that of the second one, and of their interaction.

    Args:
        base: values above zero of the blocks at both baselines.
        second: at the other level of the second factor alone.
        first: at the other level of the first factor alone.
        both: at the other level of both.
    """

    def products(values: "t.Sequence[float]", other: "t.Sequence[float]", power: float = 1.0) -> "list[float]":
        return [(a * b) ** power for a, b in zip(values, other)]

    return [
        (products(base, second, 0.5), products(first, both, 0.5)),
        (products(base, first, 0.5), products(second, both, 0.5)),
        (products(second, first), products(base, both)),
    ]
