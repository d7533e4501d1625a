# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Placements: which worker runs on which CPU. They depend on the topology, never on CPU numbers."""

import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary.placements import (
    CHOICES,
    FREE,
    PACKED,
    REMOTE_MEMORY,
    explicit,
    is_known,
    numbered,
)

TOPOLOGY_UNKNOWN = "this host does not report which CPUs share a core"
# The result names the CPUs of each worker.
MAX_WORKERS = 1024


class Assignment(TypedDict):
    """A placement in one arm.

    Attributes:
        workers: the CPU list of each worker, or None if the placement does not exist.
        memory_node: the NUMA node that all memory of the workers comes from, or None for the kernel's choice.
        same_as: the name of an earlier placement with the same CPUs, or None.
        reason: why the placement does not exist, or None.
    """

    workers: "list[list[int]] | None"
    memory_node: "int | None"
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
        nodes: NUMA node -> its CPUs, as in ``Topology.nodes``; can be empty.
        memory_nodes: the NUMA nodes that have memory.

    Attributes:
        usable: as above, sorted.
        cores: the usable CPUs of each core; cores without a usable CPU are left out.
        packages: as above.
        topology_known: whether the core of each usable CPU is known.
        threads: the largest number of usable threads of a core, 0 if the topology is unknown.
    """

    def __init__(
        self,
        cores: "t.Iterable[t.Sequence[int]]",
        packages: "t.Iterable[t.Sequence[int]]",
        usable: "t.Iterable[int]",
        nodes: "t.Mapping[int, t.Sequence[int]]" = types.MappingProxyType({}),
        memory_nodes: "t.Iterable[int]" = (),
    ) -> None:
        self.usable = tuple(sorted(set(usable)))
        allowed = set(self.usable)
        every = [tuple(core) for core in cores]
        self.cores = tuple(filter(None, (tuple(cpu for cpu in core if cpu in allowed) for core in every)))
        self._has_siblings = any(len(core) > 1 for core in every)
        self.packages = tuple(packages)
        self._nodes = nodes
        self._memory_nodes = tuple(memory_nodes)
        placed = {cpu for core in self.cores for cpu in core}
        # A CPU of an unknown core can be a sibling of any other CPU. Then no statement about shared cores is possible.
        self.topology_known = bool(self.cores) and placed == allowed
        self.threads = max((len(core) for core in self.cores), default=0) if self.topology_known else 0

    def workers(self, name: str) -> Workers:
        """Return the CPUs of each worker in a placement.

        Args:
            name: one of ``CHOICES``. Of N workers, ``free_N`` leaves each to the scheduler within the usable CPUs,
                ``spread_N`` pins them so that they fill all cores before they use siblings, ``packed_N`` so that they
                fill the threads of a core before they use the next core. ``cpus_A_B`` pins one worker to each of the
                CPUs A, B.

        Returns:
            A pair: the CPU list of each worker (an empty list means that the worker is not pinned) and None,
            or None and the reason why this placement does not exist on this host.

        Raises:
            PlacementError: no placement has this name.
        """
        count = numbered(name)
        cpus = explicit(name)
        if not is_known(name):
            raise PlacementError(f"there is no placement {name[:80]!r}: choose from {', '.join(CHOICES)}")
        if not self.usable:
            return None, "no CPU is usable: none is online, in the affinity mask of this process and not isolated"
        if count is not None:
            return self._numbered(count.kind, count.workers)
        if cpus is not None:
            return self._explicit(cpus)
        workers: Workers = getattr(self, "_" + name)()
        return workers

    def memory_node(self, name: str) -> "int | None":
        """Return the NUMA node that all memory of a placement's workers comes from, or None for the kernel's choice."""
        return self._remote_node() if name == REMOTE_MEMORY else None

    def _single(self) -> Workers:
        return [[self._home()[0]]], None

    def _same_cpu(self) -> Workers:
        return [[self._home()[0]]] * 2, None

    def _siblings(self) -> Workers:
        if not self.topology_known:
            return None, TOPOLOGY_UNKNOWN
        if self.threads < 2:
            usable = "that are online, allowed to this process and not isolated" if self._has_siblings else "online"
            return None, f"no core has two threads {usable}"
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

    def _packages_2(self) -> Workers:
        if not self.topology_known:
            return None, TOPOLOGY_UNKNOWN
        home = self._home()
        here = self._package_of(home)
        others = [core for core in self.cores if core[0] not in here]
        if not here or not others:
            return None, "there is only one package" if here else "this host does not report its packages"
        return [[home[0]], [min(others, key=lambda core: (len(core) != len(home), core[0]))[0]]], None

    def _remote_memory(self) -> Workers:
        if self._remote_node() is not None:
            return self._single()
        local = self._local_node()
        if local is None or not self._memory_nodes:
            return None, "this host does not report NUMA nodes"
        if local not in self._memory_nodes:
            return (
                None,
                (
                    f"NUMA node {local} of CPU {self._home()[0]} has no memory of its own, so there is no local memory"
                    " to compare with"
                ),
            )
        return None, "there is only one NUMA node with memory"

    def _local_node(self) -> "int | None":
        """Return the NUMA node of the home CPU, or None."""
        home = self._home()[0]
        return next((node for node, cpus in self._nodes.items() if home in cpus), None)

    def _remote_node(self) -> "int | None":
        """Return the first NUMA node with memory that is not the node of the home CPU;
        None also where that one has no memory.
        """
        local = self._local_node()
        # The kernel takes the memory of such a CPU from the nearest other node, which may be the first: nothing would
        # be compared.
        return (
            next((node for node in self._memory_nodes if node != local), None) if local in self._memory_nodes else None
        )

    def _numbered(self, kind: str, count: int) -> Workers:
        if count > MAX_WORKERS:
            return None, f"{count} workers are more than {MAX_WORKERS}, the most of a placement"
        if kind == FREE:
            return [list(self.usable) for _worker in range(count)], None
        if not self.topology_known:
            return None, TOPOLOGY_UNKNOWN
        if count > len(self.usable):
            return (
                None,
                (
                    f"{count} pinned workers need more than the {len(self.usable)} usable CPUs: free_{count} leaves"
                    " them to the scheduler"
                ),
            )
        if kind == PACKED:
            # Cores with siblings first: on a hybrid host the workers would otherwise not share a core.
            return [[cpu] for core in sorted(self.cores, key=len, reverse=True) for cpu in core][:count], None
        return [[core[thread]] for thread in range(self.threads) for core in self.cores if thread < len(core)][
            :count
        ], None

    def _explicit(self, cpus: "t.Sequence[int]") -> Workers:
        absent = [cpu for cpu in cpus if cpu not in self.usable]
        if absent:
            return (
                None,
                (
                    f"CPU {absent[0]} is not usable: it is offline, isolated, not in the affinity mask of this process,"
                    " or does not exist"
                ),
            )
        return [[cpu] for cpu in cpus], None

    def _home(self) -> "tuple[int, ...]":
        """Return the core that single, same_cpu, siblings and cores have in common,
        so that only the placement differs.
        """
        if not self.topology_known:
            return self.usable[:1]
        return next(core for core in self.cores if len(core) == self.threads)

    def _second_core(self) -> "tuple[int, ...]":
        """Return the second core for ``cores``, preferably of the same package and kind as the home core.

        Another package has its own caches and memory, and another kind of core (hybrid processors) has another speed.
        Then the difference from ``siblings`` would not be due to core sharing alone.
        """
        home = self._home()
        package = self._package_of(home)
        others = [core for core in self.cores if core != home]
        return min(others, key=lambda core: (core[0] not in package, len(core) != len(home), core[0]))

    def _package_of(self, core: "t.Sequence[int]") -> "set[int]":
        """Return the CPUs of the package of a core, or none if the packages are not known."""
        return next((set(package) for package in self.packages if core[0] in package), set())


def same_as_earlier(
    placed: "t.Mapping[str, tuple[t.Sequence[t.Sequence[int]], int | None]]",
) -> "dict[str, str | None]":
    """Find placements with the same CPUs, and memory of the same node, as an earlier placement.

    Args:
        placed: {placement: (CPU list of each worker, memory node)}, in the order of measurement.

    Returns:
        {placement: the name of the first such earlier placement, or None}.
    """
    seen: dict[tuple[object, ...], str] = {}
    same: dict[str, t.Optional[str]] = {}
    for name, (workers, node) in placed.items():
        key = (node, *sorted(tuple(cpus) for cpus in workers))
        same[name] = seen.get(key)
        seen.setdefault(key, name)
    return same
