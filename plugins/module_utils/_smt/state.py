# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SMT state of a host as data, and the transaction that brings it from one state to another.

A *state* is plain JSON data: ``{"control": str, "active": bool | None, "online": [int], "present": [int]}``. ``control`` is what
``/sys/devices/system/cpu/smt/control`` reads, ``absent`` where the kernel has no such file.

This file imports nothing from the collection: its source is copied to a host as part of the program that restores it.

Kernel behaviour is from Documentation/ABI/testing/sysfs-devices-system-cpu and kernel/cpu.c (4.19 to 6.17). The running kernel has the last
word: every write is read back.
"""

from __future__ import annotations

import errno
import os
from collections import namedtuple

CPU_DIRECTORY = "sys/devices/system/cpu"
CONTROL = CPU_DIRECTORY + "/smt/control"
ACTIVE = CPU_DIRECTORY + "/smt/active"
METHODS = ("auto", "smt_control", "cpu_online")

# The kernel's own limit (NR_CPUS) is 8192 on the largest configurations; a list beyond this is not a CPU list.
MOST_CPUS = 65536
LONGEST_FILE = 1 << 20

WITHOUT_CONTROL = ("absent", "notsupported", "notimplemented")
OFF = ("off", "forceoff")

# What an errno means when a CPU is brought up or down, or the control is written (kernel/cpu.c, drivers/base/cpu.c).
MEANINGS = {
    "EPERM": "the kernel does not permit it (siblings are refused while smt/control is off, forceoff is final until a reboot, or this is not root)",
    "EACCES": "no permission to write (not root, or a container or security policy forbids it)",
    "EBUSY": "SCHED_DEADLINE bandwidth would not fit, or CPU hotplug is held by a suspend",
    "EOPNOTSUPP": "the platform forbids taking this CPU offline or online (TDX, MADT wakeup)",
    "EINVAL": "the kernel does not take this value, or the CPU is not present",
    "ENODEV": "the kernel has no SMT to control here (no SMT, or it is off in firmware)",
    "ENOENT": "the kernel offers no file for it: this CPU cannot be hot-plugged",
    "ENOSPC": "no interrupt vectors are left on the other CPUs",
    "ENOMEM": "the kernel has no memory for it",
    "EROFS": "sysfs is mounted read-only (a container?)",
    "EIO": "the CPU did not come up or go down",
}

Target = namedtuple("Target", ["online", "offline", "writes", "width"])
Target.__doc__ = """Where a transaction goes.

