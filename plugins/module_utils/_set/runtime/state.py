# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The SMT state of a host as data.

A *state* is plain JSON data, see :class:`State`.

Kernel behaviour is from Documentation/ABI/testing/sysfs-devices-system-cpu and kernel/cpu.c (4.19 to 6.17). The running
kernel decides: every write is read back.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.kernel_files import KernelFiles
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import seen_cpus
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.errors import SmtError

CPU_DIRECTORY = "sys/devices/system/cpu"
CONTROL = CPU_DIRECTORY + "/smt/control"
ACTIVE = CPU_DIRECTORY + "/smt/active"

Cores = t.Iterable[t.Sequence[int]]
"""CPUs of each core, sorted by thread."""

# What the control reads, beside a number of threads per core (6.6 and later); ABSENT stands for a kernel without the
# file.
ON, FORCE_OFF, NOT_SUPPORTED, ABSENT = "on", "forceoff", "notsupported", "absent"
OFF = ("off", FORCE_OFF)
WITHOUT_CONTROL = (ABSENT, NOT_SUPPORTED, "notimplemented")


class State(TypedDict):
    """The SMT state of a host.

    ``control`` is what ``/sys/devices/system/cpu/smt/control`` reads, ``absent`` if the kernel has no such file.
    ``active`` is what smt/active reads, None if the kernel has no such file. ``online`` and ``present`` are sorted CPU
    numbers.
    """

    control: str
    active: "bool | None"
    online: "list[int]"
    present: "list[int]"


class StateError(SmtError):
    """The SMT state cannot be read or changed.

    The text names the CPU or file, the reason, and whether the previous state was restored.
    """


Only = t.Optional[t.FrozenSet[int]]


def is_switchable(control: str) -> bool:
    """Return whether the kernel can switch SMT when smt/control reads ``control``, as far as that value shows."""
    return control in (ON, *OFF) or control.isdigit()


def parse(text: str, where: str) -> "list[int]":
    """Return the sorted CPUs of a kernel list; raise StateError naming the file ``where`` when it is not valid."""
    try:
        return list(cpulist.parse(text))
    except cpulist.CpuListError as error:
        raise StateError(f"{where}: {error}") from error


def read(sysroot: str = "/", files: "KernelFiles | None" = None) -> State:
    """Return the state of a host, from ``files`` or the files below ``sysroot``;
    raise StateError when the kernel does not show which CPUs are online.
    """
    files = files or KernelFiles(sysroot)
    active = {"1": True, "0": False}.get(files.read(ACTIVE) or "")
    online, present = (
        parse(files.read(f"{CPU_DIRECTORY}/{name}") or "", f"/{CPU_DIRECTORY}/{name}") for name in ("online", "present")
    )
    state = of_cpus(files.read(CONTROL), active, online, present or online)
    gone = seen_cpus.unavailable(files, set(state["present"]).difference(state["online"]))
    return {**state, "present": [cpu for cpu in state["present"] if cpu not in gone]}


def of_cpus(
    control: "str | None", active: "bool | None", online: "t.Sequence[int]", present: "t.Sequence[int]"
) -> State:
    """Return a state from what the kernel's files read; None for a missing file.

    Args:
        control: of smt/control
        active: of smt/active
        online: the CPUs that are online
        present: the CPUs that are there

    Raises:
        StateError: the kernel does not show which CPUs are online.
    """
    if not online:
        raise StateError(f"/{CPU_DIRECTORY}/online: missing or empty, so the state of the CPUs is unknown")
    return {
        "control": (control or ABSENT)[:32],
        "active": active,
        "online": list(online),
        "present": list(present),
    }


def differences(before: State, after: State) -> "list[str]":
    """Return how ``after`` differs from ``before``, one sentence for each kind of difference."""
    sentences = []
    if before["control"] != after["control"]:
        sentences.append(f"smt/control was {before['control']}, is {after['control']}")
    was, now = set(before["online"]), set(after["online"])
    present = set(after["present"])
    sentences += cpu_sentences((was - now) & present, "{was} online, {are} offline")
    sentences += cpu_sentences(was - now - present, "{was} online, {are} no longer present")
    return sentences + cpu_sentences((now - was) & set(before["present"]), "{was} offline, {are} online")


def cpu_sentences(cpus: "t.Collection[int]", sentence: str) -> "list[str]":
    """Return a sentence about CPUs, however many they are, or nothing where there are none.

    Args:
        cpus: CPU numbers
        sentence: what follows them, with the verbs ``{was}`` and ``{are}``
    """
    if not cpus:
        return []
    is_single = len(cpus) == 1
    verbs = {"was": "was", "are": "is"} if is_single else {"was": "were", "are": "are"}
    return [f"CPU{'' if is_single else 's'} {cpulist.render(cpus)} {sentence.format(**verbs)}"]


def check(state: object) -> None:
    """Check a state, for example from a file; raise ValueError when ``state`` is not a valid state."""
    if not (
        isinstance(state, dict)
        and isinstance(state.get("control"), str)
        and ("active" in state and isinstance(state["active"], (bool, type(None))))
        and cpulist.is_cpus(state.get("online"))
        and cpulist.is_cpus(state.get("present"))
    ):
        raise ValueError(f"not a saved SMT state: {state!r:.80}")


def cpus_of(cores: Cores) -> "set[int]":
    """Return the CPUs of all cores."""
    return {cpu for core in cores for cpu in core}


def names_all(only: Only, cores: Cores, online: "t.Iterable[int]") -> bool:
    """Return whether ``only`` has a CPU of each core that has one of the CPUs ``online``, or is None: the whole
    machine. An unknown core is one of its own.
    """
    if only is None:
        return True
    left = set(online) - only
    for core in cores:
        if not only.isdisjoint(core):
            left.difference_update(core)
    return not left


def smt_in_use(online: "t.Iterable[int]", cores: Cores) -> bool:
    """Return whether a core has more than one thread online. If so, a thread that is offline is off on purpose."""
    cpus = set(online)
    return any(len(cpus.intersection(core)) > 1 for core in cores)


def join_cores(cores: Cores, more: Cores) -> "list[tuple[int, ...]]":
    """Return the cores of one host from two observations. Each may know threads that the other does not."""
    joined = [set(core) for core in cores]
    for core in more:
        fits = [known for known in joined if known.intersection(core)]
        joined = [known for known in joined if known not in fits] + [set(core).union(*fits)]
    return sorted(tuple(sorted(core)) for core in joined)
