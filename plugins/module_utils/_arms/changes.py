# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arms that an evaluation compares, and how to switch between them. Each kind of arms is a class with the same methods; the plan knows none by name."""

from __future__ import annotations

import os
import typing as t
from collections.abc import Collection, Iterable, Mapping

from ansible_collections.threadwise.smt.plugins.module_utils._host.cpulist import render
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._memory import (
    facts as memory_facts,
    overcommit_test,
    policy as memory_policy,
    snapshot as memory_snapshot,
)
from ansible_collections.threadwise.smt.plugins.module_utils._smt import affinity, restore as smt_restore, state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary.arms import AS_FOUND, SMT_OFF, SMT_ON

NONE = "none"
SMT_RUNTIME = "smt_runtime"
OVERCOMMIT_STRICT = "overcommit_strict"
PANIC_ON_OOM = "panic_on_oom"

NAMES = (NONE, SMT_RUNTIME, OVERCOMMIT_STRICT, PANIC_ON_OOM)

# The files that a runtime method writes, for the announcement.
METHOD_FILES = {"smt_control": "smt/control", "cpu_online": "cpuN/online"}
# A host that panics during a measurement reboots by itself after so many seconds.
PANIC_REBOOT_SECONDS = "60"
# Percent of the committed memory that a strict policy must leave free; the default of the role smt_memory.
MARGIN = 10
# What the process of the overcommit test may use, in a cgroup of its own, before the kernel kills it.
CONFINED_BYTES = 64 * memory_policy.MIB
# The share of RAM and swap that the overcommit test requests where the sum is not limited; the heuristic policy refuses a request for all of it.
OVERCOMMIT_TEST_SHARE = 0.9


class ChangeError(Exception):
    """The host cannot be switched to an arm; the text gives the reason."""


class Description(t.TypedDict):
    """The arms of an evaluation, as the result names them.

    Attributes:
        name: one of ``NAMES``.
        compared: whether two arms are compared.
        reason: why not, or None.
        before: the first arm, or None when nothing is compared.
        after: the second arm, or None when nothing is compared.
    """

    name: str
    compared: bool
    reason: str | None
    before: str | None
    after: str | None


def of(facts: Mapping[str, t.Any], topology: Topology, settings: Mapping[str, t.Any], origin: smt_state.State) -> Change:
    """Return the arms that a plan's settings ask for.

    Args:
        facts: ``ansible_facts['smt']``.
        topology: the host's topology.
        settings: ``change`` (one of ``NAMES``), ``affinity_conflicts`` (``refuse`` or ``warn``), ``affinity_conflicts_of`` (whose affinity conflicts are
            refused, as in ``affinity.selected``), ``overcommit_ratio`` (percent, or None for the host's own).
        origin: the host's state before anything was switched; a sibling that is offline in it although SMT is in use stays offline.
    """
    name = settings["change"]
    if name == SMT_RUNTIME:
        return SmtRuntime(topology, facts, origin, refused=settings["affinity_conflicts_of"] if settings["affinity_conflicts"] == "fail" else [])
    if name == OVERCOMMIT_STRICT:
        return MemoryPolicy(topology, name, {"overcommit": memory_policy.STRICT, "overcommit_ratio": settings["overcommit_ratio"]})
    if name == PANIC_ON_OOM:
        return MemoryPolicy(topology, name, {"on_oom": "panic", "panic_reboot_after": PANIC_REBOOT_SECONDS})
    return Change(topology)