online, offline: frozensets of CPUs that are to be in that state; a CPU in neither may stay as it is.
writes: control values to try in this order (the next only after EINVAL); empty leaves the control as it is.
width: threads per core the control has to allow; 1 means that the control has to read off, 0 that any reading will do.
"""


class StateError(Exception):
    """The SMT state cannot be read or changed. The text names the CPU or file, the reason, and whether the state before is back."""


class SysFiles:
    """The files of one host below ``sysroot``; paths are relative to it. A subclass may stand in for a kernel."""

    def __init__(self, sysroot: str = "/"):
        self.sysroot = sysroot

    def _full(self, path: str) -> str:
        return os.path.join(self.sysroot, path)

    def read(self, path: str) -> str | None:
        """Stripped text of at most ``LONGEST_FILE`` bytes, or None when missing or unreadable."""
        try:
            with open(self._full(path), "rb") as handle:
                return handle.read(LONGEST_FILE).decode("ascii", errors="replace").strip()
        except OSError:
            return None

    def write(self, path: str, text: str) -> None:
        """Write in one system call, because the kernel takes each as a request of its own. Raises OSError."""
        handle = os.open(self._full(path), os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(handle, (text + "\n").encode("ascii"))
        finally:
            os.close(handle)

    def exists(self, path: str) -> bool:
        return os.path.exists(self._full(path))


def parse_cpulist(text: str, where: str) -> list[int]:
    """CPUs of a kernel list (``0-3,8``; strides are never printed by the kernel), sorted. Raises StateError naming ``where``."""
    cpus = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first and not dash:
            continue
        if not (first.isdigit() and (last.isdigit() or not dash)):
            raise StateError(f"{where}: {text!r:.60} is not a CPU list")
        low, high = int(first), int(last or first)
        if low > high or high >= MOST_CPUS:
            raise StateError(f"{where}: {text!r:.60} is not a CPU list")
        cpus.update(range(low, high + 1))
    return sorted(cpus)


def read(sysroot: str = "/", files: SysFiles | None = None) -> dict:
    """The state of a host as plain JSON data. Raises StateError when the kernel does not tell which CPUs are online."""
    files = files or SysFiles(sysroot)
    online_file = CPU_DIRECTORY + "/online"
    online = files.read(online_file)
    if not online:
        raise StateError(f"/{online_file}: missing or empty, so the state of the CPUs is not known")
    present = files.read(CPU_DIRECTORY + "/present") or online
    control = files.read(CONTROL)
    return {
        "control": "absent" if control is None else control[:32] or "absent",
        "active": {"1": True, "0": False}.get(files.read(ACTIVE) or ""),
        "online": parse_cpulist(online, "/" + online_file),
        "present": parse_cpulist(present, f"/{CPU_DIRECTORY}/present"),
    }


def differences(before: dict, after: dict) -> list[str]:
    """What of ``before`` is not so in ``after``, one sentence each; empty when the states are equal."""
    found = []
    if before["control"] != after["control"]:
        found.append(f"smt/control was {before['control']}, is {after['control']}")
    was, now = set(before["online"]), set(after["online"])
    gone = set(after["present"])
    found += [f"CPU {cpu} was online, is {'offline' if cpu in gone else 'no longer present'}" for cpu in sorted(was - now)]
    found += [f"CPU {cpu} was offline, is online" for cpu in sorted((now - was) & set(before["present"]))]
    return found


def disable(sysroot: str, cores, method: str = "auto", origin: dict | None = None, files: SysFiles | None = None) -> dict:
    """One thread of each core that is online stays; see :func:`set_threads_per_core`."""
    return set_threads_per_core(sysroot, cores, 1, method, origin, files)


def enable(sysroot: str, cores, method: str = "auto", origin: dict | None = None, files: SysFiles | None = None, learned: list | None = None) -> dict:
    """The siblings of all cores that are online come up; those that were off on purpose in ``origin`` stay off.

    Off on purpose is a thread that was offline while other cores had more than one thread online. Arguments, result and errors as
    in :func:`set_threads_per_core`.
    """
    return _transaction(files or SysFiles(sysroot), cores, None, method, origin, learned)


def set_threads_per_core(
    sysroot: str, cores, threads: int, method: str = "auto", origin: dict | None = None, files: SysFiles | None = None, learned: list | None = None
) -> dict:
    """The first ``threads`` threads of each core that is online, as one transaction.

    Args:
        cores: sequence of CPU tuples, one a core, sorted by thread (``Topology.cores``), offline siblings included
        threads: threads per core; 1 keeps of each core the first thread that is online
        method: ``smt_control``, ``cpu_online`` (cpuN/online, CPU by CPU) or ``auto`` (the control where the kernel has it)
        origin: the state before the first change of this host: cores that were wholly off in it stay off
        learned: gets the cores (tuples) of CPUs whose place was not known and that had to come up for a moment to show it

    Returns:
        the state after the change

    Raises:
        StateError: when the host cannot have that state, or a write was refused; the state before is put back then
    """
    return _transaction(files or SysFiles(sysroot), cores, threads, method, origin, learned)


def predict(sysroot: str, cores, threads: int | None, method: str = "auto", origin: dict | None = None, files: SysFiles | None = None) -> dict:
    """The state that a change would lead to, as far as the topology tells, without writing. ``threads`` None means :func:`enable`.

    CPUs whose place is not known count as staying as they are. Raises StateError when the host cannot have that state.
    """
    files = files or SysFiles(sysroot)
    before = read(files=files)
    target = _target(before, _all_cores(cores, before), threads, method, origin)
    looks = _must_look_behind(before, _all_cores(cores, before), threads, origin)
    if reached(before, target) and not looks:
        return before
    online = (set(before["online"]) | target.online) - target.offline
    control = before["control"]
    if _control_is_written(before, target):
        # Only powerpc takes a number between 1 and the maximum (CONFIG_SMT_NUM_THREADS_DYNAMIC).
        control = target.writes[0 if os.uname().machine.startswith("ppc64") else -1]
    if looks:
        # Most often they are siblings that are wanted.
        placed = set().union(*map(set, _all_cores(cores, before)))
        online |= set(before["present"]) - placed
    per_core = [len(online.intersection(core)) for core in _all_cores(cores, before)]
    active = None if before["active"] is None else max([*per_core, 0]) > 1
    return {"control": control, "active": active, "online": sorted(online), "present": before["present"]}


def restore(sysroot: str, state: dict, files: SysFiles | None = None) -> list[str]:
    """Bring a host back to a state that :func:`read` gave, CPU by CPU where the control alone does not.

    Returns:
        the differences that could not be put back, each with its reason where the kernel gave one; empty when all is as before.

    Raises:
        StateError: only when the present state cannot be read at all, or ``state`` is not a state
    """
    files = files or SysFiles(sysroot)
    target = _exactly(state, read(files=files))
    refusals = []
    _apply(files, target, refusals.append)
    left = differences(state, read(files=files))
    reasons = sorted({str(refusal) for refusal in refusals})
    return [f"{line} ({'; '.join(reasons)})" for line in left] if reasons else left


def bring_back(sysroot: str, state: dict, files: SysFiles | None = None) -> dict:
    """As :func:`restore`, but whole or not at all: the result is the state after it. Raises StateError when the state before was put back."""
    files = files or SysFiles(sysroot)
    before = read(files=files)
    target = _exactly(state, before)

    def change():
        _apply(files, target, _refuse)
        return target

    return _whole_or_not_at_all(files, before, change)


def _exactly(state: dict, now: dict) -> Target:
    """The target that is a saved state, as far as its CPUs are still present."""
    check_state(state)
    present = set(now["present"])
    control = state["control"]
    if control in ("on", "off") or (control.isdigit() and int(control) > 1):
        writes, width = (control,), None
    elif control == "1":
        # A half-done off of 6.6 and later: the CPUs can be put back, the control's reading cannot.
        writes, width = ("on",), 2
    else:
        writes, width = (), 0
    online = frozenset(state["online"]) & present
    return Target(online, (frozenset(state["present"]) & present) - online, writes, width)


def _is_number(value) -> bool:
    """JSON's true is an int to Python, and no number to us."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_cpus(value) -> bool:
    """Whether ``value``, read from a file perhaps, is a list of CPU numbers."""
    return (
        isinstance(value, list)
        and len(value) <= MOST_CPUS
        and all(isinstance(cpu, int) and not isinstance(cpu, bool) and 0 <= cpu < MOST_CPUS for cpu in value)
    )


