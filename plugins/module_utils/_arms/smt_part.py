# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SMT off on a part of the cores: those of a NUMA node, of a package, of some CPUs or of a unit.

The other cores have all their threads.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._arms.base import Host
from ansible_collections.threadwise.smt.plugins.module_utils._arms.smt import (
    FewerThreads,
    all_online,
    secondary_threads,
)
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._smt import scope as smt_scope, state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms


class SmtOffOn(FewerThreads):
    """One thread online of each core of a part of the host."""

    pattern = arms.pattern_of(arms.SMT_OFF_ON)
    written = tuple(f"{arms.SMT_OFF_ON}_{kind}" for kind in ("node_N", "package_N", "cpus_LIST", "unit_NAME"))
    summary = (
        "`{smt_off_on: {node: 0}}` and so on: one thread is online of each core of that part, all threads are of the"
        " others"
    )
    needs = "SMT that can be switched at run time, a part that is not the whole host, and no affinity conflicts"

    def __init__(self, name: str, host: Host) -> None:
        kind, value = arms.part_of(name)
        self._unknown: t.Optional[str] = None
        try:
            self._scope = smt_scope.parse({kind: value})
            self.only = smt_scope.resolve(self._scope, host.topology, HostFs(host.files.sysroot))
        except smt_scope.ScopeError as error:
            self._unknown = str(error)
        super().__init__(name, host)
        self.settings = {"smt": "off", "on": f"{kind} {value}"}

    @classmethod
    def title_of(cls, name: str) -> str:
        """Return the title of the arm with a name."""
        kind, value = arms.part_of(name)
        return f"SMT off on {'CPUs' if kind == 'cpus' else kind} {value}"

    def _why_not(self) -> "str | None":
        """Return why there is no such part with siblings on this host, or None."""
        topology = self.host.topology
        if self._unknown or not topology.complete:
            # Without its siblings, which are offline, a core has one thread; they come online before the first block.
            return self._unknown
        if smt_state.names_all(self.only, topology.cores, topology.online):
            return f"that is every core of this host, and so the arm {arms.SMT_OFF}: name that one"
        if not self._siblings():
            return "no core of that part has a second thread online"
        return None

    def _siblings(self) -> "set[int]":
        """Return all but the first online thread of each core of the part."""
        cores = [core for core in self.host.topology.cores if self.only is not None and not self.only.isdisjoint(core)]
        inside = {cpu for core in cores for cpu in core}
        return inside & set(secondary_threads(self.host, all_online(self.host)))

    def online(self) -> "set[int]":
        """Return the CPUs that are online, without the siblings of the part."""
        return all_online(self.host) - self._siblings()


ARMS = (SmtOffOn,)
