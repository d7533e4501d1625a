# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose siblings count: those that the kernel shows, that the probe has measured, or that a user names.

A hypervisor may show a guest another topology than the hardware's. Placements, and what is taken offline CPU by CPU,
then have to follow other siblings than the kernel's. A topology with such siblings has the source ``measured`` or
``declared``.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import cache
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology, read_topology

KERNEL, MEASURED, DECLARED = "kernel", "measured", "declared"
# What a topology's ``source`` reads when its cores are not the kernel's.
NOT_THE_KERNELS = (MEASURED, DECLARED)
# No core has more threads.
_MAX_THREADS = 64
# The cores that a sentence names.
_MAX_SHOWN = 8

Cores = t.Tuple[t.Tuple[int, ...], ...]


class SiblingsError(HostError):
    """The siblings that were asked for are not valid, or not known on this host; the text names them,
    the reason and the way out.
    """


def parse(given: object) -> "t.Union[str, Cores]":
    """Return whose siblings are asked for: ``kernel``, ``measured``, or the CPUs of each core.

    Args:
        given: one of these words, or a list with the CPUs of each core: a list of numbers or a CPU list each.

    Raises:
        SiblingsError: it is none of these, or names a CPU twice.
    """
    if isinstance(given, str) and given in (KERNEL, MEASURED):
        return given
    way_out = "give kernel, measured, or the CPUs of each core, such as [[0, 2], [1, 3]]"
    if not isinstance(given, (list, tuple)) or not given or len(given) > cpulist.MAX_CPU:
        raise SiblingsError(f"siblings is {cpulist.quoted(given)}: {way_out}")
    cores: list[tuple[int, ...]] = []
    placed: set[int] = set()
    for entry in given:
        try:
            text = ",".join(map(str, entry[: _MAX_THREADS + 1])) if isinstance(entry, (list, tuple)) else str(entry)
            core = cpulist.parse(text, _MAX_THREADS)
        except cpulist.CpuListError as error:
            raise SiblingsError(f"siblings has the core {cpulist.quoted(entry)}: {error}: {way_out}") from None
        if not core:
            raise SiblingsError(f"siblings has a core without CPUs: {way_out}")
        twice = next((cpu for cpu in core if cpu in placed), None)
        if twice is not None:
            raise SiblingsError(f"siblings names CPU {twice} in more than one core: a CPU belongs to one core")
        placed.update(core)
        cores.append(core)
    return tuple(sorted(cores))


def read(fs: HostFs, given: object) -> Topology:
    """Return a host's topology with the siblings that are asked for.

    Args:
        fs: the host's files.
        given: as for :func:`parse`.

    Raises:
        SiblingsError: they are not valid, or not known on this host.
    """
    return applied(read_topology(fs, topology_cache.load(fs)), given, cache.load(fs))


def applied(topology: Topology, given: object, measured: "t.Mapping[str, t.Any] | None") -> Topology:
    """Return a topology with the siblings that are asked for.

    Each CPU that a user's own list leaves out is a core of its own.

    Args:
        topology: as the kernel shows it.
        given: as for :func:`parse`.
        measured: the facts' ``measured``.

    Raises:
        SiblingsError: they are not valid, or not known on this host.
    """
    wanted = parse(given)
    if wanted == KERNEL:
        return topology
    if isinstance(wanted, str):
        return _with(topology, _measured(topology, measured), MEASURED)
    named = {cpu for core in wanted for cpu in core}
    absent = sorted(named - set(topology.present))
    if absent:
        raise SiblingsError(
            f"siblings names CPU {absent[0]}, which this host does not have: it has CPUs"
            f" {cpulist.render(topology.present)}"
        )
    return _with(topology, (*wanted, *((cpu,) for cpu in topology.present if cpu not in named)), DECLARED)


def _measured(topology: Topology, measured: "t.Mapping[str, t.Any] | None") -> Cores:
    way_out = (
        "measure again on an idle host (smt_probe; smt_eval_probe: always), or name the siblings, such as siblings:"
        " [[0, 2], [1, 3]]"
    )
    if measured is None:
        raise SiblingsError(f"the siblings of this host were not measured since it booted: {way_out}")
    if measured["unclear"]:
        raise SiblingsError(
            f"by measuring, it is not clear which CPUs share a core with CPUs {measured['unclear']}: {way_out}"
        )
    cores = (
        *(cpulist.parse(pair) for pair in measured["pairs"]),
        *((cpu,) for cpu in cpulist.parse(measured["singles"])),
    )
    missing = set(topology.present) - {cpu for core in cores for cpu in core}
    if missing:
        raise SiblingsError(
            f"the siblings of CPUs {cpulist.render(missing)} were not measured, because these were offline or not"
            f" allowed: {way_out}"
        )
    return tuple(cores)


def _with(topology: Topology, cores: "t.Iterable[tuple[int, ...]]", source: str) -> Topology:
    return topology._replace(cores=tuple(sorted(cores)), source=source, complete=True)


def method(topology: Topology) -> str:
    """Return the method that takes a topology's siblings offline, as in _set/runtime/state.py:
    the kernel's own control knows only the kernel's siblings.
    """
    return "cpu_online" if topology.source in NOT_THE_KERNELS else "auto"


def described(topology: Topology) -> "str | None":
    """Return a sentence about siblings that are not the kernel's, else None."""
    if topology.source not in NOT_THE_KERNELS:
        return None
    shared = [cpulist.render(core) for core in topology.cores if len(core) > 1]
    more = f" and {len(shared) - _MAX_SHOWN} more" if len(shared) > _MAX_SHOWN else ""
    which = f"CPUs {', '.join(shared[:_MAX_SHOWN])}{more} share a core" if shared else "no two CPUs share a core"
    return f"Siblings as {topology.source}, not as the kernel shows them: {which}."