def check_state(state: dict) -> None:
    """Raises StateError when ``state``, read from a file perhaps, is not a state."""
    if not (isinstance(state, dict) and isinstance(state.get("control"), str) and is_cpus(state.get("online")) and is_cpus(state.get("present"))):
        raise StateError(f"not a saved SMT state: {state!r:.80}")


def reached(state: dict, target: Target) -> bool:
    """Whether nothing needs to be written."""
    online = set(state["online"])
    return target.online <= online and not target.offline & online and (not target.writes or _control_fits(state["control"], target.width, target.writes))


def _control_is_written(state: dict, target: Target) -> bool:
    """Whether the way to the target starts at the control: it has to, or the kernel may take a number of threads in one write."""
    if not target.writes or reached(state, target):
        return False
    return target.writes[0].isdigit() or not _control_fits(state["control"], target.width, target.writes)


def _control_fits(control: str, width: int | None, writes=()) -> bool:
    """Whether a reading of the control allows ``width`` threads per core; ``None`` asks for exactly the value that would be written."""
    if width == 0:
        return True
    if width is None:
        return control in writes
    if width == 1:
        return control in OFF
    # A reading of 1 is a half-done off (6.6+), whatever the number of threads online.
    return control == "on" or (control.isdigit() and int(control) >= width)


