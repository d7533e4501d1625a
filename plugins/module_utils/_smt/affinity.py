# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who would be hurt when CPUs go away, and their masks: saved before, put back after.

Kernel behaviour: a task that is pinned to vanishing CPUs alone is moved to others and, before 6.2, never gets its mask back
(select_fallback_rq); a cgroup v1 ``cpuset.cpus`` shrinks for good (Documentation/admin-guide/cgroup-v1/cpusets.rst); interrupts are moved and
not moved back. Kernel threads are the kernel's own business.

Anybody may pin a task of his own (sched_setaffinity(2)), so who can stop others from taking CPUs offline is a matter of whose it is: each finding says whether
it is of the machine - units, cpusets, interrupts, tasks of root and of system users and of services - or the own doing of a user who logged in.

Like state.py this file is copied to a host as part of the program that restores it: it imports
nothing but its neighbours that are copied too, by relative imports.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections import namedtuple

from .._host import cpulist, locks
from . import state as smt_state

MOST_CGROUPS = 20000
MOST_UNIT_FILES = 10000
# In a message a person reads; the module's result has them all.
MOST_LINES = 20

KERNEL_THREAD = 0x00200000  # PF_KTHREAD, include/linux/sched.h

UNIT_DIRECTORIES = (
    "etc/systemd/system",
    "run/systemd/system",
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
LIBVIRT_DIRECTORIES = ("etc/libvirt/qemu", "run/libvirt/qemu")
KUBELET_STATE = "var/lib/kubelet/cpu_manager_state"

# Whose conflicts count: a word for the machine's own, a word for everybody's; anything else is a user's name.
SERVICES, ALL = "services", "all"
# login.defs(5): ordinary users have ids from here on where nothing else is configured.
FIRST_USER = 1000
NO_LOGIN = 0xFFFFFFFF

Task = namedtuple("Task", ["pid", "start", "name", "mask", "unit", "cgroups", "uid", "user"])
Task.__doc__ = """A thread of user space that may not run everywhere. ``mask`` is a frozenset of CPUs, ``cgroups`` its cgroup paths, ``uid`` the real user id of
its process, ``user`` the id of the user whose own doing it is, None where it is the machine's."""

Cpuset = namedtuple("Cpuset", ["version", "path", "inside", "cpus", "partition"])
Cpuset.__doc__ = """A cpuset that names CPUs. ``version`` is that of cgroups (1, 2), ``inside`` the path from the mount point on, as tasks know it,
``partition`` None unless it is the root of a v2 partition."""

Finding = namedtuple("Finding", ["hurts", "text", "user"], defaults=(None,))
Finding.__doc__ = """One bystander. ``hurts`` is False for what is worth knowing and set right afterwards without anybody's doing; ``user`` is the name
(or the id in digits) of the user whose own doing it is, None where it is the machine's."""


class Host(smt_state.SysFiles):
    """A host's files, and the one system call that changes a task's mask."""

    def names(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._full(path)))
        except OSError:
            return []

    def set_affinity(self, pid: int, cpus) -> None:
        """Raises OSError."""
        os.sched_setaffinity(pid, cpus)

    def user_name(self, uid: int) -> str:
        """The name of a user of this host; the id in digits where none is known."""
        return (locks.user_name(uid) if self.is_live() else None) or str(uid)

    def owner(self, path: str) -> int:
        """Whom a file belongs to; root where there is none."""
        try:
            return os.stat(self._full(path)).st_uid
        except OSError:
            return 0

    def is_setuid(self, path: str) -> bool:
        """Whether a program takes on its owner's rights, whoever starts it."""
        try:
            return bool(os.stat(self._full(path)).st_mode & (stat.S_ISUID | stat.S_ISGID))
        except OSError:
            return False

    def is_live(self) -> bool:
        return os.path.realpath(self.sysroot) == "/"


