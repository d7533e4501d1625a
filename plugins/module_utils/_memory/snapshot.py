# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The memory policy of a host from before the first change: saved before it, and what ``restored`` goes back to."""

from __future__ import annotations

import json
import stat

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable
from ansible_collections.threadwise.smt.plugins.module_utils._memory import facts as memory_facts, policy as memory_policy, sysctl_files

PATH = "var/lib/threadwise-smt/memory.json"
SCHEMA = "threadwise.smt/memory"
SCHEMA_VERSION = 1


class MemoryStateError(Exception):
    """A policy cannot be saved, written or brought back; the text names the file, the reason and the way out."""


def load(fs):
    """What was saved: ``{"sysctls": settings, "units": {unit: OOM score it gave its processes}}``; empty dicts when nothing was.

    Raises:
        MemoryStateError: the file is there and is not one that root alone has written.
    """
    status = fs.status(PATH)
    if status is None:
        return {"sysctls": {}, "units": {}}
    way_out = "remove it if the policy from before is no longer wanted"
    if fs.is_host and (not stat.S_ISREG(status.st_mode) or status.st_uid != 0 or status.st_mode & 0o022):
        raise MemoryStateError(f"{fs.path(PATH)} is no regular file of root, or others may write it: {way_out}")
    try:
        saved = json.loads(fs.read(PATH) or "")
        if saved["schema"] != SCHEMA or saved["schema_version"] != SCHEMA_VERSION:
            raise ValueError(f"it is no {SCHEMA} of version {SCHEMA_VERSION}")
        return {"sysctls": _checked_sysctls(saved["sysctls"]), "units": _checked_units(saved["units"])}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as trouble:
        raise MemoryStateError(f"{fs.path(PATH)} cannot be used ({trouble!s:.200}): {way_out}") from trouble


def _is_number(value):
    """JSON's true is an int to Python, and no number to us."""
    return isinstance(value, int) and not isinstance(value, bool)


def _checked_sysctls(sysctls):
    for name, value in sysctls.items():
        if name not in memory_policy.SYSCTLS or not _is_number(value):
            raise ValueError(f"{name!r:.40}: {value!r:.40} is no setting of a memory policy")
    return sysctls


def _checked_units(units):
    for unit, score in units.items():
        if "/" in unit or not _is_number(score):
            raise ValueError(f"{unit!r:.80} is no record of a unit")
    return units


def save(fs, saved):
    """Keep it, whole or not at all, for root only. Nothing left to bring back removes the file.

    Raises:
        MemoryStateError: it could not be kept, so nothing may be changed.
    """
    try:
        if saved["sysctls"] or saved["units"]:
            fs.write(PATH, json.dumps(dict(saved, schema=SCHEMA, schema_version=SCHEMA_VERSION), sort_keys=True) + "\n", mode=0o600)
        elif fs.status(PATH) is not None:
            durable.unlink(fs.path(PATH))
    except OSError as trouble:
        raise MemoryStateError(f"{fs.path(PATH)} cannot be written: {trouble.strerror}. Nothing was changed") from trouble


def with_present(saved, present, names):
    """What has to be saved before the named settings are changed: what was saved first stays, and a twin comes along with its twin.

    Args:
        saved: as from ``load``.
        present: the host's settings.
        names: sysctl names.

    Raises:
        MemoryStateError: a name that this kernel does not have.
    """
    names = set(names) | {memory_policy.TWINS[name] for name in names if name in memory_policy.TWINS}
    absent = sorted(name for name in names if present.get(name) is None)
    if absent:
        raise MemoryStateError(f"this kernel has no {', '.join(absent)}: leave out what needs it")
    return dict(saved, sysctls=dict({name: present[name] for name in sorted(names)}, **saved["sysctls"]))


def way_back(present, saved):
    """The settings to write, in order, so that the present ones become the saved ones; empty when they are."""
    wanted = {name: value for name, value in saved.items() if present[name] != value}
    for name, twin in memory_policy.TWINS.items():
        # Only the one that counts is written: that zeroes the other, and a zero written for the other would zero it in turn.
        if name in wanted and not wanted[name] and saved.get(twin):
            del wanted[name]
    return memory_policy.in_order(wanted)


def write(fs, settings):
    """Write settings to the running kernel, in the order they have, and read each back.

    Raises:
        MemoryStateError: the kernel did not take one; those before it in the order are written.
    """
    for name, value in settings.items():
        path = fs.path(memory_facts.sysctl_path(name))
        try:
            with open(path, "w", encoding="ascii") as handle:
                handle.write(f"{value}\n")
        except OSError as trouble:
            raise MemoryStateError(f"{path}: the kernel does not take {value}: {trouble.strerror}") from trouble
        got = memory_facts.read_settings(fs)[name]
        if got != value:
            raise MemoryStateError(f"{path} reads {got} after {value} was written to it{_why_fewer(name)}")


def _why_fewer(name):
    return ": memory is too full or too fragmented for so many huge pages" if name == memory_policy.HUGEPAGES else ""


def why_not_back(fs, saved, margin):
    """Why the saved settings must not be brought back now (str), or None: as ``memory_policy.refusal``."""
    present = memory_facts.read_settings(fs)
    way_out = "end something that takes memory, or lower the margin, and restore again"
    return memory_policy.refusal(memory_facts.read_memory(fs), present, way_back(present, saved), margin, memory_facts.page_size(fs), way_out)


def remove_our_file(fs):
    """Remove our file of sysctl.d, so that the next boot does without it. Returns whether there was one."""
    if fs.status(sysctl_files.OURS) is None:
        return False
    durable.unlink(fs.path(sysctl_files.OURS))
    return True
