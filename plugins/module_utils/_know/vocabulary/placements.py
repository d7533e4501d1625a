# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The placements of workers: their names, in the order in which they are shown, and their titles."""

import functools
import re
import typing as t

SINGLE = "single"
SAME_CPU = "same_cpu"
SIBLINGS = "siblings"
CORES = "cores"
PACKAGES = "packages_2"
REMOTE_MEMORY = "remote_memory"
ONE_PER_CORE = "one_per_core"
ALL_THREADS = "all_threads"
UNPINNED = "unpinned"
# From one worker to all CPUs; those with a number of workers, explicit CPUs, and unknown placements follow.
NAMES = (SINGLE, SAME_CPU, SIBLINGS, CORES, PACKAGES, REMOTE_MEMORY, ONE_PER_CORE, ALL_THREADS, UNPINNED)

# What is measured where nothing else is asked for.
DEFAULT = (SINGLE, SAME_CPU, SIBLINGS, CORES, ONE_PER_CORE, ALL_THREADS)

# Placements of any number of workers.
FREE = "free"
SPREAD = "spread"
PACKED = "packed"
NUMBERED = (FREE, SPREAD, PACKED)
# Four digits are enough for the number of CPUs of most machines, and for the number of workers.
_NUMBERED = re.compile(rf"({'|'.join(NUMBERED)})_([1-9][0-9]{{0,3}})\Z")
# One worker on each of these CPUs, so many that the name fits into a result.
MAX_EXPLICIT = 16
LONGEST_NAME = 100
_CPUS = re.compile(rf"cpus((?:_(?:0|[1-9][0-9]{{0,4}})){{1,{MAX_EXPLICIT}}})\Z")
# How messages list what can be chosen.
CHOICES = (*NAMES, *(f"{kind}_N" for kind in NUMBERED), "cpus_A_B")

TITLES = {
    SINGLE: "one worker alone",
    SAME_CPU: "two workers on one CPU",
    SIBLINGS: "two workers on one core",
    CORES: "two workers on two cores",
    PACKAGES: "two workers on two packages",
    REMOTE_MEMORY: "one worker, its memory on another node",
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
    PACKAGES: "two on two packages",
    REMOTE_MEMORY: "remote memory",
    ONE_PER_CORE: "one per core",
    ALL_THREADS: "all threads",
    UNPINNED: "unpinned",
}
_NUMBERED_TITLES = {SPREAD: "on separate cores first", PACKED: "on siblings first"}


class Numbered(t.NamedTuple):
    """A placement of a number of workers.

    Attributes:
        kind: one of ``NUMBERED``.
        workers: their number.
    """

    kind: str
    workers: int


@functools.lru_cache(maxsize=1024)
def numbered(name: str) -> "Numbered | None":
    """Return what the name of a placement of a number of workers says, or None for another placement."""
    match = _NUMBERED.match(name)
    return Numbered(match.group(1), int(match.group(2))) if match else None


def explicit(name: str) -> "tuple[int, ...] | None":
    """Return the CPUs that the name of a placement lists, one for each worker, or None for another placement."""
    match = _CPUS.match(name)
    return tuple(int(cpu) for cpu in match.group(1)[1:].split("_")) if match else None


def on_cpus(cpus: "t.Iterable[int]") -> str:
    """Return the name of the placement with one worker on each of these CPUs."""
    return "_".join(["cpus", *map(str, cpus)])


def is_known(name: str) -> bool:
    """Return whether a placement has this name."""
    return name in NAMES or numbered(name) is not None or explicit(name) is not None


def rank(name: str) -> "tuple[int, int]":
    """Return the place of a placement in the order in which they are shown."""
    if name in NAMES:
        return NAMES.index(name), 0
    streams = numbered(name)
    if streams:
        return len(NAMES) + NUMBERED.index(streams.kind), streams.workers
    return len(NAMES) + len(NUMBERED), len(explicit(name) or ())


def title(name: str) -> str:
    """Return the name of a placement for people."""
    streams = numbered(name)
    if streams:
        if streams.kind == FREE:
            return _counted(streams.workers, "stream")
        return f"{_counted(streams.workers, 'worker')} {_NUMBERED_TITLES[streams.kind]}"
    cpus = explicit(name)
    if cpus:
        return f"{_counted(len(cpus), 'worker')} on CPU{'' if len(cpus) == 1 else 's'} {', '.join(map(str, cpus))}"
    return TITLES.get(name, name)


def short_title(name: str) -> str:
    """Return the name of a placement for a line of progress."""
    return SHORT_TITLES.get(name) or title(name)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