def find(host: Host, online, going) -> list[Finding]:
    """All that would lose something when ``going`` of the CPUs ``online`` go offline."""
    online, going = frozenset(online), frozenset(going)
    if not going:
        return []
    sets = _cpusets(host)
    tasks = [task for task in _restricted_tasks(host, online) if task.mask & going]
    found = _hurt_cpusets(host, sets, going) + _hurt_tasks(host, tasks, [entry for entry in sets if entry.cpus & going], online, going)
    found += _hurt_units(host, going) + _hurt_kubelet(host, going) + _hurt_guests(host, going)
    found += _hurt_interrupts(host, online, going) + _hurt_isolated(host, going) + _hurt_nodes(host, online, going)
    return found


def counting(findings, whose) -> list[Finding]:
    """Those that are hurt and whose owner counts.

    Args:
        whose: list of ``services``, ``all`` and names of users
    """
    return [finding for finding in findings if finding.hurts and (ALL in whose or (SERVICES if finding.user is None else finding.user) in whose)]


def readable(findings) -> str:
    """A list of findings as one message."""
    lines = [finding.text for finding in findings]
    more = [f"and {len(lines) - MOST_LINES} more"] if len(lines) > MOST_LINES else []
    return "\n".join("- " + line for line in lines[:MOST_LINES] + more)


def capture(host: Host, online, going) -> dict:
    """What has to be put back later, as plain JSON data: masks of tasks, v1 cpusets, v2 partitions and interrupts that hold a CPU of ``going``."""
    online, going = frozenset(online), frozenset(going)
    sets = [entry for entry in _cpusets(host) if entry.cpus & going]
    return {
        "online": sorted(online),
        "tasks": [
            {"pid": task.pid, "start": task.start, "name": task.name, "mask": cpulist.render(task.mask)}
            for task in _restricted_tasks(host, online)
            if task.mask & going
        ],
        "cpusets": {entry.path: cpulist.render(entry.cpus) for entry in sets if entry.version == 1},
        "partitions": {entry.path: entry.partition for entry in sets if entry.partition},
        "interrupts": {number: cpulist.render(cpus) for number, cpus in _interrupts(host, online) if cpus & going},
    }


def merge(earlier: dict | None, later: dict) -> dict:
    """Both; of what is in both the earlier one, which is from before the first change."""
    if not earlier:
        return later
    known = {(task["pid"], task["start"]) for task in earlier["tasks"]}
    merged = {"online": earlier["online"], "tasks": earlier["tasks"] + [task for task in later["tasks"] if (task["pid"], task["start"]) not in known]}
    for kind in ("cpusets", "partitions", "interrupts"):
        merged[kind] = dict(later[kind], **earlier[kind])
    return merged


def note_left(host: Host, captured: dict) -> None:
    """Remember which mask the kernel left to each task, to see later whether somebody has given it another one since."""
    for task in captured["tasks"]:
        task["left"] = _mask_text(host, task)


def masks_now(host: Host, captured: dict) -> dict:
    """``{pid: mask}`` of those captured tasks whose mask somebody may have chosen; to be taken before CPUs come back.

    A mask that takes all the CPUs there are for the task is not in it: the kernel widens the mask of a task that wakes up with no CPU left
    at any time, not only when the CPUs go (select_fallback_rq).
    """
    online = frozenset(smt_state.read(files=host)["online"])
    masks = {}
    for task in captured["tasks"]:
        mask = _mask_text(host, task)
        if mask is not None and not _cpus(mask) >= online & _cpuset_of(host, task["pid"], online):
            masks[task["pid"]] = mask
    return masks


def put_back(host: Host, captured: dict, masks_before: dict, online) -> tuple[list[str], dict]:
    """Give back what the kernel did not, now that ``online`` are the CPUs.

    Args:
        masks_before: from :func:`masks_now`, before the CPUs came back

    Returns:
        what could not be put back (sentences), and what of ``captured`` waits for CPUs that are still offline
    """
    online = frozenset(online)
    missing = frozenset(captured["online"]) - online
    reports = []
    waiting = {"online": captured["online"], "tasks": [], "cpusets": {}, "partitions": {}, "interrupts": {}}
    # Parents first: a v1 cpuset cannot hold a CPU that its parent does not have.
    for path, text in sorted(captured["cpusets"].items()):
        reports += _put_cpuset(host, path, _cpus(text), online)
        if _cpus(text) & missing:
            waiting["cpusets"][path] = text
    for path, kind in sorted(captured["partitions"].items()):
        reports += _put_partition(host, path, kind, bool(missing))
        if missing:
            waiting["partitions"][path] = kind
    for task in captured["tasks"]:
        reports += _put_task(host, task, masks_before.get(task["pid"]), online)
        if _cpus(task["mask"]) & missing:
            waiting["tasks"].append(task)
    for number, text in sorted(captured["interrupts"].items()):
        reports += _put_interrupt(host, number, _cpus(text), online)
        if _cpus(text) & missing:
            waiting["interrupts"][number] = text
    return reports, waiting


