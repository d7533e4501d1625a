# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The transaction that brings the SMT state of a host from one to another.

Kernel behaviour is from Documentation/ABI/testing/sysfs-devices-system-cpu and kernel/cpu.c (4.19 to 6.17). The running
kernel decides: every write is read back.
"""

import errno
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import tasks as host_tasks
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.state import (
    CONTROL,
    CPU_DIRECTORY,
    FORCE_OFF,
    NOT_SUPPORTED,
    OFF,
    ON,
    WITHOUT_CONTROL,
    Cores,
    Only,
    State,
    StateError,
)

METHODS = ("auto", "smt_control", "cpu_online")
# Refusals that are named where the kernel refused many CPUs.
MAX_REASONS = 10
# What an errno means when a CPU is brought up or down, or the control is written (kernel/cpu.c, drivers/base/cpu.c).
MEANINGS = {
    "EPERM": (
        "the kernel does not permit it (siblings are refused while smt/control is off, forceoff is final until a"
        " reboot, or this is not root)"
    ),
    "EACCES": "no permission to write (not root, or a container or security policy forbids it)",
    "EBUSY": (
        "SCHED_DEADLINE bandwidth would not fit, CPU hotplug is held by a suspend, or the CPU serves a channel of"
        " Hyper-V's VMBus (/sys/bus/vmbus/devices/*/channels/*/cpu)"
    ),
    "EOPNOTSUPP": "the platform forbids taking this CPU offline or online (TDX, MADT wakeup)",
    "EINVAL": "the kernel does not accept this value, or the CPU is not present",
    "ENODEV": "the kernel has no SMT to control here (no SMT, or it is off in firmware)",
    "ENOENT": "the kernel has no file for it: this CPU cannot be hot-plugged",
    "ENOSPC": "the other CPUs have no free interrupt vectors",
    "ENOMEM": "the kernel is out of memory",
    "EROFS": "sysfs is mounted read-only, as in a container: change the machine that runs the container",
    "EIO": "the CPU did not come up or go down",
}


class Target(t.NamedTuple):
    """The goal of a transaction.

    A CPU in neither set may stay as it is. ``writes`` are control values to try in this order (the next only after
    EINVAL); empty leaves the control as it is. ``width`` is how many threads per core the control has to allow; 1: it
    has to read off; 0: it may read anything; None: it has to read ``writes``.
    """

    online: "frozenset[int]"
    offline: "frozenset[int]"
    writes: "tuple[str, ...]"
    width: "int | None"


_OnRefusal = t.Callable[[StateError], None]
_Learned = t.Optional[t.List[t.Tuple[int, ...]]]


class _Request(t.NamedTuple):
    """What is asked for: the arguments of :func:`set_threads_per_core`; ``threads`` is None for :func:`enable`."""

    threads: "int | None"
    method: str
    origin: "State | None"
    only: "frozenset[int] | None"


def enable(
    sysroot: str,
    cores: Cores,
    method: str = "auto",
    origin: "State | None" = None,
    files: "KernelFiles | None" = None,
    learned: _Learned = None,
) -> State:
    """Bring all siblings of the cores in use online, except those that were off on purpose in ``origin``.

    A thread was off on purpose if it was offline while other cores had more than one thread online. Arguments, result
    and errors are those of :func:`set_threads_per_core`.
    """
    return _transaction(files or KernelFiles(sysroot), cores, _Request(None, method, origin, None), learned)


def set_threads_per_core(
    sysroot: str,
    cores: Cores,
    threads: int,
    method: str = "auto",
    origin: "State | None" = None,
    files: "KernelFiles | None" = None,
    learned: _Learned = None,
    only: Only = None,
) -> State:
    """Keep the first ``threads`` threads of each core in use online, as one transaction.

    With ``only`` the state of the whole host is requested too, whatever it was before: every other core gets the
    threads that :func:`enable` would give it. The control cannot be off then, so the siblings go offline one CPU at a
    time.

    Args:
        sysroot: root of the host's files
        cores: CPUs of each core, sorted by thread (``Topology.cores``), with offline siblings
        threads: threads per core; 1 keeps the first thread of each core that is online
        method: ``smt_control``, ``cpu_online`` (cpuN/online, one CPU at a time) or ``auto`` (the control if the kernel
            has it)
        origin: the state before the first change of this host: cores that were completely offline in it stay offline
        files: the host's files, instead of those below ``sysroot``
        learned: list that receives the cores of CPUs whose core was unknown and that were brought online to find it out
        only: CPUs; the cores that have one of them get ``threads`` threads. None, or CPUs of all cores in use: the
            whole machine.

    Returns:
        the state after the change

    Raises:
        StateError: when the host cannot have that state, or the kernel refused a write; the previous state is restored
            then.
    """
    return _transaction(files or KernelFiles(sysroot), cores, _Request(threads, method, origin, only), learned)


def takes_numbers(machine: str) -> bool:
    """Return whether the kernel of an architecture, named as uname(2) does,
    takes any number of threads up to the maximum.
    """
    # CONFIG_SMT_NUM_THREADS_DYNAMIC, which only powerpc has.
    return machine.startswith("ppc64")


def predict(
    before: State,
    cores: Cores,
    threads: "int | None",
    method: str = "auto",
    origin: "State | None" = None,
    numeric: bool = False,
    only: Only = None,
) -> State:
    """Return the state that a change would lead to, as far as the topology is known. A pure function.

    Args:
        before: the present state
        cores: CPUs of each core, sorted by thread, with offline siblings
        threads: threads per core; None predicts :func:`enable`
        method: as for :func:`set_threads_per_core`
        origin: as for :func:`set_threads_per_core`
        numeric: whether the control takes a number of threads, see :func:`takes_numbers`
        only: as for :func:`set_threads_per_core`

    Raises:
        StateError: when the host cannot have that state.
    """
    all_cores = _all_cores(cores, before)
    request = _Request(threads, method, origin, only)
    target = _target(before, all_cores, request)
    explores = _must_explore(before, all_cores, request)
    if reached(before, target) and not explores:
        return before
    online = (set(before["online"]) | target.online) - target.offline
    control = before["control"]
    if _control_is_written(before, target):
        control = target.writes[0 if numeric else -1]
    if explores:
        # CPUs without a known core. Usually they are siblings that come online.
        online |= set(before["present"]) - smt_state.cpus_of(all_cores)
    per_core = [len(online.intersection(core)) for core in all_cores]
    active = None if before["active"] is None else max([*per_core, 0]) > 1
    return {"control": control, "active": active, "online": sorted(online), "present": before["present"]}


def restore(sysroot: str, state: State, files: "KernelFiles | None" = None) -> "list[str]":
    """Restore a state from :func:`read`, one CPU at a time where the control alone is not enough.

    Args:
        sysroot: root of the host's files
        state: the state to restore, for example from a file
        files: the host's files, instead of those below ``sysroot``

    Returns:
        the differences that remain, each with the kernel's reason if it gave one; empty when the state is restored

    Raises:
        StateError: only when the present state cannot be read, or ``state`` is not a valid state.
    """
    files = files or KernelFiles(sysroot)
    target = _exactly(state, smt_state.read(files=files))
    refusals: list[StateError] = []
    _apply(files, target, refusals.append)
    left = smt_state.differences(state, smt_state.read(files=files))
    reasons = list(dict.fromkeys(map(str, refusals)))
    reasons[MAX_REASONS:] = [f"and {len(reasons) - MAX_REASONS} more"] if len(reasons) > MAX_REASONS else []
    return [f"{line} ({'; '.join(reasons)})" for line in left] if reasons else left


def bring_back(sysroot: str, state: State, files: "KernelFiles | None" = None) -> State:
    """Restore a state as :func:`restore`, but completely or not at all, and return the state after it.

    Raises:
        StateError: when the kernel refused a write; the previous state is restored then.
    """
    files = files or KernelFiles(sysroot)
    before = smt_state.read(files=files)
    target = _exactly(state, before)

    def change() -> Target:
        _apply(files, target, _refuse)
        return target

    return _all_or_nothing(files, before, change)


def _exactly(state: State, now: State) -> Target:
    """Return a saved state as a target, without CPUs that are no longer present."""
    try:
        smt_state.check(state)
    except ValueError as error:
        raise StateError(str(error)) from error
    present = set(now["present"])
    control = state["control"]
    online = frozenset(state["online"]) & present
    offline = (frozenset(state["present"]) & present) - online
    if control in ("on", "off") or (control.isdigit() and int(control) > 1):
        return Target(online, offline, (control,), None)
    if control == "1":
        # An incomplete off of 6.6 and later: the CPUs can be restored, but the control cannot read 1 again.
        return Target(online, offline, ("on",), 2)
    return Target(online, offline, (), 0)


def reached(state: State, target: Target) -> bool:
    """Return whether the target is reached, so that nothing has to be written."""
    online = set(state["online"])
    return (
        target.online <= online
        and not target.offline & online
        and (not target.writes or _control_fits(state["control"], target.width, target.writes))
    )


def _control_is_written(state: State, target: Target) -> bool:
    """Return whether the control is written first: because it has to be,
    or because the kernel may set a number of threads with one write.
    """
    if not target.writes or reached(state, target):
        return False
    return target.writes[0].isdigit() or not _control_fits(state["control"], target.width, target.writes)


def _control_fits(control: str, width: "int | None", writes: "tuple[str, ...]" = ()) -> bool:
    """Return whether a control that reads ``control`` allows ``width`` threads per core.

    With None it has to be a value in ``writes``.
    """
    if width == 0:
        return True
    if width is None:
        return control in writes
    if width == 1:
        return control in OFF
    # 1 is an incomplete off (6.6 and later), for any number of threads online.
    return control == "on" or (control.isdigit() and int(control) >= width)


def _all_cores(cores: Cores, state: State) -> "list[tuple[int, ...]]":
    """Return the cores that hold a present CPU, and each online CPU without a known core as a core of its own."""
    present = set(state["present"])
    known = [tuple(cpu for cpu in core if cpu in present) for core in cores]
    placed = smt_state.cpus_of(known)
    return sorted([core for core in known if core] + [(cpu,) for cpu in state["online"] if cpu not in placed])


def _threads_of(
    core: "tuple[int, ...]", threads: "int | None", reference: "set[int]", smt_was_on: bool
) -> "tuple[int, ...]":
    """Return the threads of one core that have to be online."""
    online = tuple(cpu for cpu in core if cpu in reference)
    if not online:
        return ()
    if threads == 1:
        return online[:1]
    if threads is None:
        return online if smt_was_on else core
    return core[:threads]


def _part(before: State, cores: Cores, request: _Request) -> Only:
    """Return the CPUs that name the part of the machine to change, or None for the whole machine."""
    online = {*before["online"], *(request.origin or before)["online"]}
    return None if smt_state.names_all(request.only, cores, online.intersection(before["present"])) else request.only


def _check_possible(before: State, cores: "list[tuple[int, ...]]", request: _Request, part: Only) -> None:
    """Check what can be known beforehand; raise StateError when the host cannot have the requested state."""
    threads, method = request.threads, request.method
    if method not in METHODS:
        raise StateError(f"method {method} is not one of {', '.join(METHODS)}")
    control = before["control"]
    most = max(len(core) for core in cores)
    unplaced = set(before["present"]) - smt_state.cpus_of(cores)
    if threads is not None and threads < 1:
        raise StateError(f"{threads} threads per core are not possible: the minimum is 1")
    if method == "smt_control" and control in WITHOUT_CONTROL:
        raise StateError(
            f"/{CONTROL}: {control}, so the method smt_control cannot be used here; use auto or cpu_online"
        )
    if method == "smt_control" and part is not None:
        raise StateError(
            f"the method smt_control switches the siblings of all cores (/{CONTROL}), not those of some: use the method"
            " auto or cpu_online"
        )
    if control == FORCE_OFF and (threads != 1 or part is not None):
        raise StateError(
            f"/{CONTROL}: forceoff is final until a reboot without nosmt=force: siblings cannot be turned on at run"
            " time"
        )
    if most == 1 and threads != 1 and (not unplaced or control == NOT_SUPPORTED):
        raise StateError(
            f"no core has a second thread (smt/control: {control}): there is no SMT here, or it is off in firmware"
        )
    if threads is not None and threads > most and not unplaced:
        raise StateError(f"{threads} threads per core are not possible: the cores of this host have at most {most}")


def _target(before: State, cores: "list[tuple[int, ...]]", request: _Request) -> Target:
    """Return the target of a change; raise StateError when the host cannot have that state."""
    part = _part(before, cores, request)
    _check_possible(before, cores, request, part)
    origin = request.origin or before
    was_online, is_online = set(origin["online"]), set(before["online"])
    smt_was_on = smt_state.smt_in_use(origin["online"], cores)
    online: set[int] = set()
    width = 1
    for core in cores:
        reference = was_online if was_online.intersection(core) else is_online
        kept = _threads_of(
            core, request.threads if part is None or not part.isdisjoint(core) else None, reference, smt_was_on
        )
        online.update(kept)
        width = max([width] + [core.index(cpu) + 1 for cpu in kept])
    offline = smt_state.cpus_of(cores) - online
    most = max(len(core) for core in cores)
    # A part of the machine: the control allows all threads, as for enable, and each CPU is switched.
    threads, method = (request.threads, request.method) if part is None else (None, "cpu_online")
    writes, width = _control_writes(before["control"], method, threads, width, most)
    return Target(frozenset(online), frozenset(offline), writes, width)


def _control_writes(
    control: str, method: str, threads: "int | None", width: int, most: int
) -> "tuple[tuple[str, ...], int]":
    """Return the values of the control that allow ``width`` threads per core, the best first,
    and the threads per core that it has to allow.
    """
    if control in WITHOUT_CONTROL:
        return (), 0
    if threads == 1 and width == 1 and method != "cpu_online":
        return ("off",), 1
    if threads == 1 and width == 1 and control != "1":
        return (), 0
    # A control that is off, or a number that is too low, refuses siblings. It has to be raised first, with any method.
    allowed = max(width, 2)
    if threads is None or threads >= most or method == "cpu_online" or width > threads:
        return ("on",), allowed
    if method == "smt_control":
        return (str(threads),), allowed
    return (str(threads), "on"), allowed


def _siblings_now(files: KernelFiles, cpus: "t.Iterable[int]") -> "set[tuple[int, ...]]":
    """Return the cores of the CPUs that are online, from their topology directories (``core_cpus_list`` since 5.4,
    else ``thread_siblings_list``).
    """
    cores: set[tuple[int, ...]] = set()
    for cpu in cpus:
        folder = f"{CPU_DIRECTORY}/cpu{cpu}/topology/"
        text = files.read(folder + "core_cpus_list") or files.read(folder + "thread_siblings_list")
        if text:
            cores.add(tuple(smt_state.parse(text, "/" + folder)))
    return cores


def _transaction(files: KernelFiles, cores: Cores, request: _Request, learned: _Learned) -> State:
    before = smt_state.read(files=files)
    placed = _all_cores(cores, before)
    target = _target(before, placed, request)
    explores = _must_explore(before, placed, request)
    if reached(before, target) and not explores:
        return before

    def change() -> Target:
        goal = target
        # Which CPUs go offline after a look at unknown cores is not known before.
        _permitted(files, target, _refuse, explores and request.threads is not None)
        if explores or _takes_too_many(files, target, request.method):
            explored = _explore(files, before, placed)
            goal = _target(before, explored, request)
            if learned is not None:
                learned.extend(explored)
        _apply(files, goal, _refuse)
        return goal

    return _all_or_nothing(files, before, change)


def _takes_too_many(files: KernelFiles, target: Target, method: str) -> bool:
    """Write the control if it has to be off, and return whether the kernel took a thread offline that has to stay.

    It does where the first thread of a core is offline (topology_is_primary_thread): the core of that one, such as CPU
    0, was not known.
    """
    if target.writes != ("off",):
        return False
    before = target.online.intersection(smt_state.read(files=files)["online"])
    _apply_control(files, target, _refuse)
    taken = before - set(smt_state.read(files=files)["online"])
    if taken and method == "smt_control":
        raise StateError(
            f"writing off to /{CONTROL} also takes the only threads of some cores offline (CPUs"
            f" {cpulist.render(taken)}), because the first threads of these cores are offline: use the method auto or"
            " cpu_online"
        )
    return bool(taken)


def _all_or_nothing(files: KernelFiles, before: State, change: "t.Callable[[], Target]") -> State:
    """Run ``change`` and check that its target is reached. Restore the previous state after any error."""
    try:
        target = change()
        after = smt_state.read(files=files)
        _verify(after, target)
        return after
    except BaseException as error:
        left = _restore_after_error(files, before)
        outcome = (
            f"the previous state could not be restored: {'; '.join(left)}"
            if left
            else "the previous state was restored"
        )
        if isinstance(error, StateError):
            raise StateError(f"{error}; {outcome}") from error
        raise


def _explore(files: KernelFiles, before: State, placed: "list[tuple[int, ...]]") -> "list[tuple[int, ...]]":
    """Bring the CPUs without a known core online and return all cores.

    An offline CPU has no topology directory, and no topology cache was saved.
    """
    unplaced = set(before["present"]) - smt_state.cpus_of(placed)
    if smt_state.read(files=files)["control"] not in (ON, *WITHOUT_CONTROL):
        _write_control(files, ("on",), _refuse)
    # With those that an off took: a CPU's siblings are known while they are online.
    for cpu in sorted((unplaced | set(before["online"])) - set(smt_state.read(files=files)["online"])):
        _switch_cpu(files, cpu, True, _refuse)
    return smt_state.join_cores(placed, _siblings_now(files, unplaced))


def _restore_after_error(files: KernelFiles, before: State) -> "list[str]":
    try:
        return restore(files.sysroot, before, files)
    except StateError as error:
        return [str(error)]


def _must_explore(before: State, cores: "list[tuple[int, ...]]", request: _Request) -> bool:
    """Return whether CPUs without a known core have to come online first,
    to find out which of them have to stay online.
    """
    unplaced = set(before["present"]) - smt_state.cpus_of(cores)
    one_thread = request.threads == 1
    if not unplaced or (one_thread and (before["control"] == NOT_SUPPORTED or _part(before, cores, request) is None)):
        return False
    if request.threads is not None and not one_thread:
        return True
    # If SMT is in use and the control allows siblings, an offline CPU is off on purpose, and enable leaves it offline,
    # as does a change of other cores.
    return before["control"] not in (ON, *WITHOUT_CONTROL) or not smt_state.smt_in_use(
        (request.origin or before)["online"], cores
    )


def _refuse(error: StateError) -> None:
    raise error


def _apply(files: KernelFiles, target: Target, on_refusal: _OnRefusal) -> None:
    """Write the control, then switch the remaining CPUs one at a time: first online, then offline,
    so that there are never too few CPUs.
    """
    target = _permitted(files, target, on_refusal)
    _apply_control(files, target, on_refusal)
    state = smt_state.read(files=files)
    for cpu in sorted(target.online - set(state["online"])):
        _switch_cpu(files, cpu, True, on_refusal)
    for cpu in sorted(target.offline & set(state["online"])):
        _switch_cpu(files, cpu, False, on_refusal)


def _permitted(files: KernelFiles, target: Target, on_refusal: _OnRefusal, takes_some: bool = False) -> Target:
    """Return a target, without what takes CPUs offline where that would end the host, which is refused: whatever takes
    them offline at run time comes by here, such as the rollback of a change that brought them online.
    """
    state = smt_state.read(files=files)
    turns_off = target.writes[:1] == ("off",) and _control_is_written(state, target)
    if takes_some or turns_off or not target.offline.isdisjoint(state["online"]):
        reason = host_tasks.keeps_cpus_online(files)
        if reason is not None:
            on_refusal(StateError(reason))
            return target._replace(offline=frozenset(), writes=target.writes if target.writes == (ON,) else ())
    return target


def _apply_control(files: KernelFiles, target: Target, on_refusal: _OnRefusal) -> None:
    if _control_is_written(smt_state.read(files=files), target):
        _write_control(files, target.writes, on_refusal)


def _write_control(files: KernelFiles, values: "tuple[str, ...]", on_refusal: _OnRefusal) -> None:
    """Write the first of ``values`` that the kernel accepts. Repeat an off that the kernel did not complete."""
    before = smt_state.read(files=files)
    for value in values:
        try:
            files.write(CONTROL, value)
            if value in OFF and smt_state.read(files=files)["control"] not in OFF:
                # After an incomplete off, 6.6 and later ignore a second off. Only on resets the control.
                files.write(CONTROL, "on")
                files.write(CONTROL, value)
        except OSError as error:
            if error.errno == errno.EINVAL and value != values[-1]:
                continue
            on_refusal(_control_refused(files, before, value, error))
        return


def _control_refused(files: KernelFiles, before: State, value: str, error: OSError) -> StateError:
    """Return the error of a refused write.

    The kernel returns one errno for all CPUs and stops at the one that refused: name that CPU if possible.
    """
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    after = smt_state.read(files=files)
    switched = set(before["online"]) ^ set(after["online"])
    refusing = ""
    if name not in ("EPERM", "ENODEV", "EROFS", "EACCES", "EINVAL", "ENOENT"):
        # for_each_online_cpu and for_each_present_cpu ascend, so the first sibling that was not switched is the one
        # that refused.
        candidates = (
            after["online"] if value in OFF else [cpu for cpu in after["present"] if cpu not in after["online"]]
        )
        siblings = [cpu for cpu in candidates if not _is_first_thread(files, cpu) and cpu > max(switched or [-1])]
        refusing = f"CPU {siblings[0]}: " if siblings else ""
    return StateError(f"{refusing}{name}: {_meaning(name, after)} (writing {value} to /{CONTROL})")


def _is_first_thread(files: KernelFiles, cpu: int) -> bool:
    return any(core[0] == cpu for core in _siblings_now(files, [cpu]))


def _meaning(name: str, state: State, isolated: "str | None" = None) -> str:
    if name == "EBUSY" and len(state["online"]) == 1:
        return "it is the last online CPU"
    if name == "EBUSY" and isolated:
        return (
            f"SCHED_DEADLINE bandwidth would not fit, or it is the last housekeeping CPU (isolated: {isolated!s:.60})"
        )
    return MEANINGS.get(name, "the kernel refused")


def _switch_cpu(files: KernelFiles, cpu: int, online: bool, on_refusal: _OnRefusal) -> None:
    path = f"{CPU_DIRECTORY}/cpu{cpu}/online"
    try:
        files.write(path, "1" if online else "0")
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, str(error.errno))
        isolated = files.read(CPU_DIRECTORY + "/isolated")
        meaning = _meaning(name, smt_state.read(files=files), isolated)
        on_refusal(StateError(f"CPU {cpu}: {name}: {meaning} (writing {int(online)} to /{path})"))


def _verify(after: State, target: Target) -> None:
    """Check the state after a change; raise StateError when the kernel accepted all writes,
    but the target is not reached.
    """
    if reached(after, target):
        return
    online = set(after["online"])
    wrong = smt_state.cpu_sentences(target.online - online, "{are} offline") + smt_state.cpu_sentences(
        target.offline & online, "{are} online"
    )
    if not wrong:
        wrong = [f"smt/control reads {after['control']}"]
    raise StateError(f"the kernel accepted the writes, but afterwards {', '.join(wrong)}")
