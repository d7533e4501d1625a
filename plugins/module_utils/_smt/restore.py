# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restore a host from a record of its state: its CPUs, then the CPU masks of tasks, cpusets and interrupts.

The watchdog and a failed change call it. A copy on the host is the rollback program that the rollback timer starts: ``python3 -m PACKAGE._smt.restore
SYSROOT``. It imports only files that are copied with it, by relative imports.

The file `PENDING` alone decides whether a change is rolled back or stays; it is only changed while the host's lock is held. A confirmation removes it.
The rollback program restores the state and renames the file to `REVERTED`. Of the two, the one that gets the lock later no longer finds it.
"""

from __future__ import annotations

import json
import math
import os
import sys
import typing as t

from .._host import kernel_files, locks
from . import affinity, state as smt_state

PENDING = "var/lib/threadwise-smt/rollback.json"
REVERTED = "var/lib/threadwise-smt/rolled-back.json"
BOOT_ID = "proc/sys/kernel/random/boot_id"
PURPOSE = "the rollback timer of a change that was not confirmed"


class Record(t.TypedDict):
    """What a rollback restores."""

    cpu: smt_state.State  # before the change
    masks: affinity.Captured  # masks to put back
    remove: list[str]  # paths below the sysroot of files that only this change has written


def put_back(host: kernel_files.KernelFiles, record: t.Mapping[str, t.Any]) -> list[str]:
    """Restore the state, and remove the files that only the change had written.

    Args:
        host: the host
        record: a :class:`Record`, possibly from a file

    Returns:
        what could not be restored, one sentence each

    Raises:
        StateError: when ``record`` is not a valid record.
    """
    try:
        captured, remove = record["masks"], record["remove"]
        masks = affinity.masks_now(host, captured)
        problems = smt_state.restore(host.sysroot, record["cpu"], host)
    except (KeyError, TypeError) as error:
        raise smt_state.StateError(f"not a valid record of a host's state: {error!r}") from error
    online = smt_state.read(files=host)["online"]
    problems += affinity.put_back(host, captured, masks, online)[0]
    if not problems:
        for path in remove:
            if os.path.exists(os.path.join(host.sysroot, path)):
                os.unlink(os.path.join(host.sysroot, path))
    return problems


def pending(host: kernel_files.KernelFiles, path: str = PENDING) -> Record | None:
    """Return the record of the pending rollback of this boot, or None if there is none. Hold the host's lock if the result has to stay true."""
    try:
        with open(os.path.join(host.sysroot, path), encoding="ascii") as handle:
            record = json.load(handle)
        same_boot: bool = record["boot_id"] == host.read(BOOT_ID)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return record if same_boot else None


def was_rolled_back(host: kernel_files.KernelFiles) -> bool:
    """Return whether the last change of this boot that needed a confirmation was rolled back."""
    return pending(host, REVERTED) is not None


def roll_back(host: kernel_files.KernelFiles) -> list[str]:
    """Roll back what is not confirmed, once no other run changes this host, and return sentences on what could not be restored. The timer starts this."""
    with locks.HostLock(host.sysroot, PURPOSE, math.inf):
        record = pending(host)
        if record is None:
            return []
        problems = put_back(host, record)
        os.rename(os.path.join(host.sysroot, PENDING), os.path.join(host.sysroot, REVERTED))
    return problems


def main(arguments: list[str]) -> int:
    """Run the rollback program for a sysroot and return its exit status: 1 when something could not be restored."""
    problems = roll_back(kernel_files.KernelFiles(arguments[0]))
    for problem in problems:
        sys.stderr.write(f"threadwise-smt: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
