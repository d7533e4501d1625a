# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tasks of a host with a restricted CPU mask: where they run, their unit, and which user set the mask.

Any user may pin tasks of their own (sched_setaffinity(2)). So each task is attributed either to the system - root, system users, services - or to the
ordinary user who logged in and set the mask.

This file is copied to a host as part of the rollback program: it imports only files that are copied with it, by relative imports.
"""

import os
import re
import typing as t

from .._host import cpulist, kernel_files, text as host_text

# Start of the ids of ordinary users where /etc/login.defs does not set UID_MIN (login.defs(5)).
FIRST_USER = 1000
NO_LOGIN = 0xFFFFFFFF

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD, include/linux/sched.h
_LONGEST_NAME = 64
_LONGEST_PLACE = 128


class Task(t.NamedTuple):
    """A user-space thread that may not run on all online CPUs.

    Attributes:
        pid: thread id
        start: start time in clock ticks since boot; with the pid it identifies the thread
        name: its name, printable
        mask: CPUs it may run on
        unit: systemd unit it belongs to, if any
        cgroups: paths of its cgroups
        uid: real user id of its process
        user: id of the ordinary user who set the mask; None if it belongs to the system
    """

    pid: int
    start: str
    name: str
    mask: "frozenset[int]"
    unit: "str | None"
    cgroups: "list[str]"
    uid: int
    user: "int | None"


class _Stat(t.NamedTuple):
    flags: int
    start: str


def restricted(host: kernel_files.KernelFiles, online: "frozenset[int]") -> "list[Task]":
    """Return the user-space threads that may not run on all online CPUs.

    Reads one stat file per process and one status file per thread (proc(5)). Kernel threads are left out.
    """
    tasks = []
    own_pid = str(os.getpid()) if host.is_host else ""
    first_uid = first_user(host)
    for name in host.names("proc"):
        if not name.isdigit() or name == own_pid:
            continue
        stat = _read_stat(host, f"proc/{name}/stat")
        if stat is None or stat.flags & _KERNEL_THREAD:
            continue
        for thread in host.names(f"proc/{name}/task"):
            task = _read_task(host, f"proc/{name}/task/{thread}", int(thread), online, first_uid) if thread.isdigit() else None
            if task:
                tasks.append(task)
    return tasks


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
    found = _mask_text(host.read(f"proc/{pid}/status") or "")
    return None if found is None else cpulist.parse_or_empty(found)


def masks_of(host: kernel_files.KernelFiles, pid: int) -> "dict[int, frozenset[int]]":
    """Return the CPU mask of each thread of a process, by thread id; empty when it has ended."""
    found = {int(thread): _mask_text(host.read(f"proc/{pid}/task/{thread}/status") or "") for thread in host.names(f"proc/{pid}/task") if thread.isdigit()}
    return {thread: cpulist.parse_or_empty(mask) for thread, mask in found.items() if mask is not None}


def describe(host: kernel_files.KernelFiles, task: Task) -> str:
    """Return the user and the unit or cgroup of a task for a message."""
    place = f"unit {task.unit}" if task.unit else f"cgroup {host_text.printable(next(iter(task.cgroups), '?'), _LONGEST_PLACE)}"
    own = "" if task.user is None else f", pinned by user {host.user_label(task.user)}" if task.user != task.uid else ", by the user alone"
    return f"user {host.user_label(task.uid)}, {place}{own}"


def first_user(host: kernel_files.KernelFiles) -> int:
    """Return the lowest user id of an ordinary user on this host."""
    found = re.search(r"^[ \t]*UID_MIN[ \t]+([0-9]{1,9})[ \t]*$", host.read("etc/login.defs") or "", re.MULTILINE)
    return int(found.group(1)) if found else FIRST_USER


def runs_as_root(host: kernel_files.KernelFiles, name: str) -> bool:
    """Return whether a process of this name runs as root. Any user can give a process any name."""
    return any(host.read(f"proc/{pid}/comm") == name and _real_uid(host.read(f"proc/{pid}/status") or "") == 0 for pid in host.names("proc") if pid.isdigit())


def _read_task(host: kernel_files.KernelFiles, folder: str, pid: int, online: "frozenset[int]", first_uid: int) -> "Task | None":
    status = host.read(folder + "/status") or ""
    mask = cpulist.parse_or_empty(_mask_text(status))
    if not mask or mask >= online:
        return None
    stat = _read_stat(host, folder + "/stat")
    if stat is None:
        return None
    name = re.search(r"^Name:\s*(.*)", status)
    cgroups = [line.split(":", 2)[-1] for line in (host.read(folder + "/cgroup") or "").splitlines()]
    unit = next((part for path in cgroups for part in reversed(path.split("/")) if part.endswith((".service", ".scope"))), None)
    uid = _real_uid(status)
    return Task(
        pid,
        stat.start,
        host_text.printable(name.group(1) if name else "?", _LONGEST_NAME),
        mask,
        unit and host_text.printable(unit, _LONGEST_PLACE),
        cgroups,
        uid,
        _mask_owner(host, folder, uid, cgroups, first_uid),
    )


def _mask_text(status: str) -> "str | None":
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    return found.group(1) if found else None


def _real_uid(status: str) -> int:
    """Return the real user id from the text of a process's status file."""
    found = re.search(r"^Uid:\s*([0-9]{1,10})\b", status, re.MULTILINE)
    return int(found.group(1)) if found else 0


def _mask_owner(host: kernel_files.KernelFiles, folder: str, uid: int, cgroups: "list[str]", first_uid: int) -> "int | None":
    """Return the ordinary user who set the mask of a task, or None if the task belongs to root, a system user or a service.

    A mask survives exec(2). A set-user-ID program may therefore still have the mask that an ordinary user set (``taskset -c 3 su``).
    """
    login, in_login_slice = _login(host, folder, cgroups, first_uid)
    if uid < first_uid:
        return login if login is not None and host.is_setuid(folder + "/exe") else None
    if login is not None or in_login_slice:
        return uid
    # A service may run as an ordinary user. A task outside of all units was not started by the service manager.
    return None if any(part.endswith((".service", ".scope", ".slice")) for path in cgroups for part in path.split("/")) else uid


def _login(host: kernel_files.KernelFiles, folder: str, cgroups: "list[str]", first_uid: int) -> "tuple[int | None, bool]":
    """Return the ordinary user whose login started a task (None if there is none), and whether the task is in a user's slice.

    The kernel keeps the login uid: PAM sets it once (pam_loginuid(8)), also for crontabs, and children inherit it. Without auditing in the kernel,
    systemd's slice of the user is used.
    """
    text = (host.read(folder + "/loginuid") or "").strip()
    login = int(text) if text.isdigit() and len(text) < 11 else NO_LOGIN
    user_slice = re.search(r"^/user\.slice/user-([0-9]{1,10})\.slice(?:/|$)", "\n".join(cgroups), re.MULTILINE)
    if login == NO_LOGIN:
        login = int(user_slice.group(1)) if user_slice else 0
    return (login if login >= first_uid else None), bool(user_slice)


def _read_stat(host: kernel_files.KernelFiles, path: str) -> "_Stat | None":
    """Return the flags and the start time of a task (proc(5), stat). The name in brackets may contain any character."""
    fields = (host.read(path) or "").rpartition(")")[2].split()
    if len(fields) < 20 or not fields[6].isdigit():
        return None
    return _Stat(int(fields[6]), fields[19])