def _all_cores(cores, state: dict) -> list[tuple[int, ...]]:
    """The cores that hold a present CPU, and each online CPU without a known core as a core of its own."""
    present = set(state["present"])
    known = [tuple(cpu for cpu in core if cpu in present) for core in cores]
    placed = set().union(*map(set, known))
    return sorted([core for core in known if core] + [(cpu,) for cpu in state["online"] if cpu not in placed])


def _threads_of(core: tuple[int, ...], threads: int | None, reference: set, smt_was_on: bool) -> tuple[int, ...]:
    """Which threads of one core are to be online."""
    online = tuple(cpu for cpu in core if cpu in reference)
    if not online:
        return ()
    if threads == 1:
        return online[:1]
    if threads is None:
        return online if smt_was_on else core
    return core[:threads]


def _target(before: dict, cores: list, threads: int | None, method: str, origin: dict | None) -> Target:
    """The target of a change. Raises StateError when the host cannot have it."""
    if method not in METHODS:
        raise StateError(f"method {method} is not one of {', '.join(METHODS)}")
    control = before["control"]
    most = max(len(core) for core in cores)
    unplaced = set(before["present"]) - set().union(*map(set, cores))
    if threads is not None and threads < 1:
        raise StateError(f"{threads} threads per core cannot be had: the least is 1")
    if method == "smt_control" and control in WITHOUT_CONTROL:
        raise StateError(f"/{CONTROL}: {control}, so the method smt_control cannot be used here; use auto or cpu_online")
    if control == "forceoff" and threads != 1:
        raise StateError(f"/{CONTROL}: forceoff is final until a reboot without nosmt=force: siblings cannot be turned on at run time")
    if most == 1 and threads != 1 and (not unplaced or control == "notsupported"):
        raise StateError(f"no core has a second thread (smt/control: {control}): there is no SMT here, or it is off in firmware")
    if threads is not None and threads > most and not unplaced:
        raise StateError(f"{threads} threads per core cannot be had: the cores here have at most {most}")

    origin = origin or before
    was_online, is_online = set(origin["online"]), set(before["online"])
    smt_was_on = smt_in_use(origin["online"], cores)
    online = set()
    width = 1
    for core in cores:
        reference = was_online if was_online.intersection(core) else is_online
        kept = _threads_of(core, threads, reference, smt_was_on)
        online.update(kept)
        width = max([width] + [core.index(cpu) + 1 for cpu in kept])
    offline = set().union(*map(set, cores)) - online
    writes, width = _control_writes(control, method, threads, width, most)
    return Target(frozenset(online), frozenset(offline), writes, width)


def smt_in_use(online, cores) -> bool:
    """Whether a core has more than one thread online: then a thread that is offline is off on purpose."""
    return any(len(set(online).intersection(core)) > 1 for core in cores)


def _control_writes(control: str, method: str, threads: int | None, width: int, most: int) -> tuple[tuple[str, ...], int]:
    """Which values of the control would allow ``width`` threads per core, the best first, and what it has to allow."""
    if control in WITHOUT_CONTROL:
        return (), 0
    if threads == 1 and width == 1 and method != "cpu_online":
        return ("off",), 1
    if threads == 1 and width == 1 and control != "1":
        return (), 0
    # A control that is off, or numeric and too low, refuses siblings: whatever the method, it has to be raised first.
    allowed = max(width, 2)
    if threads is None or threads >= most or method == "cpu_online" or width > threads:
        return ("on",), allowed
    if method == "smt_control":
        return (str(threads),), allowed
    return (str(threads), "on"), allowed


