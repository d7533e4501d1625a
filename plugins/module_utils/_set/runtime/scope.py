# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scope of a change: the whole machine, or the cores of some CPUs, of a NUMA node,
of a package or of a systemd unit.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files, kernel_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import units
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.errors import SmtError

CPUS, NODE, PACKAGE, UNIT = "cpus", "node", "package", "unit"
KINDS = (CPUS, NODE, PACKAGE, UNIT)
_ALL = "all"

_NUMBER = re.compile(r"[0-9]{1,6}")
# systemd.unit(5): the characters of a name, an instance's too; 255 at most.
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}")
_WAY_OUT = (
    "give one of cpus, node, package and unit, such as cpus: 0-7, node: 0, package: 1 or unit: postgresql.service"
)


class ScopeError(SmtError):
    """A scope is not valid, or this host does not have it; the text names it, the reason and the way out."""


class Scope(t.NamedTuple):
    """The cores that a change is about.

    Attributes:
        kind: one of `KINDS`, or ``all``
        value: a CPU list, a number or the name of a unit, as text; empty for ``all``
    """

    kind: str
    value: str

    @property
    def name(self) -> str:
        """The scope as one word, for results and names of arms: ``cpus_0-7``, ``node_0``, ``unit_postgresql.service``;
        ``all``.
        """
        return f"{self.kind}_{self.value}" if self.value else self.kind

    @property
    def given(self) -> "dict[str, str | int] | None":
        """The scope as :func:`parse` takes it: plain data for options of smt_state and for results."""
        if self.kind == _ALL:
            return None
        return {self.kind: int(self.value) if self.kind in (NODE, PACKAGE) else self.value}

    @property
    def title(self) -> str:
        """The scope for people: ``CPUs 0-7``, ``node 0``."""
        return f"CPUs {self.value}" if self.kind == CPUS else f"{self.kind} {self.value}".strip()


WHOLE = Scope(_ALL, "")


def parse(given: object) -> Scope:
    """Return the scope that is asked for.

    Args:
        given: None for the whole machine, or a mapping with one of ``cpus`` (a CPU list, text or one number), ``node``
            and ``package`` (a number; packages count from 0 by their first CPU), ``unit`` (the full name of a systemd
            unit).

    Raises:
        ScopeError: it is none of these.
    """
    if given is None:
        return WHOLE
    if (
        not isinstance(given, dict)
        or len(given) != 1
        or not all(isinstance(kind, str) and kind in KINDS for kind in given)
    ):
        raise ScopeError(f"{cpulist.quoted(given)} does not name cores: {_WAY_OUT}")
    kind, value = next(iter(given.items()))
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    return Scope(str(kind), _checked(str(kind), text.strip(), value))


def _checked(kind: str, text: str, given: object) -> str:
    """Return a value in its shortest form; raise ScopeError when it is not valid for its kind."""
    if kind == CPUS:
        try:
            cpus = cpulist.parse(text)
        except cpulist.CpuListError as error:
            raise ScopeError(f"cpus: {error}") from None
        if not cpus:
            raise ScopeError(f"cpus is {cpulist.quoted(given)}: name at least one CPU, such as cpus: 0-7")
        return cpulist.render(cpus)
    if kind == UNIT:
        if not _UNIT.fullmatch(text) or not text.endswith(units.SUFFIXES) or text.startswith("."):
            raise ScopeError(
                f"unit is {cpulist.quoted(given)}: give the full name of a service, scope or slice, such as unit:"
                " postgresql.service"
            )
        return text
    if not _NUMBER.fullmatch(text):
        raise ScopeError(f"{kind} is {cpulist.quoted(given)}: it must be a number, such as {kind}: 0")
    return str(int(text))


def resolve(scope: Scope, topology: Topology, fs: t.Optional[host_files.HostFs]) -> "frozenset[int] | None":
    """Return CPUs that name the cores of a scope, for ``only`` of `state.set_threads_per_core`;
    None for the whole machine.

    A CPU stands for its core: the kernel lists only online CPUs in a node.

    Args:
        scope: the scope
        topology: the host's topology
        fs: the host's files; None where only its facts are known, which have no units

    Raises:
        ScopeError: this host has no such CPU, node, package or unit, or it has no CPUs of its own.
    """
    if scope.kind == _ALL:
        return None
    if scope.kind == CPUS:
        return _named_cpus(scope, topology)
    if scope.kind == UNIT:
        return _unit_cpus(scope, topology, fs)
    nodes = dict(enumerate(topology.packages)) if scope.kind == PACKAGE else topology.nodes
    number = int(scope.value)
    if number not in nodes:
        known = f"it has {scope.kind}s {cpulist.render(nodes)}" if nodes else f"its {scope.kind}s are not known"
        raise ScopeError(f"there is no {scope.title} on this host: {known}")
    if not nodes[number]:
        raise ScopeError(f"{scope.title} of this host has no CPUs, only memory: name one with CPUs")
    return frozenset(nodes[number])


def _named_cpus(scope: Scope, topology: Topology) -> "frozenset[int]":
    cpus = frozenset(cpulist.parse(scope.value))
    absent = cpus.difference(topology.present)
    if absent:
        raise ScopeError(f"there is no CPU {min(absent)} on this host: it has CPUs {cpulist.render(topology.present)}")
    return cpus


def _unit_cpus(scope: Scope, topology: Topology, fs: t.Optional[host_files.HostFs]) -> "frozenset[int]":
    """Return the CPUs of a unit's cpuset, or if that does not restrict it, those that its tasks may run on."""
    if fs is None:
        raise ScopeError(f"the CPUs of {scope.title} are not in the facts of a host: name cpus, a node or a package")
    host = kernel_files.KernelFiles(fs.sysroot)
    cgroups = units.cgroups(host, scope.value)
    if not cgroups and not fs.runs_systemd:
        raise ScopeError(
            f"{scope.title} has no cgroup on this host, where systemd does not run: name cpus, a node or a package"
        )
    if not cgroups:
        raise ScopeError(
            f"{scope.title} has no cgroup on this host: it does not run, or its name is another one (systemctl status"
            f" {scope.value})"
        )
    for bound_by in (units.cpus, units.masks):
        for cgroup in cgroups:
            cpus = bound_by(host, cgroup).intersection(topology.present)
            if cpus and not smt_state.names_all(cpus, topology.cores, topology.online):
                return cpus
    raise ScopeError(
        f"{scope.title} may run on every core of this host, so its cores are all cores: "
        "bind it to some (AllowedCPUs= or CPUAffinity= of systemd), or leave it out"
    )
