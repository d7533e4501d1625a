# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SMT on, SMT off, the numbers of threads per core between them, and SMT off on a part of the cores,
switched at run time.
"""

import platform
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.cpulist import render
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity, tasks as host_tasks
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import source as sibling_source
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import (
    OFFLINE,
    ONLINE,
    PARTLY,
    ArmError,
    ArmHost,
    Boot,
    RuntimeArm,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    restore as smt_restore,
    scope as smt_scope,
    state as smt_state,
    transition as smt_transition,
)

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
        whose = "the kernel's topology" if kernels else f"the siblings {facts['source']}"
        return f"no core of this host has a second thread by {whose}"
    runtime = facts["methods"]["runtime"]
    if runtime["chosen"] is None:
        reasons = "; ".join(f"{method}: {reason}" for method, reason in sorted(runtime["impossible"].items()))
        return f"SMT cannot be switched at run time on this host ({reasons or 'no method'})"
    return None


class Smt(RuntimeArm):
    """The base of all arms that take siblings offline: the same CPUs and affinities are saved and restored."""

    lever = "smt"
    switches_cpus = True

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.settings = {"smt": name.partition("_")[2]}

    def examine(self, host: ArmHost) -> None:
        """Look at the host."""
        super().examine(host)
        self.reason = why_smt_is_not_switched(host.facts)
        self._method = sibling_source.method(host.topology)
        # With this arm, or when the host is restored after it.
        if self.reason is None and (not host.topology.complete or self.online() != set(host.topology.online)):
            self.reason = host_tasks.keeps_cpus_online(host.files)

    def _predicted(self, state: smt_state.State) -> smt_state.State:
        """Return the state that the switch leads to from a state; the same one where nothing is left to do."""
        raise NotImplementedError

    def restoration(self) -> "str | None":
        """Name the present state of SMT."""
        return f"SMT (smt/control {self.host.facts['control']}, CPUs {render(self.host.topology.online)} online)"

    def prepare(self) -> bool:
        """Save the topology, or switch SMT on when the topology is incomplete because siblings are offline."""
        topology = self.host.topology
        if topology.complete:
            topology_cache.save(HostFs(self.host.files.sysroot), topology)
            return False
        self._enable()
        return True

    def _enable(self) -> None:
        files = self.host.files
        try:
            smt_transition.enable(
                files.sysroot, self.host.topology.cores, self._method, origin=self.host.origin, files=files
            )
        except smt_state.StateError as error:
            raise ArmError(str(error)) from error

    def prove(self) -> None:
        """Read which CPUs are online."""
        try:
            present = smt_state.read(files=self.host.files)
            wrong = smt_state.differences(self._predicted(present), present)
        except smt_state.StateError as error:
            raise ArmError(str(error)) from error
        if wrong:
            raise ArmError("; ".join(wrong))

    def save(self) -> "dict[str, t.Any]":
        """Return the affinities that the kernel changes when siblings go offline."""
        online = smt_state.read(files=self.host.files)["online"]
        return {"masks": affinity.capture(self.host.files, online, secondary_threads(self.host, online))}

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Restore the CPUs and the affinities."""
        return smt_restore.restore(self.host.files, {"cpu": saved["cpu"], **saved[self.lever]})


def secondary_threads(host: ArmHost, online: "t.Collection[int]") -> "list[int]":
    """Return all but the first online thread of each core."""
    return [cpu for core in host.topology.cores for cpu in [thread for thread in core if thread in online][1:]]


def all_online(host: ArmHost) -> "set[int]":
    """Return the CPUs that are online, with all siblings of cores in use."""
    online, cores = set(host.topology.online), host.topology.cores
    if smt_state.smt_in_use(online, cores):
        return online
    return online | {cpu for core in cores if online & set(core) for cpu in core}


class SmtOn(Smt):
    """All siblings online."""

    pattern = arms.SMT_ON
    title = "SMT on"
    boot = Boot("", smt="enabled")
    siblings = ONLINE
    summary = "all siblings are online"
    needs = "SMT that can be switched at run time"

    @property
    def trial(self) -> "dict[str, t.Any]":
        """The options of smt_state."""
        return {"state": "enabled"}

    def online(self) -> "set[int]":
        """Return the CPUs that are online, with all siblings of cores in use."""
        return all_online(self.host)

    def announcement(self) -> "list[str]":
        """Name the siblings that come online, if any are offline now."""
        coming = self.online() - set(self.host.topology.online)
        return [
            (
                f"CPUs {render(coming)}, which are offline now, come online."
                if coming
                else "all siblings are online, as they are now."
            )
        ]

    def switch(self) -> None:
        """Switch SMT on."""
        self._enable()

    def _predicted(self, state: smt_state.State) -> smt_state.State:
        return smt_transition.predict(state, self.host.topology.cores, None, self._method, self.host.origin)