def check(captured) -> None:
    """Raises ValueError when ``captured``, read from a file, does not have the form that :func:`capture` gives."""

    def texts(value):
        return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())

    tasks = captured["tasks"]
    whole = isinstance(tasks, list) and all(isinstance(task, dict) and isinstance(task.get("pid"), int) and task["pid"] > 0 for task in tasks)
    if not (whole and all(isinstance(task.get(key), str) for task in tasks for key in ("start", "name", "mask"))):
        raise ValueError("its tasks are none")
    if not all(texts(captured[kind]) for kind in ("cpusets", "partitions", "interrupts")) or not isinstance(captured["online"], list):
        raise ValueError("its cpusets or interrupts are none")


def is_empty(captured: dict) -> bool:
    return not any(captured[kind] for kind in ("tasks", "cpusets", "partitions", "interrupts"))


def _cpus(text: str | None) -> frozenset:
    """CPUs of a list that others wrote; empty when it is none."""
    try:
        return frozenset(cpulist.parse(text or ""))
    except cpulist.CpuListError:
        return frozenset()


def _named(cpus) -> str:
    return ("CPU %s" if len(cpus) == 1 else "CPUs %s") % cpulist.render(cpus)


# Tasks ----------------------------------------------------------------------------------------------------------------------------------


def _restricted_tasks(host: Host, online: frozenset) -> list[Task]:
    """Threads of user space that may not run on all online CPUs. One stat a process, one status a thread (proc(5))."""
    tasks = []
    itself = str(os.getpid()) if host.is_live() else ""
    first_user = _first_user(host)
    for name in host.names("proc"):
        if not name.isdigit() or name == itself:
            continue
        about = _stat(host, f"proc/{name}/stat")
        if about is None or about[0] & KERNEL_THREAD:
            continue
        for thread in host.names(f"proc/{name}/task"):
            task = _task(host, f"proc/{name}/task/{thread}", int(thread), online, first_user) if thread.isdigit() else None
            if task:
                tasks.append(task)
    return tasks


def _task(host: Host, folder: str, pid: int, online: frozenset, first_user: int) -> Task | None:
    status = host.read(folder + "/status") or ""
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)", status, re.MULTILINE)
    mask = _cpus(found.group(1)) if found else frozenset()
    if not mask or mask >= online:
        return None
    about = _stat(host, folder + "/stat")
    if about is None:
        return None
    name = re.search(r"^Name:\s*(.*)", status)
    cgroups = [line.split(":", 2)[-1] for line in (host.read(folder + "/cgroup") or "").splitlines()]
    unit = next((part for path in cgroups for part in reversed(path.split("/")) if part.endswith((".service", ".scope"))), None)
    uid = _uid(status)
    return Task(
        pid,
        about[1],
        _printable(name.group(1) if name else "?"),
        mask,
        unit and _printable(unit, 128),
        cgroups,
        uid,
        _whose(host, folder, uid, cgroups, first_user),
    )


def _uid(status: str) -> int:
    """The real user id of a process, from its status."""
    found = re.search(r"^Uid:\s*([0-9]{1,10})\b", status, re.MULTILINE)
    return int(found.group(1)) if found else 0


def _first_user(host: Host) -> int:
    found = re.search(r"^[ \t]*UID_MIN[ \t]+([0-9]{1,9})[ \t]*$", host.read("etc/login.defs") or "", re.MULTILINE)
    return int(found.group(1)) if found else FIRST_USER


