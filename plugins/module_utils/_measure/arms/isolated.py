# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The workload alone on whole cores: a partition of cgroup v2 cpusets that holds all cores but one,
which everything else shares.

Source: Documentation/admin-guide/cgroup-v2.rst, ``cpuset.cpus.partition``. The file reads ``isolated`` or ``root`` for
a valid partition, and the kind followed by ``invalid`` and, from 6.1 on, the reason for one that the kernel did not
make; kernels before 6.1 know ``root`` alone (EINVAL).
"""

import errno
import os
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, text
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity, cpusets
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings.cgroups import Cgroups
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import (
    IDLE,
    ArmError,
    ArmHost,
    RuntimeArm,
    Values,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state

GROUP = "/threadwise-smt-isolated"
KINDS = ("isolated", "root")
# How often a cgroup is tried to be removed whose last process is just ending, 20 ms apart.
ATTEMPTS = 50


class Isolated(RuntimeArm):
    """A partition for the plan and its workers."""

    pattern = "isolated"
    lever = "isolated"
    siblings = IDLE
    summary = (
        "the workload has all cores but the first in a cpuset partition (cgroup v2), everything else has the first"
    )
    needs = "cgroup v2 with the cpuset controller, two cores, no affinity conflicts"

    def examine(self, host: ArmHost) -> None:
        """Look at the host."""
        super().examine(host)
        self._groups = Cgroups(host.files)
        self._cpus, self._rest = _divided(host)
        self._kind = ""
        self._own_mask: t.Optional[t.FrozenSet[int]] = None
        self._conflicts: list[affinity.AffinityFinding] = []
        self.settings = {"cpus": cpulist.render(self._cpus), "cpus_of_all_others": cpulist.render(self._rest)}
        self.reason = self._why_not()

    def _why_not(self) -> "str | None":
        no_cpusets = self._groups.why_no_cpusets()
        if no_cpusets:
            return no_cpusets
        if not self.host.topology.complete:
            return "it is not known which CPUs share a core"
        if not self._cpus:
            return "it needs two cores: one has to stay for everything else"
        return self._refusal() or self._conflict()

    def _refusal(self) -> "str | None":
        """Return why the kernel would make no valid partition, or None."""
        sets = [entry for entry in cpusets.find(self.host.files) if entry.version == 2 and entry.inside != GROUP]
        overlapping = [entry for entry in sets if entry.inside.count("/") == 1 and entry.cpus & self._cpus]
        if overlapping:
            taken = ", ".join(f"{entry.inside[1:]} ({cpulist.render(entry.cpus)})" for entry in overlapping)
            return (
                "the kernel makes no partition of CPUs that another cpuset beside it names:"
                f" {text.printable(taken, 200)}"
            )
        if any(not self.host.files.exists(entry.path + "/cpuset.cpus.partition") for entry in sets):
            return "this kernel has no cpuset partitions (no cpuset.cpus.partition)"
        return None

    def _conflict(self) -> "str | None":
        """Find what is bound to the CPUs of the partition, and return it where that prevents the comparison."""
        findings = affinity.find_of_work(self.host.files, frozenset(self.host.topology.online), self._cpus)
        self._conflicts = [finding for finding in findings if finding.is_conflict]
        selected = affinity.selected(findings, self.host.selected_conflicts)
        listed = affinity.in_one_line(selected)
        return (
            f"these would lose the CPUs of the partition; resolve that, or set affinity_conflicts to warn: {listed}"
            if selected
            else None
        )

    def for_workers(self, usable: "set[int]") -> "set[int]":
        """Return the CPUs of the partition."""
        return usable & self._cpus

    def announcement(self) -> "list[str]":
        """Describe the partition."""
        return [
            (
                f"the workload runs alone on CPUs {cpulist.render(self._cpus)}, in a cpuset partition; everything else"
                f" has CPUs {cpulist.render(self._rest)} only."
            ),
            (
                "The kernel balances no load between the CPUs of an isolated partition: a worker stays where it is"
                " pinned, or where it started."
            ),
        ]

    def conflicts(self) -> "list[str]":
        """Name what loses its CPUs."""
        if not self._conflicts:
            return []
        listed = affinity.in_one_line(self._conflicts)
        return [f"These lose CPUs that they are bound to; their settings are restored afterwards: {listed}."]

    def restoration(self) -> "str | None":
        """Name the cpusets."""
        return "the cpusets"

    def switch(self) -> None:
        """Make the partition and enter it."""
        own = self._groups.of_process("self")
        if own is None or own == GROUP:
            raise ArmError(f"the cgroup of the plan is {own}: it has to be another one than {GROUP}")
        left = self._take_down(own)
        if left:
            raise ArmError("; ".join(left))
        mask = frozenset(os.sched_getaffinity(0))
        # Without a mask of its own a process has all CPUs of its cpuset, in each cpuset that it is in.
        self._own_mask = mask if mask < self._groups.effective(own) else None
        pinned = [
            task
            for task in affinity.capture_tasks(self.host.files, self.host.topology.online)
            if self._rest & cpulist.parse_or_empty(task["mask"])
        ]
        try:
            self._groups.hand_down("/")
            self.host.files.make_directory(self._groups.path(GROUP))
            self.host.files.write(self._groups.path(GROUP, "cpuset.cpus"), cpulist.render(self._cpus))
            self._kind = self._made()
            self.host.files.write(self._groups.path(GROUP, "cgroup.procs"), str(os.getpid()))
        except OSError as error:
            raise ArmError(
                f"/{self._groups.path(GROUP)}: the kernel does not make the partition: {error.strerror}"
            ) from error
        # What is pinned to other CPUs stays so in this arm. What cannot be is said when all is restored.
        affinity.restore_tasks(self.host.files, pinned, self.host.topology.online)

    def _made(self) -> str:
        """Make the cgroup a partition and return of which kind.

        Raises:
            ArmError: The kernel makes none.
        """
        refused = []
        for kind in KINDS:
            try:
                self.host.files.write(self._groups.path(GROUP, "cpuset.cpus.partition"), kind)
                partition = self._groups.read(GROUP, "cpuset.cpus.partition")
            except OSError as error:
                partition = error.strerror
            if partition == kind:
                return kind
            refused.append(f"{kind}: {partition!s:.200}")
        raise ArmError(
            f"/{self._groups.path(GROUP, 'cpuset.cpus.partition')}: the kernel makes no valid partition"
            f" ({'; '.join(refused)})"
        )

    def prove(self) -> None:
        """Read that the partition is valid, has its CPUs alone, and holds this process."""
        kind, cpus = (
            self._groups.read(GROUP, "cpuset.cpus.partition"),
            self._groups.read(GROUP, "cpuset.cpus.effective"),
        )
        # Of two factors the other one may have taken some of them offline.
        own = self._cpus & set(smt_state.read(files=self.host.files)["online"])
        if kind != self._kind or cpulist.parse_or_empty(cpus) != own:
            raise ArmError(
                f"/{self._groups.path(GROUP)} is {kind!s:.200} with CPUs {cpus}, not {self._kind} with CPUs"
                f" {cpulist.render(own)}"
            )
        shared = cpulist.parse_or_empty(self._groups.read("/", "cpuset.cpus.effective")) & self._cpus
        if shared:
            raise ArmError(f"everything else may run on CPUs {cpulist.render(shared)} of the partition")
        if self._groups.of_process("self") != GROUP:
            raise ArmError(f"the plan is in the cgroup {self._groups.of_process('self')}, not in the partition")

    def save(self) -> "dict[str, t.Any]":
        """Return the cgroup of this process, whether cpusets are handed down, and the masks of tasks."""
        online = smt_state.read(files=self.host.files)["online"]
        return {
            "cgroup": self._groups.of_process("self") or "/",
            "handed_down": self._groups.handed_down("/"),
            "tasks": affinity.capture_tasks(self.host.files, online),
        }

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Leave the partition and remove it."""
        mine = saved[self.lever]
        changed = self._groups.exists(GROUP) or self._groups.handed_down("/") != mine["handed_down"]
        left = self._take_down(mine["cgroup"])
        if not mine["handed_down"]:
            left += self._groups.take_back(["/"])
        # Last, because both change masks.
        if changed:
            left += affinity.restore_tasks(
                self.host.files, mine["tasks"], smt_state.read(files=self.host.files)["online"]
            )
        return left + self._restore_own_mask()

    def _restore_own_mask(self) -> "list[str]":
        """Restore the mask of this process, if it has switched to the partition and had one."""
        mask, self._own_mask = self._own_mask, None
        try:
            if mask is not None:
                self.host.files.set_affinity(os.getpid(), mask)
        except OSError as error:
            return [f"the CPU mask of the plan could not be restored: {error.strerror}"]
        return []

    def _take_down(self, back: str) -> "list[str]":
        """Move the processes of the partition to a cgroup, and remove it.

        Returns:
            What is left, one sentence each.
        """
        if not self._groups.exists(GROUP):
            return []
        reason = ""
        for _attempt in range(ATTEMPTS):
            try:
                if self._groups.read(GROUP, "cpuset.cpus.partition") not in (None, "member"):
                    self.host.files.write(self._groups.path(GROUP, "cpuset.cpus.partition"), "member")
                for pid in self._groups.processes(GROUP):
                    self._move(pid, back)
                self.host.files.remove_directory(self._groups.path(GROUP))
                return []
            except OSError as error:
                reason = str(error.strerror)
                if error.errno != errno.EBUSY:
                    break
            time.sleep(0.02)
        return [f"/{self._groups.path(GROUP)} could not be removed: {reason}"]

    def _move(self, pid: int, back: str) -> None:
        """Move a process; one whose own cgroup is gone, to the root."""
        try:
            self.host.files.write(self._groups.path(back, "cgroup.procs"), str(pid))
        except ProcessLookupError:
            return
        except OSError:
            self.host.files.write(self._groups.path("/", "cgroup.procs"), str(pid))

    @classmethod
    def states(cls, files: KernelFiles, saved: "t.Mapping[str, t.Any]") -> "tuple[Values, Values]":
        """Return whether the cgroup of the partition is there."""
        name = "cgroup" + GROUP
        return {name: "absent"}, {name: "present" if Cgroups(files).exists(GROUP) else "absent"}


def _divided(host: ArmHost) -> "tuple[frozenset[int], frozenset[int]]":
    """Return the online CPUs of all cores but the first one, and all other online CPUs; none where there is one core.

    Isolated cores are in neither.
    """
    online, isolated = set(host.topology.online), set(host.topology.isolated)
    cores = [core for core in host.topology.cores if online & set(core) and not isolated & set(core)]
    inside = frozenset(cpu for core in cores[1:] for cpu in core if cpu in online)
    return inside, frozenset(online - isolated - inside)


ARMS = (Isolated,)