class FewerThreads(Smt):
    """The base of the arms in which siblings are offline.

    Attributes:
        threads: how many threads of a core are online.
        only: CPUs that name the cores with so many threads; None for all cores.
    """

    threads = 1
    only: t.Optional[t.FrozenSet[int]] = None

    def examine(self, host: ArmHost) -> None:
        """Look at the host."""
        super().examine(host)
        self.reason = self.reason or self._why_not()
        self._conflicts: list[affinity.AffinityFinding] = []
        if self.reason is None:
            online = host.topology.online
            conflicts = affinity.find(host.files, online, set(online) - self.online())
            selected = affinity.selected(conflicts, host.selected_conflicts)
            if selected:
                self.reason = (
                    "there would be affinity conflicts while the siblings are offline; resolve them, or set"
                    f" affinity_conflicts to warn: {affinity.in_one_line(selected)}"
                )
            self._conflicts = [finding for finding in conflicts if finding.is_conflict]

    def _why_not(self) -> "str | None":
        """Return why this host cannot have so many threads online although SMT can be switched, or None."""
        return None

    def switch(self) -> None:
        """Take siblings offline."""
        host = self.host
        try:
            smt_transition.set_threads_per_core(
                host.files.sysroot,
                host.topology.cores,
                self.threads,
                self._method,
                origin=host.origin,
                files=host.files,
                only=self.only,
            )
        except smt_state.StateError as error:
            raise ArmError(str(error)) from error

    def _predicted(self, state: smt_state.State) -> smt_state.State:
        return smt_transition.predict(
            state, self.host.topology.cores, self.threads, self._method, self.host.origin, only=self.only
        )

    def announcement(self) -> "list[str]":
        """Name the CPUs that go offline."""
        going = all_online(self.host) - self.online()
        which = f"CPUs {render(going)}" if going else "the siblings, whose numbers are unknown while they are offline,"
        by_control = self.only is None and (self.threads == 1 or smt_transition.takes_numbers(platform.machine()))
        method = METHOD_FILES[self.host.facts["methods"]["runtime"]["chosen"] if by_control else "cpu_online"]
        return [f"{which} go offline through {method}, and come back."]

    def conflicts(self) -> "list[str]":
        """Name the affinity conflicts."""
        if not self._conflicts:
            return []
        conflicts = affinity.in_one_line(self._conflicts)
        return [
            (
                "There are affinity conflicts while the siblings are offline; the present settings are restored"
                f" afterwards: {conflicts}."
            )
        ]


class SmtOff(FewerThreads):
    """One thread of each core online."""

    pattern = arms.SMT_OFF
    title = "SMT off"
    boot = Boot("nosmt", smt="disabled")
    siblings = OFFLINE
    summary = "one thread of each core is online"
    needs = "SMT that can be switched at run time, and no affinity conflicts"

    @property
    def trial(self) -> "dict[str, t.Any]":
        """The options of smt_state."""
        return {"state": "disabled"}

    def online(self) -> "set[int]":
        """Return the CPUs that are online, without the siblings."""
        online = set(self.host.topology.online)
        return online - set(secondary_threads(self.host, online))


class ThreadsPerCore(FewerThreads):
    """So many threads of each core online, more than one and fewer than all."""

    pattern = "threads_per_core_[1-9][0-9]{0,2}"
    written = ("threads_per_core_N",)
    summary = "the first N threads of each core are online, between `smt_off` and `smt_on`"
    needs = "cores with more than N threads, and no affinity conflicts"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.threads = int(name.rpartition("_")[2])
        self.siblings = OFFLINE if self.threads == 1 else PARTLY
        self.settings = {"threads_per_core": self.threads}

    @property
    def title(self) -> str:
        """The name for people."""
        return f"{self.threads} thread{'s' if self.threads > 1 else ''} per core"

    @property
    def trial(self) -> "dict[str, t.Any]":
        """The options of smt_state."""
        return {"threads_per_core": self.threads}

    def _why_not(self) -> "str | None":
        """Return why the cores of this host cannot have so many threads online, or None."""
        most = max((len(core) for core in self.host.topology.cores), default=0)
        if self.threads == 1:
            return f"one thread per core is the arm {arms.SMT_OFF}: name that one"
        if not self.host.topology.complete:
            # Known when the siblings are online.
            return None
        if self.threads == most:
            return f"the cores of this host have {most} threads, so {self.name} is the arm {arms.SMT_ON}: name that one"
        return f"the cores of this host have at most {most} threads" if self.threads > most else None

    def online(self) -> "set[int]":
        """Return the CPUs that are online: the first threads of each core that is in use."""
        online, cores = set(self.host.topology.online), self.host.topology.cores
        kept = {cpu for core in cores if online & set(core) for cpu in core[: self.threads]}
        return (online | kept) - {cpu for core in cores for cpu in core[self.threads :]}


class SmtOffOn(FewerThreads):
    """One thread online of each core of a part of the host."""

    key, parts = "smt_off_on", ("node", "package", "cpus", "unit")
    pattern = arms.pattern_of(key, parts)
    written = ("smt_off_on_node_N", "smt_off_on_package_N", "smt_off_on_cpus_LIST", "smt_off_on_unit_NAME")
    siblings = PARTLY
    summary = (
        "`{smt_off_on: {node: 0}}` and so on: one thread is online of each core of that part, all threads are of the"
        " others"
    )
    needs = "SMT that can be switched at run time, a part that is not the whole host, and no affinity conflicts"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._kind, self._value = arms.part_of(self.key, name)
        self._unknown: t.Optional[str] = None
        self.settings = {"smt": "off", "on": f"{self._kind} {self._value}"}

    def examine(self, host: ArmHost) -> None:
        """Look at the host."""
        try:
            scope = smt_scope.parse({self._kind: self._value})
            self.only = smt_scope.resolve(scope, host.topology, HostFs(host.files.sysroot))
        except smt_scope.ScopeError as error:
            self._unknown = str(error)
        super().examine(host)

    @property
    def title(self) -> str:
        """The name for people."""
        return f"SMT off on {'CPUs' if self._kind == 'cpus' else self._kind} {self._value}"

    @property
    def trial(self) -> "dict[str, t.Any]":
        """The options of smt_state; raises ScopeError where there can be no such part."""
        return {"state": "disabled", "cores": smt_scope.parse({self._kind: self._value}).given}

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


ARMS = (SmtOn, SmtOff, ThreadsPerCore, SmtOffOn)