class Change:
    """The arms of an evaluation; this base class has one arm, the host as found, and switches nothing.

    Subclasses have two arms and switch between them. When they are not ``compared``, only what is known in advance may be called: ``conditions``,
    ``described``, ``online`` and ``saved``.

    Args:
        topology: the host's topology.
        reason: why nothing is switched; None where a subclass switches.

    Attributes:
        name: one of ``NAMES``.
        before: the arm of the first samples.
        after: the arm of the others, or None when there is only one.
        topology: the host's topology.
        reason: why nothing is switched, or None.
    """

    name: str = NONE
    before: str = AS_FOUND
    after: str | None = None

    def __init__(self, topology: Topology, reason: str | None = "switching was not asked for") -> None:
        self.topology = topology
        self.reason = reason

    @property
    def compared(self) -> bool:
        """Whether two arms are compared."""
        return self.reason is None

    @property
    def conditions(self) -> list[str]:
        """The arms of each block, in the order of the first block."""
        return [self.before, self.after] if self.compared and self.after is not None else [AS_FOUND]

    def described(self) -> Description:
        """Return the description of the arms for the result."""
        before, after = (self.before, self.after) if self.compared else (None, None)
        return {"name": self.name, "compared": self.compared, "reason": self.reason, "before": before, "after": after}

    def online(self, arm: str) -> set[int]:
        """Return the CPUs that are online in an arm, as far as the topology is known.

        Args:
            arm: the arm's name.
        """
        return set(self.topology.online)

    def announcement(self, length: str) -> list[str]:
        """Describe what will be switched and restored, in sentences for a person.

        Args:
            length: how long it takes, as text.
        """
        return []

    def prepare(self) -> bool:
        """Do what is necessary before the first block.

        Returns:
            True when the topology has to be read again afterwards.
        """
        return False

    def switch(self, arm: str) -> None:
        """Switch the host to an arm.

        Args:
            arm: the arm's name.

        Raises:
            ChangeError: The host cannot be switched.
        """

    def observe(self, arm: str) -> dict[str, t.Any] | None:
        """Return what is recorded once per arm besides its samples (plain data), or None.

        Args:
            arm: the arm's name.
        """
        return None

    def saved(self) -> dict[str, t.Any]:
        """Return the present state of the host (plain data), for ``put_back`` and ``proof``."""
        return {"cpu": smt_state.read("/")}

    def put_back(self, saved: Mapping[str, t.Any]) -> list[str]:
        """Restore the state of the host.

        Args:
            saved: as ``saved`` returned it.

        Returns:
            What could not be restored, one sentence each.
        """
        return []


def proof(saved: Mapping[str, t.Any], differences: Iterable[str] = ()) -> dict[str, t.Any]:
    """Compare the present state of the host with the saved one.

    Args:
        saved: as ``Change.saved`` returned it.
        differences: known differences, one sentence each.

    Returns:
        ``ok``, ``before`` and ``after`` (``control``, ``online`` (CPU numbers) and, where they were changed, ``sysctls``), and ``differences``
        (sentences).
    """
    state = smt_state.read("/")
    found = list(differences) or smt_state.differences(saved["cpu"], state)
    before, after = _cpu_state(saved["cpu"]), _cpu_state(state)
    if "memory" in saved:
        present = memory_facts.read_settings(HostFs("/"))
        before["sysctls"], after["sysctls"] = saved["memory"], present
        found += [f"{name} was {value}, is {present[name]}" for name, value in saved["memory"].items() if present[name] != value]
    return {"ok": not found, "before": before, "after": after, "differences": found}


def _cpu_state(state: Mapping[str, t.Any]) -> dict[str, t.Any]:
    return {"control": state["control"], "online": state["online"]}


def why_smt_is_not_switched(facts: Mapping[str, t.Any]) -> str | None:
    """Return why SMT cannot be switched on this host, as a part of a sentence, or None when it can.

    Args:
        facts: ``ansible_facts['smt']``.
    """
    control = facts["control"]
    if control == "notsupported" or facts["supported"] is False:
        return f"this host has no SMT to switch (smt/control reads {control})"
    if facts["complete"] and facts["threads_per_core"]["max"] == 1 and control not in ("off", "forceoff"):
        return "no core of this host has a second thread"
    runtime = facts["methods"]["runtime"]
    if runtime["chosen"] is None:
        reasons = "; ".join(f"{method}: {reason}" for method, reason in sorted(runtime["impossible"].items()))
        return f"SMT cannot be switched at run time on this host ({reasons or 'no method'})"
    return None