def _whose(host: Host, folder: str, uid: int, cgroups: list, first_user: int) -> int | None:
    """The user whose own doing the mask of a task is, None where it is the machine's: root's, a system user's, or a service's.

    A mask outlives exec(2), so a program that takes on another user's rights may still have one that an ordinary user gave it (``taskset -c 3 su``).
    """
    login, login_slice = _login(host, folder, cgroups, first_user)
    if uid < first_user:
        return login if login is not None and host.is_setuid(folder + "/exe") else None
    if login is not None or login_slice:
        return uid
    # A service may well run as an ordinary user; what is in no unit at all was not started by the machine.
    return None if any(part.endswith((".service", ".scope", ".slice")) for path in cgroups for part in path.split("/")) else uid


def _login(host: Host, folder: str, cgroups: list, first_user: int) -> tuple[int | None, bool]:
    """The ordinary user from whose login a task descends, None for none, and whether it lives in a login's slice.

    The login uid is the kernel's: set once by PAM (pam_loginuid(8)), also for crontabs, and inherited. Without auditing there is systemd's slice of the user.
    """
    told = (host.read(folder + "/loginuid") or "").strip()
    login = int(told) if told.isdigit() and len(told) < 11 else NO_LOGIN
    slices = re.search(r"^/user\.slice/user-([0-9]{1,10})\.slice(?:/|$)", "\n".join(cgroups), re.MULTILINE)
    if login == NO_LOGIN:
        login = int(slices.group(1)) if slices else 0
    return (login if login >= first_user else None), bool(slices)


def _stat(host: Host, path: str) -> tuple[int, str] | None:
    """(flags, start time in clock ticks) of proc(5)'s stat; the name in brackets may hold anything."""
    fields = (host.read(path) or "").rpartition(")")[2].split()
    if len(fields) < 20 or not fields[6].isdigit():
        return None
    return int(fields[6]), fields[19]


def _printable(text: str, most: int = 64) -> str:
    return locks.printable(text, most)


def _hurt_tasks(host: Host, tasks: list, hurt_sets: list, online: frozenset, going: frozenset) -> list[Finding]:
    """One line for all threads of a unit that have the same mask, and one for all that a user pinned to the same CPUs by himself, so that no user fills
    the list; a mask that is that of a listed cpuset is not listed again.
    """
    groups = {}
    for task in tasks:
        if not any(task.mask & online == entry.cpus & online and _is_below(task.cgroups, entry.inside) for entry in hurt_sets):
            owner = (task.unit or task.name, task.uid, task.mask) if task.user is None else task.user
            groups.setdefault((task.user is None, owner), []).append(task)
    found = []
    for (machines, _owner), members in groups.items():
        first = members[0]
        mask = first.mask
        who = f"pid {first.pid} {first.name} ({_described(host, first)})"
        alike = len([task for task in members if task.mask == mask])
        if alike > 1:
            who += f" and {alike - 1} more threads like it"
        verb = "is" if alike == 1 else "are"
        kept = (mask & online) - going
        if kept:
            text = f"{who} may run on {cpulist.render(mask & online)} only and would keep {cpulist.render(kept)}"
        else:
            text = f"{who} {verb} pinned to {cpulist.render(mask & online)} alone"
        if len(members) > alike:
            text += f", and {len(members) - alike} more threads of this user are pinned to other CPUs"
        lost = frozenset().union(*(task.mask & going for task in members))
        found.append(Finding(True, f"{_named(lost)}: {text}", None if machines else host.user_name(first.user)))
    return found


def _described(host: Host, task: Task) -> str:
    """Whose a task is and where it lives, for a person."""
    place = f"unit {task.unit}" if task.unit else f"cgroup {_printable(next(iter(task.cgroups), '?'), 128)}"
    own = "" if task.user is None else f", pinned by user {_user(host, task.user)}" if task.user != task.uid else ", by the user alone"
    return f"user {_user(host, task.uid)}, {place}{own}"


def _user(host: Host, uid: int) -> str:
    name = host.user_name(uid)
    return name if name == str(uid) else f"{name}, uid {uid}"


def _is_below(cgroups: list, inside: str) -> bool:
    return any((cgroup + "/").startswith(inside + "/") for cgroup in cgroups)


