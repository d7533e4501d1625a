# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs of a host that count its CPUs when they start, and believe in that number when siblings go offline or come
back.

A kind of them is a file in ``kinds``. Who is bound to CPUs by their numbers is no consumer but an affinity conflict
(``_bindings/affinity.py``).
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._bindings import cgroups, programs
from ansible_collections.threadwise.smt.plugins.module_utils._consumers.kinds import base, registry
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files, text as host_text

MAX_SENTENCES = 20
_LONGEST_NAME = 64
_UNIT = re.compile(r"/([^/\s]{1,255}\.(?:service|scope))(?:/|$)", re.MULTILINE)
_STATUS = {key: re.compile(rf"^{key}:[ \t]*(\S+)", re.MULTILINE) for key in ("PPid", "Threads", "Cpus_allowed_list")}


def sentences(host: kernel_files.KernelFiles, before: "t.Iterable[int]", after: "t.Iterable[int]") -> "list[str]":
    """Return who will believe in a wrong number of CPUs after a change, and what makes it right, one sentence each.

    Args:
        host: the host.
        before: its online CPUs.
        after: those after the change.
    """
    change = base.Change(frozenset(before), frozenset(after))
    kinds = {one.program: one for one in registry.KINDS}
    by_program: dict[str, list[base.Process]] = {}
    groups = cgroups.Cgroups(host)
    for program in programs.running(host, kinds):
        by_program.setdefault(program.name, []).extend(_process(groups, program))
    found = [
        f"{one.title} has {one.has} for {one.counted} CPU{'' if one.counted == 1 else 's'}, and will have {one.gets}:"
        f" {kinds[name].remedy}"
        for name, processes in sorted(by_program.items())
        for one in kinds[name].find(processes, change)
    ]
    shown = list(dict.fromkeys(found))
    more = len(shown) - MAX_SENTENCES
    return [*shown[:MAX_SENTENCES], *([f"{more} more programs count CPUs when they start"] if more > 0 else [])]


def _process(groups: cgroups.Cgroups, program: programs.Program) -> "list[base.Process]":
    """Return a process (proc(5)); none where it has ended."""
    host = groups.files
    folder = f"proc/{program.pid}"
    status, unit = host.read(f"{folder}/status") or "", _UNIT.search(host.read(f"{folder}/cgroup") or "")
    said = {key: pattern.search(status) for key, pattern in _STATUS.items()}
    parent, threads, mask = (found[1] if found else "" for found in said.values())
    if not (parent.isdecimal() and threads.isdecimal()):
        return []
    return [
        base.Process(
            program.pid,
            program.name,
            program.arguments,
            int(parent),
            int(threads),
            cpulist.parse_or_empty(mask),
            _quota(groups, program.pid),
            host_text.printable(unit[1], _LONGEST_NAME) if unit else None,
        )
    ]


def _quota(groups: cgroups.Cgroups, pid: int) -> "float | None":
    """Return the smallest quota of a process's cgroups, in CPUs (``cpu.max``: a time, and its period)."""
    cgroup, found = groups.of(pid) or "/", []
    while cgroup.strip("/"):
        limit, _blank, period = (groups.read(cgroup, "cpu.max") or "").partition(" ")
        if limit.isdecimal() and period.isdecimal() and int(period):
            found.append(int(limit) / int(period))
        cgroup = cgroup.rpartition("/")[0]
    return min(found, default=None)
