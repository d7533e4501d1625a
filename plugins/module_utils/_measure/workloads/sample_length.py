# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a sample has to be, so that neither the clock nor the start of a command matters, and no longer."""

import typing as t

# The start of a command, such as loading it, may take this share of a sample. It does not depend on an arm as the work
# does: a share of 1 % hides at most 0.4 % of an effect of 40 %.
START_SHARE = 0.01
# The kernel counts the CPU time of telemetry in ticks of 10 ms (proc(5)): 20 of them.
MIN_SECONDS = 0.2
# A command whose start takes longer than START_SHARE of this is measured with its start.
MAX_SECONDS = 1.0
# The shortest of so many runs is what a run takes undisturbed.
ROUNDS = 3


class Timing(t.NamedTuple):
    """An amount of work, and the seconds that a run of it took."""

    work: int
    seconds: float


def start_seconds(less: Timing, more: Timing) -> float:
    """Return the seconds of a run that do not depend on the amount of work:
    where the line through two timings meets no work at all.
    """
    pace = (more.seconds - less.seconds) / (more.work - less.work)
    return max(0.0, less.seconds - pace * less.work)


def enough(start: float) -> float:
    """Return the seconds of a sample that are enough for a start of so many seconds."""
    return min(max(start / START_SHARE, MIN_SECONDS), MAX_SECONDS)