def _siblings_now(files: SysFiles, cpus) -> set[tuple[int, ...]]:
    """Cores of those of ``cpus`` that are online, from their topology folders (``core_cpus_list`` since 5.4, else ``thread_siblings_list``)."""
    cores = set()
    for cpu in cpus:
        folder = f"{CPU_DIRECTORY}/cpu{cpu}/topology/"
        text = files.read(folder + "core_cpus_list") or files.read(folder + "thread_siblings_list")
        if text:
            cores.add(tuple(parse_cpulist(text, "/" + folder)))
    return cores


def _transaction(files: SysFiles, cores, threads: int | None, method: str, origin: dict | None, learned: list | None) -> dict:
    before = read(files=files)
    placed = _all_cores(cores, before)
    target = _target(before, placed, threads, method, origin)
    looks = _must_look_behind(before, placed, threads, origin)
    if reached(before, target) and not looks:
        return before

    def change():
        goal = target
        if looks:
            found = _look_behind(files, before, placed)
            goal = _target(before, found, threads, method, origin)
            if learned is not None:
                learned.extend(found)
        _apply(files, goal, _refuse)
        return goal

    return _whole_or_not_at_all(files, before, change)


def _whole_or_not_at_all(files: SysFiles, before: dict, change) -> dict:
    """Run ``change() -> Target`` and see that the target is reached; whatever goes wrong, the state before is put back."""
    try:
        target = change()
        after = read(files=files)
        _verify(after, target)
        return after
    except BaseException as trouble:
        left = _put_back(files, before)
        outcome = f"could not be put back: {'; '.join(left)}" if left else "the state before is back"
        if isinstance(trouble, StateError):
            raise StateError(f"{trouble}; {outcome}") from trouble
        raise


def _look_behind(files: SysFiles, before: dict, placed: list) -> list[tuple[int, ...]]:
    """All cores, once the CPUs without a known place are up: they have no topology folder while they are offline, and no map was saved."""
    known = set().union(*map(set, placed))
    unplaced = set(before["present"]) - known
    if before["control"] not in ("on", *WITHOUT_CONTROL):
        _write_control(files, ("on",), _refuse)
    for cpu in sorted(unplaced - set(read(files=files)["online"])):
        _switch_cpu(files, cpu, True, _refuse)
    return join_cores(placed, _siblings_now(files, unplaced))


def join_cores(cores, more) -> list[tuple[int, ...]]:
    """Cores from two looks at one machine, of which each may know threads that the other does not."""
    joined = [set(core) for core in cores]
    for core in more:
        fits = [known for known in joined if known.intersection(core)]
        joined = [known for known in joined if known not in fits] + [set(core).union(*fits)]
    return sorted(tuple(sorted(core)) for core in joined)


def _put_back(files: SysFiles, before: dict) -> list[str]:
    try:
        return restore(files.sysroot, before, files)
    except StateError as trouble:
        return [str(trouble)]


def _must_look_behind(before: dict, cores: list, threads: int | None, origin: dict | None) -> bool:
    """Whether CPUs of unknown place must come up before it can be said which of them are wanted."""
    unplaced = set(before["present"]) - set().union(*map(set, cores))
    if not unplaced or threads == 1:
        return False
    # Where SMT is in use and its control allows siblings, a CPU that is offline is so on purpose, and enable leaves it.
    return threads is not None or before["control"] not in ("on", *WITHOUT_CONTROL) or not smt_in_use((origin or before)["online"], cores)


def _refuse(trouble: StateError) -> None:
    raise trouble


