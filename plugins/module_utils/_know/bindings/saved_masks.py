# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Masks that a change may lose, as they are saved: plain JSON data. `affinity` makes them and restores them."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict


class _SavedTask(TypedDict):
    pid: int
    start: str
    name: str
    mask: str


class SavedTask(_SavedTask, total=False):
    """A task with its mask as a CPU list.

    ``left`` is the mask after the CPUs went offline; None if the task no longer existed then.
    """

    left: "str | None"


class Captured(TypedDict):
    """Masks to restore, as plain JSON data.

    ``online`` are the CPUs that were online before. ``cpusets`` and ``partitions`` map a path to CPUs or partition
    type, ``interrupts`` a number to CPUs.
    """

    online: "list[int]"
    tasks: "list[SavedTask]"
    cpusets: "dict[str, str]"
    partitions: "dict[str, str]"
    interrupts: "dict[str, str]"


def merge(earlier: "Captured | None", later: Captured) -> Captured:
    """Return both captures as one.

    What is in both is taken from the earlier one, which was made before the first change.
    """
    if not earlier:
        return later
    known = {(task["pid"], task["start"]) for task in earlier["tasks"]}
    return {
        "online": earlier["online"],
        "tasks": earlier["tasks"] + [task for task in later["tasks"] if (task["pid"], task["start"]) not in known],
        "cpusets": {**later["cpusets"], **earlier["cpusets"]},
        "partitions": {**later["partitions"], **earlier["partitions"]},
        "interrupts": {**later["interrupts"], **earlier["interrupts"]},
    }


def check(captured: t.Any) -> None:
    """Check data from a file; raise ValueError when ``captured`` does not have the format that `affinity.capture`
    returns.
    """

    def is_mapping_to_text(value: object) -> bool:
        return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())

    tasks = captured["tasks"]
    have_pids = isinstance(tasks, list) and all(
        isinstance(task, dict) and isinstance(task.get("pid"), int) and task["pid"] > 0 for task in tasks
    )
    if not (have_pids and all(isinstance(task.get(key), str) for task in tasks for key in ("start", "name", "mask"))):
        raise ValueError("its list of tasks is not valid")
    if not all(
        is_mapping_to_text(captured[kind]) for kind in ("cpusets", "partitions", "interrupts")
    ) or not cpulist.is_cpus(captured["online"]):
        raise ValueError("its cpusets, partitions, interrupts or CPUs are not valid")


def nothing(online: "list[int]") -> Captured:
    """Return a capture without masks, of the CPUs that were online."""
    return {"online": online, "tasks": [], "cpusets": {}, "partitions": {}, "interrupts": {}}


def is_empty(captured: Captured) -> bool:
    """Return whether there is nothing to restore."""
    return not (captured["tasks"] or captured["cpusets"] or captured["partitions"] or captured["interrupts"])
