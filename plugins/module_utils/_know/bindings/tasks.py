# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of a host with a restricted CPU mask: where they run, their unit, what their cpuset leaves them,
and which user set the mask.
"""

import os
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import cpusets, origins, programs

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, include/linux/sched.h
_DEADLINE = "6"  # SCHED_DEADLINE, sched(7)
_SCHEDUTIL = "sugov:"  # threads of schedutil, which have this policy and no bandwidth (SCHED_FLAG_SUGOV)
_LONGEST_NAME = 64
_LONGEST_PLACE = 128


class Task(t.NamedTuple):
    """A user-space thread that may not run on all online CPUs.

    Attributes:
        pid: thread id
        start: start time in clock ticks since boot; with the pid it identifies the thread
        name: its name, printable
        mask: CPUs it may run on
        allowed: online CPUs of its cpuset: with these as its mask nobody pinned it, whatever other tasks of the host
            have
        unit: systemd unit it belongs to, if any
        cgroups: paths of its cgroups
        uid: real user id of its process
        user: id of the ordinary user who set the mask, as `origins.Origins` has it; None if it is the system's
    """

    pid: int
    start: str
    name: str
    mask: "frozenset[int]"
    allowed: "frozenset[int]"
    unit: "str | None"
    cgroups: "list[str]"
    uid: int
    user: "int | None"


class _Reader(t.NamedTuple):
    """What the tasks of a host share while they are read.

    Attributes:
        host: the host
        online: CPUs that are online
        whose: tells whose masks are
        allowed: online CPUs of a cpuset by the text of a task's file ``cgroup``, of which thousands of tasks have few
    """

    host: kernel_files.KernelFiles
    online: "frozenset[int]"
    whose: origins.Origins
    allowed: "dict[str, frozenset[int]]"


class _Stat(t.NamedTuple):
    name: str
    flags: int
    start: str
    policy: str


def restricted(host: kernel_files.KernelFiles, online: "frozenset[int]") -> "list[Task]":
    """Return the user-space threads that may not run on all online CPUs.

    Reads one stat file per process and one status file per thread (proc(5)). Kernel threads are left out.
    """
    tasks = []
    own_pid = str(os.getpid()) if host.is_host else ""
    reader = _Reader(host, online, origins.Origins(host), {})
    for name in host.names("proc"):
        if not name.isdigit() or name == own_pid:
            continue
        stat = _read_stat(host, f"proc/{name}/stat")
        if stat is None or stat.flags & _KERNEL_THREAD:
            continue
        for thread in host.names(f"proc/{name}/task"):
            task = _read_task(reader, f"proc/{name}/task/{thread}", int(thread)) if thread.isdigit() else None
            if task:
                tasks.append(task)
    return tasks


def keeps_cpus_online(host: kernel_files.KernelFiles) -> "str | None":
    """Return why no CPU may go offline now, as a sentence without a full stop: threads of SCHED_DEADLINE, which it
    names; None where there are none.

    A sleeping one stays on the CPU that goes offline. When its mask or its policy changes, as its cpuset does at once,
    the kernel divides its bandwidth by the number of active CPUs of that CPU's root domain, which is 0, and the host is
    dead (set_cpus_allowed_dl, __dl_sub and dl_bw_cpus in kernel/sched/deadline.c; seen with 6.1).
    """
    names = []
    for pid in filter(str.isdigit, host.names("proc")):
        for thread in host.names(f"proc/{pid}/task"):
            stat = _read_stat(host, f"proc/{pid}/task/{thread}/stat")
            is_schedutils = stat and stat.flags & _KERNEL_THREAD and stat.name.startswith(_SCHEDUTIL)
            if stat and stat.policy == _DEADLINE and not is_schedutils:
                names.append(f"pid {thread} {host_text.printable(stat.name, _LONGEST_NAME)}")
    if not names:
        return None
    return (
        f"{len(names)} thread(s) of SCHED_DEADLINE run here: {', '.join(names[:20])}{', ...' if names[20:] else ''}."
        " Kernels divide by zero, and the host is dead, when a CPU goes offline on which one sleeps. End them, or give"
        " them another policy (chrt --other --pid 0 PID); or have SMT set at a boot (smt_boot_args)"
    )


def current_mask(host: kernel_files.KernelFiles, pid: int, start: str) -> "frozenset[int] | None":
    """Return the CPU mask of a thread, or None if it no longer exists.

    Args:
        host: the host
        pid: thread id
        start: start time of the thread in clock ticks: the pid may belong to another thread by now
    """
    stat = _read_stat(host, f"proc/{pid}/stat")
    if stat is None or stat.start != start:
        return None
    text = _mask_text(host.read(f"proc/{pid}/status") or "")
    return None if text is None else cpulist.parse_or_empty(text)


def masks_of(host: kernel_files.KernelFiles, pid: int) -> "dict[int, frozenset[int]]":
    """Return the CPU mask of each thread of a process, by thread id; empty when it has ended."""
    masks = {
        int(thread): _mask_text(host.read(f"proc/{pid}/task/{thread}/status") or "")
        for thread in host.names(f"proc/{pid}/task")
        if thread.isdigit()
    }
    return {thread: cpulist.parse_or_empty(mask) for thread, mask in masks.items() if mask is not None}


def describe(host: kernel_files.KernelFiles, task: Task) -> str:
    """Return the user and the unit or cgroup of a task for a message."""
    place = (
        f"unit {task.unit}"
        if task.unit
        else f"cgroup {host_text.printable(next(iter(task.cgroups), '?'), _LONGEST_PLACE)}"
    )
    return f"user {host.user_label(task.uid)}, {place}{_own(host, task)}"


def _own(host: kernel_files.KernelFiles, task: Task) -> str:
    if task.user is None:
        return ""
    if task.user == task.uid:
        return ", by the user alone"
    return (
        ", pinned by a user of whom there is no record"
        if task.user == origins.NO_RECORD
        else f", pinned by user {host.user_label(task.user)}"
    )


def runs_as_root(host: kernel_files.KernelFiles, name: str) -> bool:
    """Return whether a process of this name is root's."""
    return any(
        host.read(f"proc/{pid}/comm") == name and programs.is_roots(host, pid)
        for pid in host.names("proc")
        if pid.isdigit()
    )


