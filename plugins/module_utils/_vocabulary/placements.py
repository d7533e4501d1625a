# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The placements of workers: their names, in the order in which they are shown, and their titles."""

import re

SINGLE = "single"
SAME_CPU = "same_cpu"
SIBLINGS = "siblings"
CORES = "cores"
ONE_PER_CORE = "one_per_core"
ALL_THREADS = "all_threads"
UNPINNED = "unpinned"
# From one worker to all CPUs; streams and unknown placements follow.
NAMES = (SINGLE, SAME_CPU, SIBLINGS, CORES, ONE_PER_CORE, ALL_THREADS, UNPINNED)
# Four digits are enough for the number of CPUs of any machine.
STREAMS = re.compile(r"streams_([0-9]{1,4})\Z")

TITLES = {
    SINGLE: "one worker alone",
    SAME_CPU: "two workers on one CPU",
    SIBLINGS: "two workers on one core",
    CORES: "two workers on two cores",
    ONE_PER_CORE: "one worker per core",
    ALL_THREADS: "every online thread busy",
    UNPINNED: "as many workers, not pinned",
}
# For a line of progress.
SHORT_TITLES = {
    SINGLE: "one worker alone",
    SAME_CPU: "two on one CPU",
    SIBLINGS: "two on one core",
    CORES: "two on two cores",
    ONE_PER_CORE: "one per core",
    ALL_THREADS: "all threads",
    UNPINNED: "unpinned",
}


def title(name: str) -> str:
    """Return the name of a placement for people."""
    match = STREAMS.match(name)
    if match:
        return f"{match.group(1)} stream{'' if match.group(1) == '1' else 's'}"
    return TITLES.get(name, name)
