# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs of a systemd unit at run time: set as AllowedCPUs (systemd.resource-control(5)),
and restored without a trace.

``systemctl set-property --runtime`` writes a drop-in below /run/systemd/system.control, hands the cpuset controller
down to the unit's cgroup and writes ``cpuset.cpus``. An empty AllowedCPUs does not undo the last two, so that they are
undone here.
"""

import contextlib
import os
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, durable
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import (
    affinity,
    saved_masks,
    tasks as host_tasks,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings.cgroups import Cgroups, ancestors
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.base import ArmError, Values
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state

CONTROL = "run/systemd/system.control"
DROP_IN = "50-AllowedCPUs.conf"
PROPERTY = "AllowedCPUs"

_SHOWN = ("Id", "LoadState", "ActiveState", "ControlGroup", PROPERTY)
# Threads that a message names.
_MAX_NAMED = 5


class UnitCpus:
    """The CPUs of a unit.

    Args:
        name: the unit, a name that the vocabulary of arms accepts.
        files: the host's files.
        run: runs a command.

    Attributes:
        name: the unit's own name, also where an alias was given.
    """

    def __init__(self, name: str, files: KernelFiles, run: "t.Callable[[list[str]], tuple[int, str, str]]") -> None:
        self.name = name
        self._files = files
        self._run = run
        self._groups = Cgroups(files)
        self._cgroup = ""

    def why_not(self) -> "str | None":
        """Return why the unit's CPUs cannot be set, or None."""
        try:
            return self._groups.why_no_cpusets() or self._why_not(self._properties())
        except ArmError as error:
            return str(error)

    def _why_not(self, shown: "t.Mapping[str, str]") -> "str | None":
        """Return why the CPUs of a unit with these properties cannot be set, or None."""
        if shown.get("LoadState") == "not-found":
            return f"this host has no unit {self.name}"
        if shown.get("ActiveState") != "active" or not shown.get("ControlGroup"):
            return f"the unit {self.name} does not run"
        if PROPERTY not in shown:
            return f"the systemd of this host cannot set the CPUs of a unit ({PROPERTY} came with version 244)"
        if shown.get("Id", self.name) != self.name:
            return f"{self.name} is another name of {shown['Id']}: give that one"
        self._cgroup = shown["ControlGroup"]
        return None

    def _properties(self) -> "dict[str, str]":
        """Return the unit's properties.

        Raises:
            ArmError: systemd does not answer.
        """
        output = self._systemctl("show", "--property=" + ",".join(_SHOWN), "--", self.name)
        return dict(line.partition("=")[::2] for line in output.splitlines() if "=" in line)

    def _systemctl(self, *arguments: str) -> str:
        status, output, errors = self._run(["systemctl", "--no-pager", *arguments])
        if status != 0:
            raise ArmError(
                f"systemctl {arguments[0]} failed for {self.name}:"
                f" {(errors.strip() or output.strip() or 'it printed no error message')!s:.200}"
            )
        return output

    def cpus(self) -> "frozenset[int]":
        """Return the CPUs that the unit's processes may run on."""
        return self._groups.effective(self._cgroup)

    def allow(self, cpus: "t.Iterable[int]") -> None:
        """Set the unit's CPUs; none for no limit.

        Raises:
            ArmError: systemd refuses it.
        """
        self._systemctl("set-property", "--runtime", "--", self.name, f"{PROPERTY}={cpulist.render(cpus)}")

    def threads_outside(self, cpus: "frozenset[int]") -> "list[str]":
        """Return the unit's threads that may run on other CPUs than these, as text, at most a few."""
        threads = []
        for pid in self._groups.processes(self._cgroup):
            threads += [
                f"thread {thread} on {cpulist.render(mask)}"
                for thread, mask in host_tasks.masks_of(self._files, pid).items()
                if not mask <= cpus
            ]
        return threads[:_MAX_NAMED]

    def tasks_without(self, cpus: "frozenset[int]", online: "frozenset[int]") -> "list[affinity.AffinityFinding]":
        """Return the unit's threads that are pinned to none of these CPUs."""
        own = self._threads()
        return [
            affinity.AffinityFinding(True, f"pid {task.pid} {task.name} is pinned to CPUs {cpulist.render(task.mask)}")
            for task in host_tasks.restricted(self._files, online)
            if task.pid in own and not task.mask & cpus
        ]

    def pinned_elsewhere(self, online: "frozenset[int]") -> "list[saved_masks.SavedTask]":
        """Return the pinned threads of others than the unit, for ``affinity.restore_tasks``."""
        own = self._threads()
        return [task for task in affinity.capture_tasks(self._files, online) if task["pid"] not in own]

    def _threads(self) -> "set[int]":
        return {
            thread for pid in self._groups.processes(self._cgroup) for thread in host_tasks.masks_of(self._files, pid)
        }

    def save(self, online: "frozenset[int]") -> "dict[str, t.Any]":
        """Return what ``allow`` changes, as plain data for ``restore``.

        Raises:
            ArmError: systemd does not answer.
        """
        fs = HostFs(self._files.sysroot)
        folders = [CONTROL, self._folder()]
        return {
            "unit": self.name,
            "cgroup": self._cgroup,
            "allowed": self._properties().get(PROPERTY, ""),
            "drop_in": fs.read(f"{self._folder()}/{DROP_IN}"),
            "folders": [folder for folder in folders if fs.status(folder) is not None],
            "cpuset": self._groups.read(self._cgroup, "cpuset.cpus") or "",
            "not_handed_down": [above for above in ancestors(self._cgroup) if not self._groups.handed_down(above)],
            "tasks": affinity.capture_tasks(self._files, online),
        }

    def _folder(self) -> str:
        return f"{CONTROL}/{self.name}.d"

    def restore(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Restore what ``save`` returned.

        Returns:
            What could not be restored, one sentence each.
        """
        self._cgroup = saved["cgroup"]
        left = []
        try:
            if self._properties().get(PROPERTY, "") != saved["allowed"]:
                self.allow(cpulist.parse_or_empty(saved["allowed"].replace(" ", ",")))
            if self._put_drop_in_back(saved):
                self._systemctl("daemon-reload")
            if self._properties().get(PROPERTY, "") != saved["allowed"]:
                left.append(
                    f"{PROPERTY} of {self.name} was {saved['allowed'] or 'empty'}, is"
                    f" {self._properties().get(PROPERTY)}"
                )
        except (ArmError, OSError) as error:
            left.append(f"the CPUs of {self.name} could not be restored: {error}")
        return left + self._restore_kernel(saved)

    def _put_drop_in_back(self, saved: "t.Mapping[str, t.Any]") -> bool:
        """Write or remove the drop-in, and return whether anything was changed.

        Raises:
            OSError: it could not be written or removed.
        """
        fs = HostFs(self._files.sysroot)
        path = f"{self._folder()}/{DROP_IN}"
        if fs.read(path) == saved["drop_in"]:
            return False
        if saved["drop_in"] is not None:
            fs.write(path, saved["drop_in"])
            return True
        durable.unlink(fs.path(path))
        for folder in (self._folder(), CONTROL):
            if folder not in saved["folders"]:
                # Somebody else may have put a file there by now.
                with contextlib.suppress(OSError):
                    os.rmdir(fs.path(folder))
        return True

    def _restore_kernel(self, saved: "t.Mapping[str, t.Any]") -> "list[str]":
        """Restore what systemd leaves in the kernel: the unit's cpuset, the controller above it,
        and the masks of pinned threads.
        """
        left = []
        present = self._groups.read(self._cgroup, "cpuset.cpus")
        if (present or "") != saved["cpuset"]:
            try:
                self._files.write(self._groups.path(self._cgroup, "cpuset.cpus"), saved["cpuset"])
            except OSError as error:
                left.append(f"the cpuset of {self.name} could not be restored: {error.strerror}")
        left += self._groups.take_back(saved["not_handed_down"])
        return left + affinity.restore_tasks(self._files, saved["tasks"], smt_state.read(files=self._files)["online"])

    @staticmethod
    def states(files: KernelFiles, saved: "t.Mapping[str, t.Any]") -> "tuple[Values, Values]":
        """Return the CPUs of a unit's cpuset, and whether systemd has a file about them,
        as they were saved and as they are.
        """
        unit = saved["unit"]
        names = f"cpuset.cpus of {unit}", f"/{CONTROL}/{unit}.d/{DROP_IN}"
        drop_in = HostFs(files.sysroot).read(names[1].lstrip("/"))
        state = "absent" if drop_in is None else "present" if saved["drop_in"] in (None, drop_in) else "changed"
        was = saved["cpuset"] or "empty", "absent" if saved["drop_in"] is None else "present"
        now = Cgroups(files).read(saved["cgroup"], "cpuset.cpus") or "empty", state
        return dict(zip(names, was)), dict(zip(names, now))
