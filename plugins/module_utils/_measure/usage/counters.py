# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How busy each CPU was between two reads of /proc/stat."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import ReadableFiles

PATH = "proc/stat"
# proc(5): user nice system idle iowait irq softirq steal. Guest time is part of user and nice.
COLUMNS = 8
IDLE, IOWAIT = 3, 4
# Ticks by which the idle time of a CPU that stays online can seem to fall.
JITTER = 100


# Clock ticks of a CPU since boot, by column.
Ticks = t.Tuple[int, ...]


def read(files: ReadableFiles) -> "dict[int, Ticks]":
    """Return the ticks of each online CPU; empty where they cannot be read."""
    ticks: dict[int, Ticks] = {}
    for line in (files.read(PATH) or "").splitlines():
        name, *numbers = line.split()
        if not (name.startswith("cpu") and name[3:].isdigit() and all(map(str.isdigit, numbers))):
            continue
        if len(numbers) > IOWAIT:
            ticks[int(name[3:])] = tuple(map(int, numbers[:COLUMNS]))
    return ticks


def shares(before: "t.Mapping[int, Ticks]", after: "t.Mapping[int, Ticks]") -> "dict[int, float]":
    """Return the share of the time between two reads (0..1) in which each CPU was busy, of those that were online at
    both and for which a tick has passed. Time that a hypervisor took counts as busy, because nothing else could use it.

    The kernel's sums can go back, those of idle, waiting and stolen time (proc(5)); such a difference counts as none.
    """
    usages = {}
    for cpu in sorted(set(before) & set(after)):
        passed = [max(0, now - then) for then, now in zip(before[cpu], after[cpu])]
        if any(passed):
            usages[cpu] = (sum(passed) - passed[IDLE] - passed[IOWAIT]) / sum(passed)
    return usages


def began_anew(before: "t.Mapping[int, Ticks]", after: "t.Mapping[int, Ticks]") -> "set[int]":
    """Return the CPUs that were offline between two reads: one of them only, or idle time that has begun anew, as it
    does in some kernels for a CPU that comes back.
    """
    fell = {cpu for cpu in set(before) & set(after) if after[cpu][IDLE] < before[cpu][IDLE] - JITTER}
    return set(before) ^ set(after) | fell
