# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an evaluation switches. Each change is a class with the same methods; the plan knows none of them by name."""

from __future__ import annotations

import os

from ansible_collections.threadwise.smt.plugins.module_utils._host.cpulist import render
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._memory import (
    facts as memory_facts,
    overcommit_test,
    policy as memory_policy,
    snapshot as memory_snapshot,
)
from ansible_collections.threadwise.smt.plugins.module_utils._smt import affinity, restore as smt_restore, state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._topology import cache as topology_cache

AS_FOUND = "as_found"
SMT_ON = "smt_on"
SMT_OFF = "smt_off"
NONE = "none"
SMT_RUNTIME = "smt_runtime"
OVERCOMMIT_STRICT = "overcommit_strict"
PANIC_ON_OOM = "panic_on_oom"

NAMES = (NONE, SMT_RUNTIME, OVERCOMMIT_STRICT, PANIC_ON_OOM)

# What a runtime method writes, for the announcement.
METHOD_FILES = {"smt_control": "smt/control", "cpu_online": "cpuN/online"}
# A host that panics while it is measured comes back by itself.
PANIC_REBOOT_SECONDS = "60"
# A strict policy has to leave so much of what is promised, in percent, as the role smt_memory has it by default.
MARGIN = 10
# What a process that overreaches may use before the kernel ends it, in a cgroup of its own.
CONFINED_BYTES = 64 * memory_policy.MIB
# The share of RAM and swap that it asks for where no limit on the sum is known; all of it is refused even by the heuristic.
OVERREACH_SHARE = 0.9


class ChangeError(Exception):
    """The host cannot be brought into a condition; the text says why."""


def of(facts, topology, settings, origin):
    """The change that a plan's settings ask for.

    Args:
        facts: ``ansible_facts['smt']``.
        topology: the host's ``Topology``.
        settings: dict with ``change`` (one of ``NAMES``), ``bystanders`` (``refuse`` or ``warn``), ``affinity_conflicts_of`` (whose conflicts are
            refused, as in ``affinity.counting``), ``overcommit_ratio`` (percent, or None for the host's own).
        origin: the host's state as from ``smt_state.read`` before anything was switched: a sibling that is off on purpose in it stays off.
    """
    name = settings["change"]
    if name == SMT_RUNTIME:
        return SmtRuntime(topology, facts, origin, refused=settings["affinity_conflicts_of"] if settings["bystanders"] == "refuse" else [])
    if name == OVERCOMMIT_STRICT:
        return MemoryPolicy(topology, name, {"overcommit": memory_policy.STRICT, "overcommit_ratio": settings["overcommit_ratio"]})
    if name == PANIC_ON_OOM:
        return MemoryPolicy(topology, name, {"on_oom": "panic", "panic_reboot_after": PANIC_REBOOT_SECONDS})
    return Change(topology)


class Change:
    """Nothing is switched: the host is measured as it was found. The methods of a subclass are called only where it is ``compared``, but for these
    of what is known before: ``conditions``, ``described``, ``online``, ``saved``.

    Args:
        topology: the host's ``Topology``.
        reason: why nothing is switched (str), or None where a subclass switches.
    """

    name = NONE
    before = AS_FOUND
    after = None

    def __init__(self, topology, reason="switching was not asked for"):
        self.topology = topology
        self.reason = reason

    @property
    def compared(self):
        """Whether two conditions are compared."""
        return self.reason is None

    @property
    def conditions(self):
        """The conditions of each block, in the order of the first."""
        return [self.before, self.after] if self.compared else [AS_FOUND]

    def described(self):
        """The result's ``change``."""
        before, after = self.conditions if self.compared else (None, None)
        return {"name": self.name, "compared": self.compared, "reason": self.reason, "before": before, "after": after}

    def online(self, _condition):
        """The set of CPUs that are online under a condition, as far as the topology tells."""
        return set(self.topology.online)

    def announcement(self, _length):
        """What will be switched and put back (list of sentences for a person).

        Args:
            _length: how long it takes, as text.
        """
        return []

    def prepare(self):
        """What has to be done before the first block. Returns True when the topology has to be read again after it."""
        return False

    def switch(self, condition):
        """Bring the host into a condition.

        Raises:
            ChangeError: it could not be.
        """

    def observe(self, _condition):
        """What is to be recorded once of a condition beside its samples (plain data), or None."""
        return

    def saved(self):
        """The host as it is, for ``put_back`` and ``proof`` (plain data)."""
        return {"cpu": smt_state.read("/")}

    def put_back(self, _saved):
        """Bring the host back. Returns what could not be, a sentence each."""
        return []


