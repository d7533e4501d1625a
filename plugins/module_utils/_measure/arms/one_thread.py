# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One thread of each core for the plan's workers, or for a unit, while the siblings stay online:
SMT off for one service alone.
"""

import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.cpulist import render
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import (
    IDLE,
    ArmError,
    ArmHost,
    RuntimeArm,
    Values,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.unit_cpus import UnitCpus

# systemd applies a property after it has answered.
APPLIED_SECONDS = 5.0

_KEY = "one_thread_per_core"
_UNKNOWN = "it is not known which CPUs share a core"


def first_threads(topology: Topology, cpus: "t.AbstractSet[int]") -> "frozenset[int]":
    """Return of a set of CPUs those that are the first of their core in it."""
    return frozenset(cpus) - {
        cpu for core in topology.cores for cpu in [thread for thread in core if thread in cpus][1:]
    }


class OneThread(RuntimeArm):
    """The plan's workers have one thread of each core."""

    pattern = _KEY
    title = "one thread per core for the workload"
    siblings = IDLE
    summary = "the workload has one thread of each core; the siblings stay online, and idle for it"
    needs = "a core with two threads online"

    def examine(self, host: ArmHost) -> None:
        """Look at the host."""
        super().examine(host)
        online = set(host.topology.online)
        self._idle = online - first_threads(host.topology, online)
        self.settings = {"cpus": render(first_threads(host.topology, online))}
        if not host.topology.complete:
            self.reason = _UNKNOWN
        elif not self._idle:
            self.reason = "no core has a second thread online"

    def for_workers(self, usable: "set[int]") -> "set[int]":
        """Return one thread of each core."""
        return set(first_threads(self.host.topology, usable))

    def announcement(self) -> "list[str]":
        """Name the CPUs that the workers do not use."""
        return [f"nothing is switched; the workers leave CPUs {render(self._idle)} to others."]


class OneThreadOfUnit(RuntimeArm):
    """A unit has one thread of each of its cores."""

    key, parts = _KEY, ("unit",)
    pattern = arms.pattern_of(key, parts)
    lever = "unit"
    siblings = IDLE
    written = (f"{_KEY}_unit_NAME",)
    summary = (
        "`{one_thread_per_core: {unit: NAME}}`: a unit has one thread of each of its cores (`AllowedCPUs`); the"
        " siblings stay online for others"
    )
    needs = "cgroup v2 with the cpuset controller, systemd 244 or later, a unit that runs"

    def examine(self, host: ArmHost) -> None:
        """Look at the host."""
        super().examine(host)
        unit = arms.part_of(self.key, self.name)[1]
        self.lever = f"{type(self).lever}:{unit}"
        self._unit = UnitCpus(unit, host.files, host.run)
        self._wanted: frozenset[int] = frozenset()
        self._conflicts: list[str] = []
        self.reason = self._why_not()
        self.settings = {"unit": unit, "cpus": render(self._wanted)}

    def _why_not(self) -> "str | None":
        if not self.host.topology.complete:
            return _UNKNOWN
        reason = self._unit.why_not()
        if reason:
            return reason
        cpus = self._unit.cpus()
        self._wanted = first_threads(self.host.topology, cpus)
        if self._wanted == cpus:
            return f"{self._unit.name} has one thread of each of its cores already (CPUs {render(cpus)})"
        findings = self._unit.tasks_without(self._wanted, frozenset(self.host.topology.online))
        self._conflicts = [finding.text for finding in findings]
        if self.host.selected_conflicts and findings:
            return (
                "threads of the unit are pinned to siblings; resolve that, or set affinity_conflicts to warn:"
                f" {'; '.join(self._conflicts)}"
            )
        return None

    @property
    def title(self) -> str:
        """The name for people."""
        return f"one thread per core for {arms.part_of(self.key, self.name)[1]}"

    def announcement(self) -> "list[str]":
        """Name the CPUs that the unit keeps and loses."""
        return [
            (
                f"{self._unit.name} has CPUs {render(self._wanted)} only (AllowedCPUs), without CPUs"
                f" {render(self._unit.cpus() - self._wanted)}."
            )
        ]

    def conflicts(self) -> "list[str]":
        """Name the threads that are pinned to CPUs that the unit loses."""
        return (
            [f"Pinned threads are moved, and pinned again afterwards: {'; '.join(self._conflicts)}."]
            if self._conflicts
            else []
        )

    def restoration(self) -> "str | None":
        """Name the unit's CPUs."""
        return f"the CPUs of {self._unit.name}"

    def switch(self) -> None:
        """Set the unit's CPUs, and wait until the kernel has them."""
        online = frozenset(self.host.topology.online)
        pinned = self._unit.pinned_elsewhere(online)
        self._unit.allow(self._wanted)
        end = time.monotonic() + APPLIED_SECONDS
        while self._unit.cpus() != self._wanted and time.monotonic() < end:
            time.sleep(0.05)
        # Nothing changes for other work. What cannot be pinned again is said when all is restored.
        affinity.restore_tasks(self.host.files, pinned, online)
        self.prove()

    def prove(self) -> None:
        """Read the CPUs of the unit and of each of its threads."""
        cpus = self._unit.cpus()
        if cpus != self._wanted:
            raise ArmError(f"{self._unit.name} has CPUs {render(cpus)}, not {render(self._wanted)}")
        outside = self._unit.threads_outside(self._wanted)
        if outside:
            raise ArmError(f"threads of {self._unit.name} may run elsewhere: {'; '.join(outside)}")

    def save(self) -> "dict[str, t.Any]":
        """Return the CPUs of the unit, systemd's files about them, and the masks of its threads."""
        return self._unit.save(frozenset(self.host.topology.online))

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Restore them."""
        return self._unit.restore(saved[self.lever])

    @classmethod
    def states(cls, files: KernelFiles, saved: "t.Mapping[str, t.Any]") -> "tuple[Values, Values]":
        """Return the CPUs of the unit's cpuset, and whether systemd has a file about them."""
        return UnitCpus.states(files, saved)


ARMS = (OneThread, OneThreadOfUnit)