class SmtRuntime(Change):
    """SMT on and SMT off, switched at run time.

    Args:
        topology: the host's topology.
        facts: ``ansible_facts['smt']``.
        origin: the host's state before anything was switched.
        refused: whose affinity conflicts prevent the comparison, as in ``affinity.selected``.
    """

    name = SMT_RUNTIME
    before = SMT_ON
    after = SMT_OFF

    def __init__(self, topology: Topology, facts: Mapping[str, t.Any], origin: smt_state.State, refused: Collection[str]) -> None:
        super().__init__(topology, why_smt_is_not_switched(facts))
        self._control: str = facts["control"]
        self._method: str = facts["methods"]["runtime"]["chosen"]
        self._origin = origin
        self._conflicts: list[affinity.Finding] = []
        if self.compared:
            found = affinity.find(KernelFiles("/"), self.topology.online, self._secondary_threads(self.topology.online))
            counting = affinity.selected(found, refused)
            if counting:
                self.reason = (
                    "there would be affinity conflicts while the siblings are offline; resolve them, or set affinity_conflicts to warn: "
                    f"{'; '.join(affinity.readable(counting).splitlines())}"
                )
            self._conflicts = [finding for finding in found if finding.is_conflict]

    def _secondary_threads(self, online: Collection[int]) -> list[int]:
        """Return all but the first online thread of each core."""
        return [cpu for core in self.topology.cores for cpu in [one for one in core if one in online][1:]]

    def online(self, arm: str) -> set[int]:
        """Return the CPUs that are online in an arm, as far as the topology is known."""
        online = set(self.topology.online)
        if arm == SMT_ON and not smt_state.smt_in_use(online, self.topology.cores):
            online |= {cpu for core in self.topology.cores if online & set(core) for cpu in core}
        if arm == SMT_OFF:
            online -= set(self._secondary_threads(online))
        return online

    def announcement(self, length: str) -> list[str]:
        """Describe which CPUs will go offline, and the affinity conflicts."""
        siblings = self.online(SMT_ON) - self.online(SMT_OFF)
        which = f"CPUs {render(siblings)}" if siblings else "the siblings, whose numbers are unknown while they are offline,"
        sentences = [
            f"SMT will be switched off and on again many times through {METHOD_FILES[self._method]}: {which} go offline and come back, for {length}.",
            (
                f"Then SMT is restored to its present state (smt/control {self._control}, CPUs {render(self.topology.online)} online), also when the run "
                "fails or loses its controller."
            ),
        ]
        if self._conflicts:
            conflicts = "; ".join(affinity.readable(self._conflicts).splitlines())
            sentences.append(f"There are affinity conflicts while the siblings are offline; the present settings are restored afterwards: {conflicts}.")
        return sentences

    def prepare(self) -> bool:
        """Save the topology, or switch SMT on when the topology is incomplete because siblings are offline."""
        if not self.topology.complete:
            self.switch(SMT_ON)
            return True
        topology_cache.save(HostFs("/"), self.topology)
        return False

    def switch(self, arm: str) -> None:
        """Switch SMT on or off."""
        try:
            if arm == SMT_ON:
                smt_state.enable("/", self.topology.cores, origin=self._origin)
            else:
                smt_state.disable("/", self.topology.cores, origin=self._origin)
        except smt_state.StateError as error:
            raise ChangeError(str(error)) from error

    def saved(self) -> dict[str, t.Any]:
        """Return the state of the CPUs, and the affinities that the kernel changes when siblings go offline."""
        cpu = smt_state.read("/")
        going = self._secondary_threads(cpu["online"])
        return {"cpu": cpu, "masks": affinity.capture(KernelFiles("/"), cpu["online"], going), "remove": []}

    def put_back(self, saved: Mapping[str, t.Any]) -> list[str]:
        """Restore the CPUs and the affinities."""
        return smt_restore.restore(KernelFiles("/"), saved)