def _current(host: Host, task: dict) -> str | None:
    """The Cpus_allowed_list of a captured task, None when it is gone."""
    folder = f"proc/{task['pid']}"
    about = _stat(host, folder + "/stat")
    if about is None or about[1] != task["start"]:
        return None
    found = re.search(r"^Cpus_allowed_list:\s*(\S+)", host.read(folder + "/status") or "", re.MULTILINE)
    return found.group(1) if found else None


def _mask_text(host: Host, task: dict) -> str | None:
    current = _current(host, task)
    return None if current is None else cpulist.render(_cpus(current))


def _cpuset_of(host: Host, pid: int, online: frozenset) -> frozenset:
    """The CPUs that the cpuset of a task has, as far as they are online; all online ones when it is in none."""
    cgroups = [line.split(":", 2) for line in (host.read(f"proc/{pid}/cgroup") or "").splitlines()]
    for mount, version in _cgroup_mounts(host):
        name = "cpuset.cpus.effective" if version == 2 else "cpuset.effective_cpus"
        for path in [entry[2] for entry in cgroups if len(entry) == 3 and (entry[1] == "" if version == 2 else "cpuset" in entry[1].split(","))]:
            parts = path.strip("/").split("/")
            for length in range(len(parts), -1, -1):
                cpus = _cpus(host.read("/".join([mount, *parts[:length], name])))
                if cpus:
                    return cpus
    return online


def _put_task(host: Host, task: dict, mask_before: str | None, online: frozenset) -> list[str]:
    who = f"pid {task['pid']} {task['name']}"
    current = _mask_text(host, task)
    if current is None:
        return [f"{who} is gone, its mask {task['mask']} was not needed any more"]
    wanted = _cpus(task["mask"])
    if _cpus(current) == wanted or not wanted & online:
        return []
    left = task.get("left")
    if left is not None and mask_before is not None and mask_before != left:
        return [f"{who} was given another mask ({mask_before}) while CPUs were offline: left as it is, {task['mask']} before"]
    try:
        host.set_affinity(task["pid"], wanted)
    except OSError as trouble:
        return [f"{who}: mask {task['mask']} could not be put back: {trouble.strerror}"]
    return []


# Cpusets --------------------------------------------------------------------------------------------------------------------------------


def _cpusets(host: Host) -> list[Cpuset]:
    """All cpusets that name CPUs, below the root."""
    found = []
    for mount, version in _cgroup_mounts(host):
        waiting = [mount]
        for _count in range(MOST_CGROUPS):
            if not waiting:
                break
            path = waiting.pop()
            names = host.names(path)
            has_cpus = "cpuset.cpus" in names
            cpus = _cpus(host.read(path + "/cpuset.cpus")) if has_cpus and path != mount else None
            if cpus:
                partition = host.read(path + "/cpuset.cpus.partition") if version == 2 else None
                found.append(Cpuset(version, path, path[len(mount) :], cpus, partition if partition in ("root", "isolated") else None))
            if has_cpus or path == mount:
                # Without the file the controller is not enabled here, so it is not further down either.
                waiting += [path + "/" + name for name in names if os.path.isdir(os.path.join(host.sysroot, path, name))]
    return found


def _cgroup_mounts(host: Host) -> list[tuple[str, int]]:
    found = []
    for line in (host.read("proc/self/mounts") or "").splitlines():
        fields = line.split(" ")
        if len(fields) > 3 and (fields[2] == "cgroup2" or (fields[2] == "cgroup" and "cpuset" in fields[3].split(","))):
            found.append((fields[1].lstrip("/"), 2 if fields[2] == "cgroup2" else 1))
    return found


def _hurt_cpusets(host: Host, sets: list, going: frozenset) -> list[Finding]:
    """A cpuset that belongs to an ordinary user is in a part of the tree that was delegated to him."""
    found = []
    first_user = _first_user(host)
    for entry in sets:
        hurt, kept = entry.cpus & going, entry.cpus - going
        if not hurt:
            continue
        where = f"{_named(hurt)}: /{_printable(entry.path, 256)} (cgroup v{entry.version} cpuset, CPUs {cpulist.render(entry.cpus)})"
        fate = f"would shrink to {cpulist.render(kept)}" if kept else "would lose all its CPUs"
        if entry.partition:
            fate = f"is a partition ({entry.partition}) and {fate if kept else 'would turn invalid'}"
        owner = host.owner(entry.path + "/cpuset.cpus")
        whose = host.user_name(owner) if owner >= first_user else None
        found.append(Finding(True, f"{where} {fate}" if whose is None else f"{where} of user {_user(host, owner)} {fate}", whose))
    return found


