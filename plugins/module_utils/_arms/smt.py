# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SMT on and SMT off, switched at run time."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._arms.base import Arm, ArmError, Host
from ansible_collections.threadwise.smt.plugins.module_utils._bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._host.cpulist import render
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._siblings import source as sibling_source
from ansible_collections.threadwise.smt.plugins.module_utils._smt import restore as smt_restore, state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms

# The files that a runtime method writes, for the announcement.
METHOD_FILES = {"smt_control": "smt/control", "cpu_online": "cpuN/online"}


def why_smt_is_not_switched(facts: "t.Mapping[str, t.Any]") -> "str | None":
    """Return why SMT cannot be switched on this host, as a part of a sentence, or None when it can.

    Args:
        facts: ``ansible_facts['smt']``.
    """
    control = facts["control"]
    kernels = facts["source"] not in sibling_source.NOT_THE_KERNELS
    if kernels and (control == smt_state.NOT_SUPPORTED or facts["supported"] is False):
        return f"this host has no SMT to switch (smt/control reads {control})"
    if facts["complete"] and facts["threads_per_core"]["max"] == 1 and control not in smt_state.OFF:
        return "no core of this host has a second thread" + ("" if kernels else f" by the siblings {facts['source']}")
    runtime = facts["methods"]["runtime"]
    if runtime["chosen"] is None:
        reasons = "; ".join(f"{method}: {reason}" for method, reason in sorted(runtime["impossible"].items()))
        return f"SMT cannot be switched at run time on this host ({reasons or 'no method'})"
    return None


class _Smt(Arm):
    """The base of both arms: the same CPUs and affinities are saved and restored."""

    lever = "smt"

    def __init__(self, name: str, host: Host) -> None:
        super().__init__(name, host)
        self.reason = why_smt_is_not_switched(host.facts)
        self.settings = {"smt": name.partition("_")[2]}

    @classmethod
    def title_of(cls, name: str) -> str:
        """Return the title of the arm with a name."""
        return arms.TITLES[name]

    def _secondary_threads(self, online: "t.Collection[int]") -> "list[int]":
        """Return all but the first online thread of each core."""
        return [cpu for core in self.host.topology.cores for cpu in [one for one in core if one in online][1:]]

    def restoration(self) -> "str | None":
        """Name the present state of SMT."""
        return f"SMT (smt/control {self.host.facts['control']}, CPUs {render(self.host.topology.online)} online)"

    def prepare(self) -> bool:
        """Save the topology, or switch SMT on when the topology is incomplete because siblings are offline."""
        topology = self.host.topology
        if topology.complete:
            topology_cache.save(HostFs("/"), topology)
            return False
        self._enable()
        return True

    def _enable(self) -> None:
        try:
            smt_state.enable("/", self.host.topology.cores, sibling_source.method(self.host.topology), origin=self.host.origin)
        except smt_state.StateError as error:
            raise ArmError(str(error)) from error

    def save(self) -> "dict[str, t.Any]":
        """Return the affinities that the kernel changes when siblings go offline."""
        online = smt_state.read("/")["online"]
        return {"masks": affinity.capture(KernelFiles("/"), online, self._secondary_threads(online)), "remove": []}

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Restore the CPUs and the affinities."""
        return smt_restore.restore(KernelFiles("/"), saved)


class SmtOn(_Smt):
    """All siblings online."""

    pattern = arms.SMT_ON

    def online(self) -> "set[int]":
        """Return the CPUs that are online, with all siblings of cores in use."""
        online = set(self.host.topology.online)
        cores = self.host.topology.cores
        if smt_state.smt_in_use(online, cores):
            return online
        return online | {cpu for core in cores if online & set(core) for cpu in core}

    def announcement(self) -> "list[str]":
        """Name the siblings that come online, if any are offline now."""
        coming = self.online() - set(self.host.topology.online)
        return [f"{self.title}: CPUs {render(coming)}, which are offline now, come online."] if coming else []

    def switch(self) -> None:
        """Switch SMT on."""
        self._enable()


class SmtOff(_Smt):
    """One thread of each core online."""

    pattern = arms.SMT_OFF

    def __init__(self, name: str, host: Host) -> None:
        super().__init__(name, host)
        self._conflicts: list[affinity.Finding] = []
        if self.reason is None:
            online = host.topology.online
            found = affinity.find(KernelFiles("/"), online, self._secondary_threads(online))
            selected = affinity.selected(found, host.selected_conflicts)
            if selected:
                self.reason = (
                    "there would be affinity conflicts while the siblings are offline; resolve them, or set affinity_conflicts to warn: "
                    f"{'; '.join(affinity.readable(selected).splitlines())}"
                )
            self._conflicts = [finding for finding in found if finding.is_conflict]

    def online(self) -> "set[int]":
        """Return the CPUs that are online, without the siblings."""
        online = set(self.host.topology.online)
        return online - set(self._secondary_threads(online))

    def announcement(self) -> "list[str]":
        """Name the CPUs that go offline, and the affinity conflicts."""
        going = SmtOn(arms.SMT_ON, self.host).online() - self.online()
        which = f"CPUs {render(going)}" if going else "the siblings, whose numbers are unknown while they are offline,"
        sentences = [f"{self.title}: {which} go offline through {METHOD_FILES[self.host.facts['methods']['runtime']['chosen']]}, and come back."]
        if self._conflicts:
            conflicts = "; ".join(affinity.readable(self._conflicts).splitlines())
            sentences.append(f"There are affinity conflicts while the siblings are offline; the present settings are restored afterwards: {conflicts}.")
        return sentences

    def switch(self) -> None:
        """Switch SMT off."""
        try:
            smt_state.disable("/", self.host.topology.cores, sibling_source.method(self.host.topology), origin=self.host.origin)
        except smt_state.StateError as error:
            raise ArmError(str(error)) from error


ARMS = (SmtOn, SmtOff)
