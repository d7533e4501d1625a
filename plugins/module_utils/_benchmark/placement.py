# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placements: which worker runs on which CPU. They depend on the topology, never on CPU numbers."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary.placements import NAMES, STREAMS

TOPOLOGY_UNKNOWN = "this host does not report which CPUs share a core"


class Assignment(TypedDict):
    """A placement in one arm.

    Attributes:
        workers: the CPU list of each worker, or None if the placement does not exist.
        same_as: the name of an earlier placement with the same CPUs, or None.
        reason: why the placement does not exist, or None.
    """

    workers: "list[list[int]] | None"
    same_as: "str | None"
    reason: "str | None"


# The CPU list of each worker and None, or None and the reason why the placement does not exist.
Workers = t.Tuple[t.Optional[t.List[t.List[int]]], t.Optional[str]]


class PlacementError(ValueError):
    """An unknown name of a placement."""


class Placements:
    """The placements of one host in one SMT state.

    Args:
        cores: the CPUs of each core, as in ``Topology.cores``; empty if the topology is unknown.
        packages: the CPUs of each package, as in ``Topology.packages``; can be empty.
        usable: the CPUs that workers can use: online, in the affinity mask of this process and not isolated.

    Attributes:
        usable: as above, sorted.
        cores: the usable CPUs of each core; cores without a usable CPU are left out.
        packages: as above.
        topology_known: whether the core of each usable CPU is known.
        threads: the largest number of usable threads of a core, 0 if the topology is unknown.
    """

    def __init__(self, cores: "t.Iterable[t.Sequence[int]]", packages: "t.Iterable[t.Sequence[int]]", usable: "t.Iterable[int]") -> None:
        self.usable = tuple(sorted(set(usable)))
        allowed = set(self.usable)
        self.cores = tuple(filter(None, (tuple(cpu for cpu in core if cpu in allowed) for core in cores)))
        self.packages = tuple(packages)
        placed = {cpu for core in self.cores for cpu in core}
        # A CPU of an unknown core can be a sibling of any other CPU. Then no statement about shared cores is possible.
        self.topology_known = bool(self.cores) and placed == allowed
        self.threads = max((len(core) for core in self.cores), default=0) if self.topology_known else 0

    def workers(self, name: str) -> Workers:
        """Return the CPUs of each worker in a placement.

        Args:
            name: one of ``NAMES``, or ``streams_N`` for N workers that fill all cores before they use siblings.

        Returns:
            A pair: the CPU list of each worker (an empty list means that the worker is not pinned) and None,
            or None and the reason why this placement does not exist on this host.

        Raises:
            PlacementError: no placement has this name.
        """
        streams = STREAMS.match(name)
        if streams:
            return self._streams(int(streams.group(1)))
        if name not in NAMES:
            raise PlacementError(f"there is no placement {name!r}: choose from {', '.join(NAMES)}, streams_N")
        if not self.usable:
            return None, "no CPU is usable: none is online, in the affinity mask of this process and not isolated"
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
        return [[self._home()[0]], [self._second_core()[0]]], None

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
            return None, "the number of streams must be at least 1"
        by_thread = [[core[thread]] for thread in range(self.threads) for core in self.cores if thread < len(core)]
        if count > len(by_thread):
            return None, f"{count} streams need more than the {len(by_thread)} usable CPUs"
        return by_thread[:count], None

    def _home(self) -> "tuple[int, ...]":
        """Return the core that single, same_cpu, siblings and cores have in common, so that only the placement differs."""
        if not self.topology_known:
            return self.usable[:1]
        return next(core for core in self.cores if len(core) == self.threads)

    def _second_core(self) -> "tuple[int, ...]":
        """Return the second core for ``cores``, preferably of the same package and kind as the home core.

        Another package has its own caches and memory, and another kind of core (hybrid processors) has another speed. Then the difference
        from ``siblings`` would not be due to core sharing alone.
        """
        home = self._home()
        package: set[int] = next((set(package) for package in self.packages if home[0] in package), set())
        others = [core for core in self.cores if core != home]
        return min(others, key=lambda core: (core[0] not in package, len(core) != len(home), core[0]))


def same_as_earlier(workers_by_name: "t.Mapping[str, t.Sequence[t.Sequence[int]]]") -> "dict[str, str | None]":
    """Find placements with the same CPUs as an earlier placement.

    Args:
        workers_by_name: {placement: CPU list of each worker}, in the order of measurement.

    Returns:
        {placement: the name of the first earlier placement with the same CPUs, or None}.
    """
    seen: dict[tuple[tuple[int, ...], ...], str] = {}
    same: dict[str, t.Optional[str]] = {}
    for name, workers in workers_by_name.items():
        key = tuple(sorted(tuple(cpus) for cpus in workers))
        same[name] = seen.get(key)
        seen.setdefault(key, name)
    return same
