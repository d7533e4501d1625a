# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Affinity conflicts: tasks, cpusets, units, guests and interrupts bound to CPUs that go offline;
and saving and restoring their masks.

Kernel behaviour: a task whose mask holds only CPUs that go offline is moved to other CPUs and, before 6.2, never gets
its old mask again (select_fallback_rq); a cgroup v1 ``cpuset.cpus`` shrinks permanently
(Documentation/admin-guide/cgroup-v1/cpusets.rst); interrupts are moved and not moved back. The kernel manages its own
threads.

Nothing is a conflict that nobody bound: a task whose mask is what its cpuset leaves it, a cpuset with all CPUs of the
one above it, what is outside of a partition. What others bound is named once, with who did it: a partition or a cpuset,
systemd by a file, a container runtime, or sched_setaffinity(2).

Any user may pin tasks of their own (sched_setaffinity(2)) and could so prevent others from taking CPUs offline.
Therefore each conflict names its origin: the system - units, cpusets, interrupts, tasks of root, of system users and of
services - or an ordinary user (:mod:`origins`).
"""

import contextlib
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import (
    bindings,
    cpusets,
    origins,
    programs,
    saved_masks,
    slurm,
    tasks as host_tasks,
)

# Lines in a message for a person. The module's result has all of them.
MAX_LINES = 20

# Values that select conflicts by origin: those of the system, and all. Any other value is a user name.
SERVICES, ALL = "services", "all"


KUBELET = "kubelet"
# The cgroup of all pods, by either driver (pkg/kubelet/cm/node_container_manager_linux.go of Kubernetes).
_OF_PODS = re.compile(r"/kubepods(\.slice)?(/|\Z)")


class AffinityFinding(t.NamedTuple):
    """One affinity conflict, or an observation that is none."""

    is_conflict: bool  # False if nothing is lost, because something else will correct it by itself
    text: str  # the CPUs and the reason
    user: "str | None" = (
        None  # name, or id in digits, of the ordinary user who caused it; None if it belongs to the system
    )
    consumer: str = ""  # the kind of consumer that has no conflict where it follows


class Harmless(str):
    """A sentence about what was not restored because it was not needed any more, or is somebody else's by now:
    trying again would change nothing.
    """

    __slots__ = ()


def find(
    host: kernel_files.KernelFiles, online: "t.Iterable[int]", going: "t.Iterable[int]"
) -> "list[AffinityFinding]":
    """Return the affinity conflicts when the CPUs ``going``, which are among those ``online``, go offline."""
    before, lost = frozenset(online), frozenset(going)
    if not lost:
        return []
    findings = find_of_work(host, before, lost)
    return (
        findings
        + _interrupt_conflicts(host, before, lost)
        + _isolation_conflicts(host, lost)
        + _node_conflicts(host, before, lost)
        + _slurm_conflicts(host, before, lost)
    )


def find_of_work(
    host: kernel_files.KernelFiles, online: "frozenset[int]", lost: "frozenset[int]"
) -> "list[AffinityFinding]":
    """Return the affinity conflicts of tasks, cpusets, units and guests when they lose the CPUs ``lost``,
    whether or not these stay online for others.
    """
    files = _UnitFiles(bindings.units(host))
    sets = cpusets.find(host)
    findings = _cpuset_conflicts(host, sets, lost, files) + _task_conflicts(host, online, lost, files)
    findings += _container_conflicts(host, sets, online, lost)
    findings += _bound_conflicts(files.others(online), lost) + _kubelet_conflicts(host, lost)
    # A guest may have the same pinning in several files.
    return findings + list(
        dict.fromkeys(_bound_conflicts([guest for guest in bindings.guests(host) if not guest.cpus >= online], lost))
    )


def selected(findings: "t.Iterable[AffinityFinding]", whose: "t.Container[str]") -> "list[AffinityFinding]":
    """Return the conflicts whose origin is in ``whose``: ``services``, ``all`` and names of users."""
    return [
        finding
        for finding in findings
        if finding.is_conflict and (ALL in whose or (SERVICES if finding.user is None else finding.user) in whose)
    ]


def check_users(host: kernel_files.KernelFiles, names: "t.Iterable[str]") -> None:
    """Check that owners of conflicts, as :func:`selected` takes them, can own any on this host: conflicts of a name
    with a slip in it would not count.

    Raises:
        HostError: a name is that of no user; or it is an id of a user who has a name, or an id without a name that no
            task has.
    """
    for name in names:
        if name in (SERVICES, ALL) or host.has_user(name):
            continue
        shown = host_text.printable(name, 64)
        uid = int(name) if re.fullmatch(r"[0-9]{1,10}", name) else None
        if uid is None:
            reason = f"this host knows no such user (getent passwd {shown})"
        elif host.user_name(uid) != name:
            reason = f"this user has a name here, {host.user_name(uid)}: give that"
        elif uid == origins.NO_RECORD or host_tasks.runs_as(host, uid):
            continue
        else:
            reason = "this host knows no user with this id, and no task runs as it"
        raise HostError(
            f"affinity_conflicts_of names {shown}, and {reason}. A name with a slip in it protects nothing; nothing was"
            " changed. Give services, all, or users that this host has; a user that only some hosts have belongs in"
            " the variables of those"
        )


def readable(findings: "t.Iterable[AffinityFinding]") -> str:
    """Return findings as one message with a line for each, cut after ``MAX_LINES``."""
    return "\n".join("- " + line for line in _cut(findings))


def in_one_line(findings: "t.Iterable[AffinityFinding]") -> str:
    """Return findings as a part of a sentence, cut after ``MAX_LINES``."""
    return "; ".join(_cut(findings))


def _cut(findings: "t.Iterable[AffinityFinding]") -> "list[str]":
    lines = [finding.text for finding in findings]
    return lines[:MAX_LINES] + ([f"and {len(lines) - MAX_LINES} more"] if len(lines) > MAX_LINES else [])


def capture(
    host: kernel_files.KernelFiles, online: "t.Iterable[int]", going: "t.Iterable[int]"
) -> saved_masks.Captured:
    """Return the masks of v1 cpusets, v2 partitions and interrupts that hold a CPU of ``going``, and of pinned tasks,
    to restore them later.

    Before 6.2 the kernel gives all tasks of a cpuset that loses or gets a CPU the mask of the cpuset, also those that
    are pinned to its other CPUs.
    """
    before, lost = frozenset(online), frozenset(going)
    cpusets_found = cpusets.find(host)
    sets = [entry for entry in cpusets_found if entry.cpus & lost or _is_dissolved(entry, lost)]
    has_v1 = any(entry.version == 1 for entry in cpusets_found)
    takes_all = has_v1 or cpusets.is_handed_down(host)

    def is_needed(task: host_tasks.Task) -> bool:
        # The kernel itself sets the masks of tasks that have all CPUs of their cpuset, except in v1, where it may have
        # moved them to another one.
        is_pinned, loses = not task.mask >= task.allowed, bool(task.mask & lost)
        return (is_pinned and (takes_all or loses)) or (has_v1 and loses)

    return {
        "online": sorted(before),
        "tasks": _saved(filter(is_needed, host_tasks.restricted(host, before))),
        "cpusets": {entry.path: cpulist.render(entry.cpus) for entry in sets if entry.version == 1},
        "partitions": {entry.path: entry.partition for entry in sets if entry.partition},
        "interrupts": {
            number: cpulist.render(cpus) for number, cpus in bindings.interrupts(host, before) if cpus & lost
        },
    }


def capture_tasks(host: kernel_files.KernelFiles, online: "t.Iterable[int]") -> "list[saved_masks.SavedTask]":
    """Return the masks of all tasks that may not run on all CPUs,
    to restore them after a change of cpusets of cgroup v2.

    Before 6.2 the kernel gives all tasks of a cpuset that changes, and of those below a cgroup that hands the
    controller down or takes it back, the mask of their cpuset (update_tasks_cpumask, cpuset_attach).
    """
    return _saved(host_tasks.restricted(host, frozenset(online)))


def restore_tasks(
    host: kernel_files.KernelFiles, tasks: "t.Iterable[saved_masks.SavedTask]", online: "t.Iterable[int]"
) -> "list[str]":
    """Restore the masks of the tasks that have not ended, given the CPUs online; return what could not be restored,
    one sentence each.
    """
    now = frozenset(online)
    return [
        sentence
        for task in tasks
        if _current_mask(host, task) is not None
        for sentence in _restore_task(host, task, None, now)
    ]


def note_left(host: kernel_files.KernelFiles, captured: saved_masks.Captured) -> None:
    """Restore what is left of the tasks' masks after CPUs went offline,
    and record in ``captured`` the masks that they have now.

    By them it is detected later whether somebody has changed a mask since.
    """
    online = bindings.online(host)
    for task in captured["tasks"]:
        left, current = cpulist.parse_or_empty(task["mask"]) & online, cpulist.parse_or_empty(_current_mask(host, task))
        if left and current & online != left:
            # What the kernel refuses is seen, and reported, when the CPUs come back.
            with contextlib.suppress(OSError):
                host.set_affinity(task["pid"], left)
        task["left"] = _current_mask(host, task)


def masks_now(host: kernel_files.KernelFiles, captured: saved_masks.Captured) -> "dict[int, str]":
    """Return ``{pid: mask}`` of the captured tasks whose mask somebody may have chosen. Call it before CPUs come back.

    A mask that holds all CPUs available to the task is left out. The kernel widens the mask of a task that wakes up
    without an online CPU at any time, not only at the moment when the CPUs go offline (select_fallback_rq).
    """
    online = bindings.online(host)
    masks = {}
    for task in captured["tasks"]:
        mask = _current_mask(host, task)
        if mask is not None and not cpulist.parse_or_empty(mask) >= online & cpusets.effective_cpus(
            host, task["pid"], online
        ):
            masks[task["pid"]] = mask
    return masks


def restore(
    host: kernel_files.KernelFiles,
    captured: saved_masks.Captured,
    masks_before: "t.Mapping[int, str]",
    online: "t.Iterable[int]",
) -> "tuple[list[str], saved_masks.Captured]":
    """Restore what the kernel did not.

    Args:
        host: the host
        captured: from :func:`capture`
        masks_before: from :func:`masks_now`, before the CPUs came back
        online: CPUs that are online now

    Returns:
        what could not be restored, one sentence each; and the part of ``captured`` that needs CPUs that are still
        offline
    """
    now = frozenset(online)
    missing = frozenset(captured["online"]) - now
    reports = []
    pending = saved_masks.nothing(captured["online"])
    # Parents first: a v1 cpuset cannot hold a CPU that its parent does not have.
    for path, text in sorted(captured["cpusets"].items()):
        cpus = cpulist.parse_or_empty(text)
        reports += _restore_cpuset(host, path, cpus, now)
        if cpus & missing:
            pending["cpusets"][path] = text
    for path, kind in sorted(captured["partitions"].items()):
        reports += _restore_partition(host, path, kind, bool(missing))
        if missing:
            pending["partitions"][path] = kind
    for task in captured["tasks"]:
        reports += _restore_task(host, task, masks_before.get(task["pid"]), now)
        if cpulist.parse_or_empty(task["mask"]) & missing:
            pending["tasks"].append(task)
    for number, text in sorted(captured["interrupts"].items()):
        cpus = cpulist.parse_or_empty(text)
        reports += _restore_interrupt(host, number, cpus, now)
        if cpus & missing:
            pending["interrupts"][number] = text
    return reports, pending


def _label(cpus: "frozenset[int]") -> str:
    return f"{'CPU' if len(cpus) == 1 else 'CPUs'} {cpulist.render(cpus)}"


# Tasks ----------------------------------------------------------------------------------------------------------------


class _UnitFiles:
    """What files of systemd set, and which of them have been named with what they bind.

    Args:
        settings: of all files.
    """

    def __init__(self, settings: "list[bindings.UnitSetting]") -> None:
        self._settings = settings
        self._named: set[bindings.UnitSetting] = set()

    def naming(self, key: str, unit: "str | None", cpus: "frozenset[int]", within: "frozenset[int]") -> str:
        """Return the files that set exactly these CPUs, among those ``within``, for a unit (empty: the manager);
        empty if it was something else.
        """
        own = [
            setting
            for setting in self._settings
            if setting.key == key and unit is not None and (setting.applies_to(unit) if unit else not setting.unit)
        ]
        # A later setting adds to an earlier one; an empty one between them is not considered.
        for group in [*([setting] for setting in own), own]:
            if group and frozenset(cpu for setting in group for cpu in setting.cpus) & within == cpus:
                self._named.update(group)
                return f", as {' and '.join(setting.text for setting in group)}"
        return ""

    def others(self, online: "frozenset[int]") -> "list[bindings.Binding]":
        """Return what binds units that do not run now, or binds them to other CPUs than they have.

        A file with all CPUs binds nothing.
        """
        return [
            bindings.Binding(setting.cpus, setting.text)
            for setting in self._settings
            if setting not in self._named and not setting.cpus >= online
        ]


def _task_conflicts(
    host: kernel_files.KernelFiles, online: "frozenset[int]", going: "frozenset[int]", files: _UnitFiles
) -> "list[AffinityFinding]":
    """Return one finding for all threads of a unit with the same mask, and one for all that an ordinary user pinned,
    so that no user fills the list.

    A task is left out that has all CPUs of its cpuset, except for isolated ones. Tasks with the mask of process 1, as
    ``CPUAffinity=`` in system.conf sets it, have inherited it: they are one finding.
    """
    isolated = frozenset(cpu for binding in bindings.isolated(host)[:1] for cpu in binding.cpus)
    pinned = [
        task
        for task in host_tasks.restricted(host, online)
        if not task.mask >= (task.allowed - isolated or task.allowed)
    ]
    manager = next((task.mask for task in pinned if task.pid == 1), None)
    groups: dict[tuple[object, ...], list[host_tasks.Task]] = {}
    for task in pinned:
        if task.mask & going:
            inherits = manager is not None and task.mask & online == (manager & task.allowed or task.allowed)
            group = (
                (1,)
                if inherits
                else (task.unit or task.name, task.uid, task.mask)
                if task.user is None
                else (task.user,)
            )
            groups.setdefault(group, []).append(task)
    return [_task_conflict(host, members, online, going, files, group == (1,)) for group, members in groups.items()]


def _task_conflict(
    host: kernel_files.KernelFiles,
    members: "list[host_tasks.Task]",
    online: "frozenset[int]",
    going: "frozenset[int]",
    files: _UnitFiles,
    inherited: bool,
) -> AffinityFinding:
    first = members[0]
    mask = first.mask
    alike = len([task for task in members if task.mask == mask])
    who = f"pid {first.pid} {first.name} ({host_tasks.describe(host, first)})"
    if alike > 1:
        who += f" and {alike - 1} more threads {'that inherit its mask' if inherited else 'like it'}"
    kept = (mask & online) - going
    if kept:
        text = f"{who} may run on {cpulist.render(mask & online)} only and would keep {cpulist.render(kept)}"
    else:
        text = f"{who} {'is' if alike == 1 else 'are'} pinned to {cpulist.render(mask & online)} alone"
    named = (
        files.naming("CPUAffinity", "" if inherited else first.unit, mask & online, first.allowed)
        if first.user is None
        else ""
    )
    text += named or ", by sched_setaffinity(2) as with taskset"
    if len(members) > alike:
        text += f"; {len(members) - alike} more threads {'' if inherited else 'of this user '}are pinned to other CPUs"
    lost = frozenset(cpu for task in members for cpu in task.mask & going)
    return AffinityFinding(
        True, f"{_label(lost)}: {text}", None if inherited or first.user is None else host.user_name(first.user)
    )


def _saved(tasks: "t.Iterable[host_tasks.Task]") -> "list[saved_masks.SavedTask]":
    return [
        {"pid": task.pid, "start": task.start, "name": task.name, "mask": cpulist.render(task.mask)} for task in tasks
    ]


def _current_mask(host: kernel_files.KernelFiles, task: saved_masks.SavedTask) -> "str | None":
    """Return the mask of a captured task as a CPU list, or None if the task no longer exists."""
    mask = host_tasks.current_mask(host, task["pid"], task["start"])
    return None if mask is None else cpulist.render(mask)


def _restore_task(
    host: kernel_files.KernelFiles, task: saved_masks.SavedTask, mask_before: "str | None", online: "frozenset[int]"
) -> "list[str]":
    who = f"pid {task['pid']} {task['name']}"
    current = _current_mask(host, task)
    left, text = task.get("left"), task["mask"]
    messages: list[str] = []
    # Nothing is said of a task from which nothing was taken.
    lost = left != text
    if current is None:
        return [Harmless(f"{who} is gone, its mask {text} was not needed any more")] if lost else []
    if left is not None and mask_before not in (None, left, text):
        if lost:
            messages = [
                Harmless(
                    f"{who} was given another mask ({mask_before}) while CPUs were offline: it keeps that mask, {text}"
                    " was not restored"
                )
            ]
        text = str(mask_before)
    wanted = cpulist.parse_or_empty(text)
    if cpulist.parse_or_empty(current) == wanted or not wanted & online:
        return messages
    try:
        host.set_affinity(task["pid"], wanted)
    except OSError as error:
        return [f"{who}: mask {text} could not be restored: {error.strerror}"]
    return messages


# Cpusets --------------------------------------------------------------------------------------------------------------


def _cpuset_conflicts(
    host: kernel_files.KernelFiles, sets: "list[cpusets.Cpuset]", going: "frozenset[int]", files: _UnitFiles
) -> "list[AffinityFinding]":
    """Return the cpusets that lose CPUs, and one for all that an ordinary user owns in a part of the tree that was
    delegated to that user.
    """
    findings = []
    whose = origins.Origins(host)
    of_users: dict[int, list[cpusets.Cpuset]] = {}
    for entry in sets:
        if not ((entry.binds and entry.effective & going) or _is_dissolved(entry, going)):
            continue
        owner = whose.of_cpuset(host.owner(entry.path + "/cpuset.cpus"), entry.inside)
        if owner is None:
            text = f"{_cpuset_label(entry, _lost(entry, going))} {_effect(entry, going)}{_set_by(entry, files)}"
            # A kubelet that starts gives each container of its pods CPUs that are online.
            consumer = KUBELET if _OF_PODS.search(entry.path) else ""
            findings.append(AffinityFinding(True, text, consumer=consumer))
        else:
            of_users.setdefault(owner, []).append(entry)
    for owner, entries in of_users.items():
        first, lost = entries[0], frozenset(cpu for entry in entries for cpu in _lost(entry, going))
        more = f", and {len(entries) - 1} more cpusets of this user lose CPUs" if len(entries) > 1 else ""
        findings.append(
            AffinityFinding(
                True,
                f"{_cpuset_label(first, lost)} of user {host.user_label(owner)} {_effect(first, going)}{more}",
                host.user_name(owner),
            )
        )
    return findings


def _is_dissolved(entry: cpusets.Cpuset, going: "frozenset[int]") -> bool:
    """Return whether the kernel would take the CPUs of a partition away from it,
    because what is outside of it would have none.
    """
    return entry.partition is not None and bool(entry.above) and entry.above <= going


def _lost(entry: cpusets.Cpuset, going: "frozenset[int]") -> "frozenset[int]":
    return entry.effective if _is_dissolved(entry, going) else entry.effective & going


def _cpuset_label(entry: cpusets.Cpuset, lost: "frozenset[int]") -> str:
    return (
        f"{_label(lost)}: /{host_text.printable(entry.path, 256)} (cgroup v{entry.version} cpuset, CPUs"
        f" {cpulist.render(entry.cpus)})"
    )


def _effect(entry: cpusets.Cpuset, going: "frozenset[int]") -> str:
    kept = entry.effective - going
    effect = f"would shrink to {cpulist.render(kept)}"
    if entry.partition:
        if _is_dissolved(entry, going):
            effect = "would become invalid, because what is outside of it would have no CPU"
        elif not kept:
            effect = "would become invalid, and its tasks run among all others"
        return f"is a partition ({entry.partition}) and {effect}"
    if kept:
        return effect
    return (
        f"would lose all its CPUs, and its tasks {'move to' if entry.version == 1 else 'have those of'} the cpuset"
        " above"
    )


def _set_by(entry: cpusets.Cpuset, files: _UnitFiles) -> str:
    named = files.naming("AllowedCPUs", entry.inside.rpartition("/")[2], entry.cpus, entry.cpus)
    return named or (", set for a container or guest" if origins.is_of_container(entry.inside) else "")


def _restore_cpuset(
    host: kernel_files.KernelFiles, path: str, wanted: "frozenset[int]", online: "frozenset[int]"
) -> "list[str]":
    current = host.read(path + "/cpuset.cpus")
    if current is None:
        return [
            Harmless(
                f"/{host_text.printable(path, 64)} is gone, its cpuset {cpulist.render(wanted)} was not needed any more"
            )
        ]
    if cpulist.parse_or_empty(current) >= wanted & online:
        return []
    return _written(
        host,
        path + "/cpuset.cpus",
        cpulist.render(wanted & online),
        f"/{host_text.printable(path, 64)}/cpuset.cpus",
        cpulist.render(wanted),
    )


def _restore_partition(host: kernel_files.KernelFiles, path: str, kind: str, cpus_missing: bool) -> "list[str]":
    current = host.read(path + "/cpuset.cpus.partition")
    if current is None:
        return [Harmless(f"/{host_text.printable(path, 64)} is gone, its partition was not needed any more")]
    # The kernel makes a partition invalid. Only a person makes it one of the other kind, or none.
    if "invalid" not in current or cpus_missing:
        return []
    return _written(
        host, path + "/cpuset.cpus.partition", kind, f"/{host_text.printable(path, 64)}/cpuset.cpus.partition", kind
    )


def _written(
    host: kernel_files.KernelFiles, path: str, text: str, what: str, wanted: str, without_harm: "tuple[int, ...]" = ()
) -> "list[str]":
    """Write a saved value; return a sentence if the kernel refuses it with another errno than those that do no harm."""
    try:
        host.write(path, text)
    except OSError as error:
        return [] if error.errno in without_harm else [f"{what} could not be restored to {wanted}: {error.strerror}"]
    return []


# Interrupts -----------------------------------------------------------------------------------------------------------


def _interrupt_conflicts(
    host: kernel_files.KernelFiles, online: "frozenset[int]", going: "frozenset[int]"
) -> "list[AffinityFinding]":
    findings = []
    balanced = host_tasks.runs_as_root(host, "irqbalance")
    for number, cpus in bindings.interrupts(host, online):
        if not cpus & online or (cpus & online) - going or bindings.is_placed_by_kernel(host, number, cpus):
            continue
        names = bindings.interrupt_devices(host, number)
        what = (
            f"{_label(cpus & going)}: interrupt {number}{f' ({names})' if names else ''} is bound to"
            f" {cpulist.render(cpus & online)} alone"
        )
        findings.append(AffinityFinding(not balanced, what + (", irqbalance will move it" if balanced else "")))
    return findings


def _restore_interrupt(
    host: kernel_files.KernelFiles, number: str, wanted: "frozenset[int]", online: "frozenset[int]"
) -> "list[str]":
    path = bindings.interrupt_path(number)
    current = host.read(path)
    if current is None:
        return [Harmless(f"interrupt {number} is gone, its CPUs {cpulist.render(wanted)} were not needed any more")]
    if cpulist.parse_or_empty(current) == wanted or not wanted & online:
        return []
    # The kernel chooses the CPUs of those that it manages.
    return _written(host, path, cpulist.render(wanted), f"interrupt {number}", cpulist.render(wanted), bindings.MANAGED)


# Configuration --------------------------------------------------------------------------------------------------------


def _bound_conflicts(bound: "list[bindings.Binding]", going: "frozenset[int]") -> "list[AffinityFinding]":
    texts = [f"{_label(binding.cpus & going)}: {binding.text}" for binding in bound if binding.cpus & going]
    return [AffinityFinding(True, text) for text in texts]


def _kubelet_conflicts(host: kernel_files.KernelFiles, going: "frozenset[int]") -> "list[AffinityFinding]":
    known, findings = programs.kubelet(host), []
    if known.static:
        text = (
            f"{_label(going)}: the CPU manager policy of kubelet is static ({known.static}): kubelet does not start"
            " when CPUs recorded there are offline"
        )
        findings.append(AffinityFinding(True, text, consumer=KUBELET))
    if known.reserved & going:
        text = (
            f"{_label(known.reserved & going)}: kubelet reserves {cpulist.render(known.reserved)} for the system"
            " (reservedSystemCPUs), and does not start without them"
        )
        findings.append(AffinityFinding(True, text))
    return findings


def of_uneven_cores(host: kernel_files.KernelFiles, threads: "t.AbstractSet[int]") -> "list[AffinityFinding]":
    """Return the conflict of a kubelet that gives pods whole cores only with cores of different size.

    It takes the number of CPUs by that of cores for the size of each (newStaticPolicy in
    pkg/kubelet/cm/cpumanager/policy_static.go of Kubernetes).

    Args:
        host: the host.
        threads: numbers of threads that cores would have online.
    """
    if len(threads) < 2 or not programs.kubelet_gives_whole_cores(host):
        return []
    numbers = " and ".join(map(str, sorted(threads)))
    return [
        AffinityFinding(
            True,
            f"kubelet gives pods whole cores only (full-pcpus-only), and some cores would have {numbers} threads: it"
            " would refuse pods whose CPUs do not divide evenly",
        )
    ]


def _container_conflicts(
    host: kernel_files.KernelFiles, sets: "list[cpusets.Cpuset]", online: "frozenset[int]", going: "frozenset[int]"
) -> "list[AffinityFinding]":
    """Return the conflicts of containers and guests that do not run: of the others the cpusets are named. One that is
    not started without each of its CPUs has a conflict though it has all CPUs, and though it runs.
    """
    binding, running = (
        "\n".join(entry.path for entry in group) for group in ([cpuset for cpuset in sets if cpuset.binds], sets)
    )
    stopped = [
        container.binding
        for container in bindings.containers(host)
        if (container.needs_each or not container.binding.cpus >= online)
        and not re.search(
            rf"[/.-]{re.escape(container.name)}(?:[/.\n]|\Z)", binding if container.needs_each else running
        )
    ]
    return _bound_conflicts(stopped, going)


def _isolation_conflicts(host: kernel_files.KernelFiles, going: "frozenset[int]") -> "list[AffinityFinding]":
    isolated = [
        binding._replace(text=f"isolated at boot ({binding.text}) for a workload that would lose it")
        for binding in bindings.isolated(host)
    ]
    return _bound_conflicts(isolated, going)


def _node_conflicts(
    host: kernel_files.KernelFiles, online: "frozenset[int]", going: "frozenset[int]"
) -> "list[AffinityFinding]":
    lost = [node._replace(cpus=node.cpus & online) for node in bindings.nodes(host)]
    return [
        AffinityFinding(True, f"{_label(node.cpus)}: NUMA {node.text} would be left without a CPU")
        for node in lost
        if node.cpus and node.cpus <= going
    ]


def _slurm_conflicts(
    host: kernel_files.KernelFiles, online: "frozenset[int]", going: "frozenset[int]"
) -> "list[AffinityFinding]":
    node = slurm.node(host)
    if node is None or (node.threads < 2 and node.cpus <= len(online - going)):
        return []
    counted = f"{node.threads} threads of a core" if node.threads > 1 else f"{node.cpus} CPUs"
    return [
        AffinityFinding(
            True,
            f"{_label(going)}: Slurm counts {counted} on this node (/{node.path}), and drains it when it has fewer:"
            " change its line with the state",
        )
    ]
