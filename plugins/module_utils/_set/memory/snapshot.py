# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory policy that a host had before the first change: saved before that change,
and written again by ``restored``.
"""

import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import (
    facts as memory_facts,
    policy as memory_policy,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.errors import MemoryPolicyError
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.services import oom_score

PATH = "var/lib/threadwise-smt/memory.json"

_FILE = state_file.StateFile(PATH, "threadwise.smt/memory")


class Snapshot(TypedDict):
    """What is saved of a host.

    Attributes:
        sysctls: values by name.
        units: OOM score adjustment that each service gave its processes, by unit.
    """

    sysctls: memory_policy.Settings
    units: "dict[str, int]"


class MemorySnapshotError(MemoryPolicyError):
    """A policy cannot be saved, written or restored; the text names the file, the reason and the way out."""


def load(fs: HostFs) -> Snapshot:
    """Read the snapshot.

    Args:
        fs: the host's files.

    Returns:
        The snapshot; an empty one when nothing is saved.

    Raises:
        MemorySnapshotError: The file is damaged, or a user other than root may have written it.
    """
    try:
        return _FILE.load(fs, checked) or {"sysctls": {}, "units": {}}
    except state_file.StateFileError as error:
        raise MemorySnapshotError(
            f"{error}. Remove it only if you no longer need to restore the previous policy"
        ) from error


def checked(document: t.Any) -> Snapshot:
    """Return a snapshot that comes from a file; raise ValueError,
    KeyError or another error of data when it is not a valid one.
    """
    return {"sysctls": checked_sysctls(document["sysctls"]), "units": _checked_units(document["units"])}


def _is_number(value: object) -> bool:
    """Return whether a JSON value is an integer; true and false are not, although Python's bool is an int."""
    return isinstance(value, int) and not isinstance(value, bool)


def checked_sysctls(sysctls: t.Any) -> memory_policy.Settings:
    """Return values of sysctls that come from a file; raise ValueError or another error of data when they are not
    valid.
    """
    for name, value in sysctls.items():
        if name not in memory_policy.SYSCTLS or not _is_number(value):
            raise ValueError(f"{name!r:.40}: {value!r:.40} is not a valid setting of a memory policy")
    return dict(sysctls)


def _checked_units(units: t.Any) -> "dict[str, int]":
    for unit, score in units.items():
        if not oom_score.NAME.match(unit) or not _is_number(score):
            raise ValueError(f"{unit!r:.80} is not a valid entry for a unit")
    return dict(units)


def save(fs: HostFs, saved: Snapshot) -> None:
    """Write the snapshot atomically, readable by root only, or remove its file when there is nothing left to restore.

    Args:
        fs: the host's files.
        saved: the snapshot.

    Raises:
        MemorySnapshotError: It could not be saved or removed.
    """
    keeps = bool(saved["sysctls"] or saved["units"])
    try:
        if keeps:
            _FILE.save(fs, {name: dict(sorted(saved[name].items())) for name in ("sysctls", "units")})
        else:
            _FILE.remove(fs)
    except OSError as error:
        raise MemorySnapshotError(
            f"{fs.path(PATH)} cannot be {'written' if keeps else 'removed'}: {error.strerror}"
        ) from error


def with_present(saved: Snapshot, present: memory_policy.HostSettings, names: "Iterable[str]") -> Snapshot:
    """Add the present values of settings to a snapshot, before they are changed.

    Values that are already saved stay. The ratio and the kbytes are always saved as a pair.

    Args:
        saved: the snapshot so far.
        present: the host's settings.
        names: sysctl names.

    Returns:
        The new snapshot.

    Raises:
        MemorySnapshotError: This kernel does not have one of the sysctls.
    """
    names = set(names)
    names |= {memory_policy.COUNTERPARTS[name] for name in names if name in memory_policy.COUNTERPARTS}
    values = {name: present.get(name) for name in sorted(names)}
    missing = [name for name, value in values.items() if value is None]
    if missing:
        raise MemorySnapshotError(f"this kernel has no {', '.join(missing)}: leave out the options that need it")
    known = {name: value for name, value in values.items() if value is not None}
    return {**saved, "sysctls": {**known, **saved["sysctls"]}}


def joined(saved: Snapshot, other: Snapshot) -> Snapshot:
    """Return a snapshot with all that one of two has; where both have a value, it is that of `other`."""
    return {"sysctls": {**saved["sysctls"], **other["sysctls"]}, "units": {**saved["units"], **other["units"]}}


def settings_to_restore(present: memory_policy.HostSettings, saved: "Mapping[str, int]") -> memory_policy.Settings:
    """Return the values to write, in order, that turn the present settings into the saved ones;
    empty when they are equal.

    Args:
        present: the host's settings.
        saved: the saved values.
    """
    wanted = {name: value for name, value in saved.items() if present[name] != value}
    for name, counterpart in memory_policy.COUNTERPARTS.items():
        # Write only the one of ratio and kbytes that is not 0: the kernel sets the other one to 0, and writing that 0
        # would reset the first one.
        if name in wanted and not wanted[name] and saved.get(counterpart):
            del wanted[name]
    return memory_policy.in_order(wanted)


def write(fs: HostFs, settings: "Mapping[str, int]") -> None:
    """Write settings to the running kernel in the given order, and read each one back.

    Args:
        fs: the host's files.
        settings: sysctl values by name.

    Raises:
        MemorySnapshotError: The kernel did not accept a value; the settings before it are already written.
    """
    kernel = kernel_files.KernelFiles(fs.sysroot)
    for name, value in settings.items():
        path = fs.path(memory_facts.sysctl_path(name))
        try:
            kernel.write(memory_facts.sysctl_path(name), str(value))
        except OSError as error:
            raise MemorySnapshotError(f"{path}: the kernel does not accept {value}: {error.strerror}") from error
        actual = memory_facts.read_setting(fs, name)
        if actual != value:
            reason = (
                ": memory is too full or too fragmented for so many huge pages"
                if name == memory_policy.HUGEPAGES
                else ""
            )
            raise MemorySnapshotError(f"{path} reads {actual} after {value} was written to it{reason}")