def _put_cpuset(host: Host, path: str, wanted: frozenset, online: frozenset) -> list[str]:
    current = host.read(path + "/cpuset.cpus")
    if current is None:
        return [f"/{_printable(path)} is gone, its cpuset {cpulist.render(wanted)} was not needed any more"]
    if _cpus(current) >= wanted & online:
        return []
    try:
        host.write(path + "/cpuset.cpus", cpulist.render(wanted & online))
    except OSError as trouble:
        return [f"/{_printable(path)}/cpuset.cpus could not be put back to {cpulist.render(wanted)}: {trouble.strerror}"]
    return []


def _put_partition(host: Host, path: str, kind: str, waiting: bool) -> list[str]:
    current = host.read(path + "/cpuset.cpus.partition")
    if current is None:
        return [f"/{_printable(path)} is gone, its partition was not needed any more"]
    if current == kind or waiting:
        return []
    try:
        host.write(path + "/cpuset.cpus.partition", kind)
    except OSError as trouble:
        return [f"/{_printable(path)}/cpuset.cpus.partition could not be put back to {kind}: {trouble.strerror}"]
    return []


# Interrupts -----------------------------------------------------------------------------------------------------------------------------


def _interrupts(host: Host, online: frozenset) -> list[tuple[str, frozenset]]:
    """(number, CPUs) of interrupts that are not allowed everywhere."""
    found = []
    for number in host.names("proc/irq"):
        cpus = _cpus(host.read(f"proc/irq/{number}/smp_affinity_list")) if number.isdigit() else frozenset()
        if cpus and not cpus >= online:
            found.append((number, cpus))
    return found


def _hurt_interrupts(host: Host, online: frozenset, going: frozenset) -> list[Finding]:
    found = []
    # Anybody's process may be called so.
    balanced = any(
        host.read(f"proc/{name}/comm") == "irqbalance" and _uid(host.read(f"proc/{name}/status") or "") == 0 for name in host.names("proc") if name.isdigit()
    )
    for number, cpus in _interrupts(host, online):
        if not cpus & online or (cpus & online) - going or _placed_by_kernel(host, number, cpus):
            continue
        names = _printable(" ".join(name for name in host.names("proc/irq/" + number) if os.path.isdir(os.path.join(host.sysroot, "proc/irq", number, name))))
        what = f"{_named(cpus & going)}: interrupt {number}{(f' ({names})' if names else '')} is bound to {cpulist.render(cpus & online)} alone"
        found.append(Finding(not balanced, what + (", by irqbalance, which will place it anew" if balanced else "")))
    return found


def _placed_by_kernel(host: Host, number: str, cpus: frozenset) -> bool:
    """Whether an interrupt's place is nobody's wish: the driver's hint, or managed by the kernel, which moves it there and back itself.

    write_irq_affinity (kernel/irq/proc.c) answers EIO for a managed interrupt before it looks at the text, and EINVAL for a text that
    is no CPU list: a write that can never change anything tells them apart.
    """
    try:
        hinted = frozenset(cpulist.parse_mask(host.read(f"proc/irq/{number}/affinity_hint") or ""))
    except cpulist.CpuListError:
        hinted = frozenset()
    if hinted == cpus:
        return True
    if not host.is_live():
        return False
    try:
        host.write(f"proc/irq/{number}/smp_affinity_list", "none")
    except OSError as trouble:
        return trouble.errno == errno.EIO
    return False


def _put_interrupt(host: Host, number: str, wanted: frozenset, online: frozenset) -> list[str]:
    path = f"proc/irq/{number}/smp_affinity_list"
    current = host.read(path)
    if current is None:
        return [f"interrupt {number} is gone, its CPUs {cpulist.render(wanted)} were not needed any more"]
    if _cpus(current) == wanted or not wanted & online:
        return []
    try:
        host.write(path, cpulist.render(wanted))
    except OSError as trouble:
        # EIO: managed by the kernel, which puts it where it wants it.
        return [] if trouble.errno == errno.EIO else [f"interrupt {number} could not be put back to {cpulist.render(wanted)}: {trouble.strerror}"]
    return []