class MemoryPolicy(Change):
    """The memory policy as found and another one; the CPUs are not switched.

    Args:
        topology: the host's topology.
        name: ``OVERCOMMIT_STRICT`` or ``PANIC_ON_OOM``.
        options: the other policy.
    """

    before = AS_FOUND

    def __init__(self, topology: Topology, name: str, options: memory_policy.Options) -> None:
        super().__init__(topology, None)
        self.name = self.after = name
        self._fs = HostFs("/")
        self._found = memory_facts.read_settings(self._fs)
        self._wanted: memory_policy.Settings = {}
        try:
            self._wanted = memory_policy.settings(options, self._found)
            self.reason = self._why_not()
        except memory_policy.PolicyError as error:
            self.reason = str(error)

    def _why_not(self) -> str | None:
        """Return why the policy cannot be switched, or None."""
        if os.geteuid() != 0:
            return "only root can change the memory policy"
        missing = sorted(name for name in self._wanted if self._found.get(name) is None)
        if missing:
            return f"this kernel has no {', '.join(missing)}"
        if all(self._found[name] == value for name, value in self._wanted.items()):
            return "this policy is already in effect, so there is nothing to compare it with"
        page = memory_facts.page_size(self._fs)
        return memory_policy.refusal(memory_facts.read_memory(self._fs), self._found, self._wanted, MARGIN, page)

    def announcement(self, length: str) -> list[str]:
        """Describe which settings will be switched."""
        present = ", ".join(f"{name} {self._found[name]}" for name in self._wanted)
        other = ", ".join(f"{name} {value:d}" for name, value in self._wanted.items())
        sentences = [
            f"The memory policy will be switched many times between the present one ({present}) and {self.name} ({other}), for {length}.",
            "A test process that requests too much memory is killed, in a cgroup of its own.",
            "Then the present policy is restored, also when the run fails or loses its controller.",
        ]
        if self.name == PANIC_ON_OOM:
            sentences.insert(1, f"A real out-of-memory situation during that time makes the host panic and reboot after {self._wanted[memory_policy.PANIC]} s.")
        return sentences

    def switch(self, arm: str) -> None:
        """Write the settings of an arm."""
        wanted = self._wanted if arm == self.after else self._settings_to_restore(self._found)
        try:
            memory_snapshot.write(self._fs, wanted)
        except memory_snapshot.MemorySnapshotError as error:
            raise ChangeError(str(error)) from error

    def _settings_to_restore(self, saved: memory_policy.HostSettings) -> memory_policy.Settings:
        known = {name: value for name, value in saved.items() if value is not None}
        return memory_snapshot.settings_to_restore(memory_facts.read_settings(self._fs), known)

    def observe(self, arm: str) -> dict[str, t.Any]:
        """Measure how much memory a process can allocate, and what happens to one that requests more than the host has."""
        values = memory_facts.read_settings(self._fs)
        memory = memory_facts.read_memory(self._fs)
        limit = memory_policy.headroom(memory, memory_policy.resulting(values, self._wanted), memory_facts.page_size(self._fs))["bytes"]
        everything = (memory["total"] or 0) + (memory["swap"] or 0)
        asked = int(OVERCOMMIT_TEST_SHARE * everything) if limit is None else max(limit, 0) + CONFINED_BYTES
        return {
            "condition": arm,
            "settings": {name: values[name] for name in self._wanted},
            "headroom_bytes": limit,
            "asked_bytes": asked,
            **_allocatable(),
            **_overcommit_test(asked),
        }

    def saved(self) -> dict[str, t.Any]:
        """Return the state of the CPUs and the memory policy."""
        return {**super().saved(), "memory": self._found}

    def put_back(self, saved: Mapping[str, t.Any]) -> list[str]:
        """Restore the memory policy."""
        try:
            memory_snapshot.write(self._fs, self._settings_to_restore(saved["memory"]))
        except memory_snapshot.MemorySnapshotError as error:
            return [str(error)]
        return []


def _allocatable() -> dict[str, t.Any]:
    try:
        return {"allocatable": overcommit_test.allocatable()}
    except overcommit_test.OvercommitTestError as error:
        return {"allocatable": None, "allocatable_reason": str(error)}


def _overcommit_test(asked: int) -> dict[str, t.Any]:
    try:
        return {"overcommit_test": overcommit_test.run(asked, touch=True, confine=CONFINED_BYTES)}
    except overcommit_test.OvercommitTestError as error:
        return {"overcommit_test": None, "overcommit_test_reason": str(error)}
