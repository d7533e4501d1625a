# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whose a task is: its cgroup, which is a systemd unit, a container, a virtual machine or a user's session."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import shared
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.tracing import Window

# Tasks of a window that are looked up, those that ran longest first. The others have no name.
MAX_TASKS = 1000
# Generations of tasks that have ended, up to one that lives.
MAX_GENERATIONS = 20
MAX_CHARACTERS = 300
# Hierarchies of cgroup v1 that say whose a task is, the best one first.
OLD = ("name=systemd", "cpu,cpuacct", "cpu", "cpuset")


class Units:
    """Finds the units of the tasks of one window, as soon as it has ended.

    A task that has ended has the unit of the one that began it: a task begins in its parent's cgroup (cgroups(7)).

    Args:
        fs: the host's files.
        window: the window.
        cores: the CPUs of each core.
    """

    def __init__(self, fs: HostFs, window: Window, cores: "t.Iterable[t.Iterable[int]]") -> None:
        ran = shared.tasks(window, (cpu for core in cores for cpu in core))
        self._units: t.Dict[int, t.Optional[str]] = {
            pid: self._find(fs, pid, window.parents) for pid, _time in ran.most_common(MAX_TASKS)
        }

    def __call__(self, pid: int) -> "str | None":
        """Return the unit of a task, or None where it is not known."""
        return self._units.get(pid)

    @staticmethod
    def _find(fs: HostFs, pid: int, parents: "t.Mapping[int, int]") -> "str | None":
        for _generation in range(MAX_GENERATIONS):
            text = fs.read(f"proc/{pid}/cgroup")
            if text:
                return unit(text)
            if pid not in parents:
                return None
            pid = parents[pid]
        return None


def unit(text: str) -> "str | None":
    """Return the cgroup that /proc/PID/cgroup names, of v2 or of the best hierarchy of v1 (cgroups(7))."""
    by_hierarchy = {}
    # Names may have any character but this one.
    for line in text.split("\n"):
        _number, _sign, rest = line.partition(":")
        hierarchy, colon, path = rest.partition(":")
        if colon:
            by_hierarchy[hierarchy] = path
    # On a host with both, v2 has no controllers and systemd's own hierarchy says whose the task is.
    cgroup = next((by_hierarchy[name] for name in OLD if name in by_hierarchy), by_hierarchy.get(""))
    return cgroup[:MAX_CHARACTERS] if cgroup else None