# What is written in configurations --------------------------------------------------------------------------------------------------------


def _hurt_units(host: Host, going: frozenset) -> list[Finding]:
    """``CPUAffinity=`` and ``AllowedCPUs=`` (systemd.exec(5), systemd.resource-control(5)) of unit files and their drop-ins."""
    found = []
    files = ["etc/systemd/system.conf"] + ["etc/systemd/system.conf.d/" + name for name in host.names("etc/systemd/system.conf.d")]
    for directory in UNIT_DIRECTORIES:
        for name in host.names(directory):
            if name.endswith(".d"):
                files += [f"{directory}/{name}/{part}" for part in host.names(directory + "/" + name) if part.endswith(".conf")]
            elif name.endswith((".service", ".slice", ".scope")):
                files.append(f"{directory}/{name}")
    seen = set()
    for path in files[:MOST_UNIT_FILES]:
        real = os.path.realpath(os.path.join(host.sysroot, path))
        if real in seen:
            continue
        seen.add(real)
        for key, value in re.findall(r"^[ \t]*(CPUAffinity|AllowedCPUs)[ \t]*=[ \t]*(.+)$", host.read(path) or "", re.MULTILINE):
            hurt = _cpus(",".join(value.replace(",", " ").split())) & going
            if hurt:
                found.append(Finding(True, f"{_named(hurt)}: /{_printable(path, 256)} sets {key}={_printable(value.strip())}"))
    return found


def _hurt_kubelet(host: Host, going: frozenset) -> list[Finding]:
    try:
        state = json.loads(host.read(KUBELET_STATE) or "{}")
    except ValueError:
        return []
    if not isinstance(state, dict) or state.get("policyName") != "static":
        return []
    text = f"kubelet's CPU manager is static (/{KUBELET_STATE}): it does not start when the CPUs it knows are gone"
    return [Finding(True, f"{_named(going)}: {text}")]


def _hurt_guests(host: Host, going: frozenset) -> list[Finding]:
    found = {}
    for directory in LIBVIRT_DIRECTORIES:
        for name in host.names(directory):
            if name.endswith(".xml"):
                text = host.read(directory + "/" + name) or ""
                for element, value in re.findall(r"""<(vcpupin|emulatorpin|iothreadpin|vcpu)\b[^>]*\bcpuset=['"]([^'"]*)['"]""", text):
                    hurt = _libvirt_cpus(value) & going
                    if hurt:
                        what = f"{_named(hurt)}: libvirt guest {_printable(name[:-4])} is pinned there ({element})"
                        found[what] = Finding(True, what)
    return list(found.values())


def _libvirt_cpus(text: str) -> frozenset:
    """Libvirt's own lists may take CPUs out again: ``0-3,^2``."""
    parts = [part.strip() for part in text.split(",")]
    return _cpus(",".join(part for part in parts if part[:1] != "^")) - _cpus(",".join(part[1:] for part in parts if part[:1] == "^"))


def _hurt_isolated(host: Host, going: frozenset) -> list[Finding]:
    found = []
    for name, argument in (("isolated", "isolcpus="), ("nohz_full", "nohz_full=")):
        hurt = _cpus(host.read(f"{smt_state.CPU_DIRECTORY}/{name}")) & going
        if hurt:
            found.append(Finding(True, f"{_named(hurt)}: set aside at boot ({argument}) for work that would lose it"))
    return found


def _hurt_nodes(host: Host, online: frozenset, going: frozenset) -> list[Finding]:
    found = []
    for name in host.names("sys/devices/system/node"):
        cpus = _cpus(host.read(f"sys/devices/system/node/{name}/cpulist")) & online if re.fullmatch(r"node[0-9]+", name) else frozenset()
        if cpus and cpus <= going:
            found.append(Finding(True, f"{_named(cpus)}: NUMA {name} would be left without a CPU"))
    return found