def runs_as(host: kernel_files.KernelFiles, uid: int) -> bool:
    """Return whether a process of the host has this real user id, or was started by its login."""
    return any(
        _real_uid(host.read(f"proc/{pid}/status") or "") == uid or host.read(f"proc/{pid}/loginuid") == str(uid)
        for pid in host.names("proc")
        if pid.isdigit()
    )


def _read_task(reader: _Reader, folder: str, pid: int) -> "Task | None":
    host, online = reader.host, reader.online
    status = host.read(folder + "/status") or ""
    mask = cpulist.parse_or_empty(_mask_text(status))
    if not mask or mask >= online:
        return None
    stat = _read_stat(host, folder + "/stat")
    if stat is None:
        return None
    name = re.search(r"^Name:\s*(.*)", status)
    membership = host.read(folder + "/cgroup") or ""
    if membership not in reader.allowed:
        reader.allowed[membership] = cpusets.effective_of(host, membership, online)
    cgroups = [line.split(":", 2)[-1] for line in membership.splitlines()]
    unit = next(
        (part for path in cgroups for part in reversed(path.split("/")) if part.endswith((".service", ".scope"))), None
    )
    uid = _real_uid(status)
    return Task(
        pid,
        stat.start,
        host_text.printable(name.group(1) if name else "?", _LONGEST_NAME),
        mask,
        reader.allowed[membership],
        unit and host_text.printable(unit, _LONGEST_PLACE),
        cgroups,
        uid,
        reader.whose.of_task(folder, uid, cgroups),
    )


def _mask_text(status: str) -> "str | None":
    match = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    return match.group(1) if match else None


def _real_uid(status: str) -> int:
    """Return the real user id from the text of a process's status file."""
    match = re.search(r"^Uid:\s*([0-9]{1,10})\b", status, re.MULTILINE)
    return int(match.group(1)) if match else 0


def _read_stat(host: kernel_files.KernelFiles, path: str) -> "_Stat | None":
    """Return name, flags, start time and policy of a task (proc(5), stat). The name may contain any character."""
    head, _bracket, rest = (host.read(path) or "").rpartition(")")
    fields = rest.split()
    if len(fields) < 20 or not fields[6].isdigit():
        return None
    return _Stat(head.partition("(")[2], int(fields[6]), fields[19], "".join(fields[38:39]))
