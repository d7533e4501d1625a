# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs were online when in this boot, as far as this collection has changed them: what a program counted that
does not show it.
"""

import os
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    cpulist,
    durable,
    files as host_files,
    state_file,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds.base import Online

PATH = "run/threadwise-smt/switches.json"
_FILE = state_file.StateFile(PATH, "threadwise.smt/switches", mode=0o644)
# Older ones are forgotten: who started before them is taken to have started before the oldest that is left.
_MAX_SWITCHES = 20


def ticks() -> int:
    """Return the time since the boot in clock ticks, as the kernel shows it of the start of a process."""
    # The clock of field 22 of /proc/PID/stat (proc(5)); Python has its number from 3.7 on.
    return int(time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", 7)) * os.sysconf("SC_CLK_TCK"))


def load(fs: host_files.HostFs, now: "t.Iterable[int]") -> Online:
    """Return the CPUs of this boot; ``fs.problems`` gets the reason why its changes cannot be read.

    Args:
        fs: the host's files.
        now: the CPUs that are online.
    """
    try:
        switches = _FILE.load(fs, _checked)
    except state_file.StateFileError as error:
        fs.note(f"Which CPUs were online earlier is not known: {error}.")
        switches = None
    if switches is None or switches[0] != state_file.boot_id(fs):
        return Online(frozenset(now))
    return Online(frozenset(now), switches[1])


def save(fs: host_files.HostFs, online: Online) -> None:
    """Write which CPUs were online in this boot, under the host's lock; raise OSError when it cannot be written."""
    # A rollback that is killed here goes on as another process, and nothing comes after that one.
    durable.remove_unfinished([fs.path(PATH)])
    switches = [[until, cpulist.render(cpus)] for until, cpus in online.earlier[-_MAX_SWITCHES:]]
    _FILE.save(fs, {"boot_id": state_file.boot_id(fs), "switches": switches})


def _checked(document: t.Any) -> "tuple[str, tuple[tuple[float, frozenset[int]], ...]]":
    switches = tuple((float(until), frozenset(cpulist.parse(cpus))) for until, cpus in document["switches"])
    if not isinstance(document["boot_id"], str) or list(switches) != sorted(switches, key=lambda switch: switch[0]):
        raise ValueError("it is not a list of changes")
    return document["boot_id"], switches
