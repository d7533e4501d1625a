# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How busy each CPU was between two reads of /proc/stat."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import ReadableFiles

PATH = "proc/stat"
# proc(5): user nice system idle iowait irq softirq steal. Guest time is part of user and nice.
COLUMNS = 8
IDLE, IOWAIT = 3, 4


class Ticks(t.NamedTuple):
    """Clock ticks of a CPU since boot.

    Attributes:
        busy: in which it was not idle; time that a hypervisor took counts, because nothing else could use it.
        total: all.
    """

    busy: int
    total: int


def read(files: ReadableFiles) -> "dict[int, Ticks]":
    """Return the ticks of each online CPU; empty where they cannot be read."""
    found: dict[int, Ticks] = {}
    for line in (files.read(PATH) or "").splitlines():
        name, *numbers = line.split()
        if not (name.startswith("cpu") and name[3:].isdigit() and all(map(str.isdigit, numbers))):
            continue
        columns = [int(number) for number in numbers[:COLUMNS]]
        if len(columns) > IOWAIT:
            found[int(name[3:])] = Ticks(sum(columns) - columns[IDLE] - columns[IOWAIT], sum(columns))
    return found


def shares(before: "t.Mapping[int, Ticks]", after: "t.Mapping[int, Ticks]") -> "dict[int, float]":
    """Return the share of the time between two reads (0..1) in which each CPU was busy, of those that were online at
    both and for which a tick has passed.

    The kernel's sums of idle and waiting time can go back (proc(5)); such a difference counts as none.
    """
    found = {}
    for cpu in sorted(set(before) & set(after)):
        total = after[cpu].total - before[cpu].total
        if total > 0:
            found[cpu] = min(1.0, max(0.0, (after[cpu].busy - before[cpu].busy) / total))
    return found