def _apply(files: SysFiles, target: Target, on_refusal) -> None:
    """Control first, then what it left, CPU by CPU: up before down, so that there is never less than is needed. ``on_refusal`` gets a StateError."""
    state = read(files=files)
    if _control_is_written(state, target):
        _write_control(files, target.writes, on_refusal)
        state = read(files=files)
    for cpu in sorted(target.online - set(state["online"])):
        _switch_cpu(files, cpu, True, on_refusal)
    for cpu in sorted(target.offline & set(state["online"])):
        _switch_cpu(files, cpu, False, on_refusal)


def _write_control(files: SysFiles, values, on_refusal) -> None:
    """Write the first of ``values`` that the kernel takes, and see to it that it was really done."""
    before = read(files=files)
    for value in values:
        try:
            files.write(CONTROL, value)
            if value in OFF and read(files=files)["control"] not in OFF:
                # After a half-done off, 6.6 and later take a second off for done already: only on leads out of it.
                files.write(CONTROL, "on")
                files.write(CONTROL, value)
        except OSError as trouble:
            if trouble.errno == errno.EINVAL and value != values[-1]:
                continue
            on_refusal(_control_refused(files, before, value, trouble))
        return


def _control_refused(files: SysFiles, before: dict, value: str, trouble: OSError) -> StateError:
    """The kernel gives one errno for the whole write and stops at the CPU that refused: name it where it can be told."""
    name = errno.errorcode.get(trouble.errno or 0, str(trouble.errno))
    after = read(files=files)
    went = set(before["online"]) ^ set(after["online"])
    culprit = ""
    if name not in ("EPERM", "ENODEV", "EROFS", "EACCES", "EINVAL", "ENOENT"):
        # for_each_online_cpu and for_each_present_cpu go upwards, so the first sibling in the way is the one that refused.
        candidates = after["online"] if value in OFF else [cpu for cpu in after["present"] if cpu not in after["online"]]
        siblings = [cpu for cpu in candidates if not _is_first_thread(files, cpu) and cpu > max(went or [-1])]
        culprit = f"CPU {siblings[0]}: " if siblings else ""
    return StateError(f"{culprit}{name}: {_meaning(name, after)} (writing {value} to /{CONTROL})")


def _is_first_thread(files: SysFiles, cpu: int) -> bool:
    return any(core[0] == cpu for core in _siblings_now(files, [cpu]))


def _meaning(name: str, state: dict, isolated: str | None = None) -> str:
    if name == "EBUSY" and len(state["online"]) == 1:
        return "it is the last CPU that is online"
    if name == "EBUSY" and isolated:
        return f"SCHED_DEADLINE bandwidth would not fit, or it is the last housekeeping CPU (isolated: {isolated!s:.60})"
    return MEANINGS.get(name, "the kernel refused")


def _switch_cpu(files: SysFiles, cpu: int, online: bool, on_refusal) -> None:
    path = f"{CPU_DIRECTORY}/cpu{cpu}/online"
    try:
        files.write(path, "1" if online else "0")
    except OSError as trouble:
        name = errno.errorcode.get(trouble.errno or 0, str(trouble.errno))
        isolated = files.read(CPU_DIRECTORY + "/isolated")
        meaning = _meaning(name, read(files=files), isolated)
        on_refusal(StateError(f"CPU {cpu}: {name}: {meaning} (writing {online} to /{path})"))


def _verify(after: dict, target: Target) -> None:
    """Raises StateError when the kernel took the writes and the host is not where it should be."""
    if reached(after, target):
        return
    online = set(after["online"])
    wrong = [f"CPU {cpu} is offline" for cpu in sorted(target.online - online)]
    wrong += [f"CPU {cpu} is online" for cpu in sorted(target.offline & online)]
    if not wrong:
        wrong = [f"smt/control reads {after['control']}"]
    raise StateError(f"the kernel took the writes, but afterwards {', '.join(wrong)}")
