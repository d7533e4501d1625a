# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdicts about a ratio and its interval, for the plan on a host and for the report on the controller;
docs/verdicts.md explains them.
"""

GAIN = "gain"
LOSS = "loss"
EQUIVALENT = "equivalent"
INCONCLUSIVE = "inconclusive"

# With fewer blocks the variance is not known well enough for a verdict: three blocks have the same sign in one of four
# A/A comparisons.
MIN_BLOCKS = 4
# With fewer blocks ranks take too few values: all n blocks have the same sign with probability 2 ** (1 - n), 3 % for 6
# and 6 % for 5.
MIN_BLOCKS_RANKED = 6

# A gain or loss must exclude 1 by this share of the margin: an interval of confidence 0.95 that only excludes 1 is
# wrong 5 times in 100.
CLEARANCE = 0.25


def verdict(centre: float, low: float, high: float, margin: float) -> str:
    """Return the verdict; all arguments are on the log scale, where the margin is symmetric."""
    if -margin <= low and high <= margin:
        return EQUIVALENT
    if low > CLEARANCE * margin and centre > margin:
        return GAIN
    if high < -CLEARANCE * margin and centre < -margin:
        return LOSS
    return INCONCLUSIVE


def least_centre(half: float, margin: float) -> float:
    """Return the least log-ratio that is called a gain when half of its interval's width is ``half``."""
    return max(half + CLEARANCE * margin, margin)
