# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which worker runs on which CPU: placements made from a topology, never from CPU numbers."""

from __future__ import annotations

import re
import typing as t

SINGLE = "single"
SAME_CPU = "same_cpu"
SIBLINGS = "siblings"
CORES = "cores"
ONE_PER_CORE = "one_per_core"
ALL_THREADS = "all_threads"
UNPINNED = "unpinned"
# A machine has not more CPUs than four digits name.
_STREAMS = re.compile(r"streams_([0-9]{1,4})")

NAMES = (SINGLE, SAME_CPU, SIBLINGS, CORES, ONE_PER_CORE, ALL_THREADS, UNPINNED)

TOPOLOGY_UNKNOWN = "this host does not tell which CPUs share a core"


class Spot(t.TypedDict):
    """A placement under one condition."""

    workers: list[list[int]] | None
    same_as: str | None
    reason: str | None


# The CPU list of each worker and None, or None and the reason why there is none.
Workers = t.Tuple[t.Optional[t.List[t.List[int]]], t.Optional[str]]


class PlacementError(ValueError):
    """A placement was asked for by a name that does not exist."""


class Placements:
    """The placements of one host in one SMT state.

    Args:
        cores: CPU tuples, one a core, as in ``Topology.cores``; empty when the topology is unknown.
        packages: CPU tuples, one a package, as in ``Topology.packages``; may be empty.
        usable: the CPUs that workers may use: online, allowed to this process, not isolated for somebody else.
    """

    def __init__(self, cores: t.Iterable[t.Sequence[int]], packages: t.Iterable[t.Sequence[int]], usable: t.Iterable[int]) -> None:
        self.usable = tuple(sorted(set(usable)))
        allowed = set(self.usable)
        self.cores = tuple(filter(None, (tuple(cpu for cpu in core if cpu in allowed) for core in cores)))
        self.packages = tuple(packages)
        placed = {cpu for core in self.cores for cpu in core}
        # A CPU whose core is unknown may be anybody's sibling: then no statement about sharing a core holds.
        self.topology_known = bool(self.cores) and placed == allowed
        self.threads = max((len(core) for core in self.cores), default=0) if self.topology_known else 0

    def workers(self, name: str) -> Workers:
        """The CPUs of each worker under a placement.

        Args:
            name: one of ``NAMES``, or ``streams_N`` for N workers spread over cores first and over siblings only then.

        Returns:
            A pair: a list with one CPU list a worker (an empty CPU list is a worker that is not pinned) and None,
            or None and the reason why this placement does not exist here.

        Raises:
            PlacementError: no placement has this name.
        """
        streams = _STREAMS.fullmatch(name)
        if streams:
            return self._streams(int(streams.group(1)))
        if name not in NAMES:
            raise PlacementError(f"there is no placement {name!r}: choose from {', '.join(NAMES)}, streams_N")
        if not self.usable:
            return None, "no CPU may be used"
        found: Workers = getattr(self, "_" + name)()
        return found

    def _single(self) -> Workers:
        return [[self._home()[0]]], None

    def _same_cpu(self) -> Workers:
        return [[self._home()[0]]] * 2, None

    def _siblings(self) -> Workers:
        if not self.topology_known:
            return None, TOPOLOGY_UNKNOWN
        if self.threads < 2:
            return None, "no core has two threads online"
        return [[cpu] for cpu in self._home()[:2]], None

    def _cores(self) -> Workers:
        if not self.topology_known:
            return None, TOPOLOGY_UNKNOWN
        if len(self.cores) < 2:
            return None, "there is only one core"
        return [[self._home()[0]], [self._neighbour()[0]]], None

    def _one_per_core(self) -> Workers:
        if not self.topology_known:
            return None, TOPOLOGY_UNKNOWN
        return [[core[0]] for core in self.cores], None

    def _all_threads(self) -> Workers:
        return [[cpu] for cpu in self.usable], None

    def _unpinned(self) -> Workers:
        return [[] for _cpu in self.usable], None

    def _streams(self, count: int) -> Workers:
        if not self.topology_known:
            return None, TOPOLOGY_UNKNOWN
        if count < 1:
            return None, "streams are counted from 1"
        by_thread = [[core[thread]] for thread in range(self.threads) for core in self.cores if thread < len(core)]
        if count > len(by_thread):
            return None, f"{count} streams on {len(by_thread)} CPUs"
        return by_thread[:count], None

    def _home(self) -> tuple[int, ...]:
        """The core that single, same_cpu, siblings and cores share, so that they differ in nothing but the placement."""
        if not self.topology_known:
            return self.usable[:1]
        return next(core for core in self.cores if len(core) == self.threads)

    def _neighbour(self) -> tuple[int, ...]:
        """The core beside the home core: of the same package and kind where there is one.

        Another package would add its own caches and memory, another kind (hybrid processors) another speed: the difference
        to ``siblings`` would no longer be the sharing of a core alone.
        """
        home = self._home()
        package: set[int] = next((set(package) for package in self.packages if home[0] in package), set())
        others = [core for core in self.cores if core != home]
        return min(others, key=lambda core: (core[0] not in package, len(core) != len(home), core[0]))


def same_as_earlier(workers_by_name: t.Mapping[str, t.Sequence[t.Sequence[int]]]) -> dict[str, str | None]:
    """Which placements are, on this host, the same CPUs as one before them.

    Args:
        workers_by_name: placement name -> list of CPU lists, in the order of measuring.

    Returns:
        dict: placement name -> name of the earlier placement with the same CPUs, or None.
    """
    seen: dict[tuple[tuple[int, ...], ...], str] = {}
    same: dict[str, str | None] = {}
    for name, workers in workers_by_name.items():
        key = tuple(sorted(tuple(cpus) for cpus in workers))
        same[name] = seen.get(key)
        seen.setdefault(key, name)
    return same