def proof(saved, differences=()):
    """Hold the host as it is now against how it was saved.

    Args:
        saved: as from ``Change.saved``.
        differences: what is already known not to be as before, a sentence each.

    Returns:
        dict: ``ok``, ``before`` and ``after`` (``{control, online}``, online a list of CPU numbers, and ``sysctls`` where they were changed),
        ``differences`` (list of str).
    """
    state = smt_state.read("/")
    found = list(differences) or smt_state.differences(saved["cpu"], state)
    before, after = ({key: one[key] for key in ("control", "online")} for one in (saved["cpu"], state))
    if "memory" in saved:
        before["sysctls"], after["sysctls"] = saved["memory"], memory_facts.read_settings(HostFs("/"))
        found += [f"{name} was {value}, is {after['sysctls'][name]}" for name, value in saved["memory"].items() if after["sysctls"][name] != value]
    return {"ok": not found, "before": before, "after": after, "differences": found}


def why_smt_is_not_switched(facts):
    """Why SMT cannot be switched on this host, as a sentence part, or None when it can.

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
        reasons = "; ".join("{}: {}".format(*item) for item in sorted(runtime["impossible"].items()))
        return "SMT cannot be switched at run time here (%s)" % (reasons or "no method")
    return None


class SmtRuntime(Change):
    """SMT is switched at run time.

    Args:
        topology: the host's ``Topology``.
        facts: ``ansible_facts['smt']``.
        origin: the host's state before anything was switched.
        refused: whose conflicts keep the siblings online, as in ``affinity.counting``.
    """

    name = SMT_RUNTIME
    before = SMT_ON
    after = SMT_OFF

    def __init__(self, topology, facts, origin, refused):
        super().__init__(topology, why_smt_is_not_switched(facts))
        self._control = facts["control"]
        self._method = facts["methods"]["runtime"]["chosen"]
        self._origin = origin
        self._hurt = []
        if self.compared:
            found = affinity.find(affinity.Host("/"), self.topology.online, self._going(set(self.topology.online)))
            counting = affinity.counting(found, refused)
            if counting:
                self.reason = "others would be hurt when siblings go offline; move them, or set bystanders to warn: {}".format(
                    "; ".join(affinity.readable(counting).splitlines())
                )
            self._hurt = [finding for finding in found if finding.hurts]

    def _going(self, online):
        """All but the first online thread of each core."""
        return [cpu for core in self.topology.cores for cpu in [one for one in core if one in online][1:]]

    def online(self, condition):
        online = set(self.topology.online)
        if condition == SMT_ON and not smt_state.smt_in_use(online, self.topology.cores):
            online |= {cpu for core in self.topology.cores if online & set(core) for cpu in core}
        if condition == SMT_OFF:
            online -= set(self._going(online))
        return online

    def announcement(self, length):
        siblings = self.online(SMT_ON) - self.online(SMT_OFF)
        which = f"CPUs {render(siblings)}" if siblings else "the siblings, whose numbers are not known while they are offline,"
        hurt = (
            [
                "These are hurt while the siblings are offline, and get back afterwards what they had: {}.".format(
                    "; ".join(affinity.readable(self._hurt).splitlines())
                )
            ]
            if self._hurt
            else []
        )
        return [
            f"SMT will be switched off and on again many times through {METHOD_FILES[self._method]}: {which} go offline and come back, for {length}.",
            f"Then SMT is put back as it is now (smt/control {self._control}, CPUs {render(self.topology.online)} online), also when the run fails or loses its controller.",
            *hurt,
        ]

    def prepare(self):
        if not self.topology.complete:
            # Its siblings are not known while they are offline.
            self.switch(SMT_ON)
            return True
        topology_cache.save(HostFs("/"), self.topology)
        return False

    def switch(self, condition):
        change = smt_state.enable if condition == SMT_ON else smt_state.disable
        try:
            change("/", self.topology.cores, origin=self._origin)
        except smt_state.StateError as error:
            raise ChangeError(str(error)) from error

    def saved(self):
        state = super().saved()
        going = self._going(state["cpu"]["online"])
        return dict(state, bystanders=affinity.capture(affinity.Host("/"), state["cpu"]["online"], going), remove=[])

    def put_back(self, saved):
        return smt_restore.put_back(affinity.Host("/"), saved)


class MemoryPolicy(Change):
    """The memory policy is switched; the CPUs stay as they are.

    Args:
        topology: the host's ``Topology``.
        name: ``OVERCOMMIT_STRICT`` or ``PANIC_ON_OOM``.
        options: as for ``memory_policy.settings``.
    """

    before = AS_FOUND

    def __init__(self, topology, name, options):
        super().__init__(topology, None)
        self.name = self.after = name
        self._fs = HostFs("/")
        self._found = memory_facts.read_settings(self._fs)
        self._wanted = {}
        try:
            self._wanted = memory_policy.settings(options, self._found)
            self.reason = self._why_not()
        except memory_policy.PolicyError as error:
            self.reason = str(error)

    def _why_not(self):
        if os.geteuid() != 0:
            return "only root can change the memory policy"
        absent = sorted(name for name in self._wanted if self._found.get(name) is None)
        if absent:
            return f"this kernel has no {', '.join(absent)}"
        if all(self._found[name] == value for name, value in self._wanted.items()):
            return "this policy is in force already, so there is no other to compare it with"
        page = memory_facts.page_size(self._fs)
        return memory_policy.refusal(memory_facts.read_memory(self._fs), self._found, self._wanted, MARGIN, page)

    def announcement(self, length):
        now = ", ".join(f"{name} {self._found[name]}" for name in self._wanted)
        then = ", ".join("%s %d" % item for item in self._wanted.items())
        sentences = [
            f"The memory policy will be switched many times between what is there ({now}) and {self.name} ({then}), for {length}.",
            "A process of ours that asks for too much memory is ended, in a cgroup of its own.",
            "Then the policy is put back as it is now, also when the run fails or loses its controller.",
        ]
        if self.name == PANIC_ON_OOM:
            sentences.insert(1, f"A real out-of-memory during that time makes the host panic and restart after {self._wanted[memory_policy.PANIC]} s.")
        return sentences

    def switch(self, condition):
        wanted = self._wanted if condition == self.after else memory_snapshot.way_back(memory_facts.read_settings(self._fs), self._found)
        try:
            memory_snapshot.write(self._fs, wanted)
        except memory_snapshot.MemoryStateError as error:
            raise ChangeError(str(error)) from error

    def observe(self, condition):
        """What a process is promised, and what one gets that asks for more than there is."""
        values = memory_facts.read_settings(self._fs)
        memory = memory_facts.read_memory(self._fs)
        limit = memory_policy.headroom(memory, memory_policy.resulting(values, self._wanted), memory_facts.page_size(self._fs))["bytes"]
        asked = int(OVERREACH_SHARE * (memory["total"] + memory["swap"])) if limit is None else max(limit, 0) + CONFINED_BYTES
        return {
            "condition": condition,
            "settings": {name: values[name] for name in self._wanted},
            "headroom_bytes": limit,
            "asked_bytes": asked,
            **_promised(),
            **_overreach(asked),
        }

    def saved(self):
        return dict(super().saved(), memory=self._found)

    def put_back(self, saved):
        try:
            memory_snapshot.write(self._fs, memory_snapshot.way_back(memory_facts.read_settings(self._fs), saved["memory"]))
        except memory_snapshot.MemoryStateError as error:
            return [str(error)]
        return []


def _promised():
    try:
        return {"allocatable": overcommit_test.allocatable()}
    except overcommit_test.ProbeError as error:
        return {"allocatable": None, "allocatable_reason": str(error)}


def _overreach(asked):
    try:
        return {"overreach": overcommit_test.overreach(asked, touch=True, confine=CONFINED_BYTES)}
    except overcommit_test.ProbeError as error:
        return {"overreach": None, "overreach_reason": str(error)}
