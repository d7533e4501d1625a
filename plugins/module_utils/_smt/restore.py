# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Restore a host from a record of its state: its CPUs, then the CPU masks of tasks, cpusets and interrupts.

The watchdog and a failed change call it. A copy on the host is the rollback program that the rollback timer starts: ``python3 -m PACKAGE._smt.restore
SYSROOT``. It imports only files that are copied with it, by relative imports.

The file `PENDING` alone decides whether a change is rolled back or stays; it is only changed while the host's lock is held. A confirmation removes it.
The rollback program restores the state and renames the file to `ROLLED_BACK`. Of the two, the one that gets the lock later no longer finds it.
"""

import math
import sys
import typing as t

from .._bindings import affinity
from .._compat.typing_forms import TypedDict
from .._host import durable, files, kernel_files, locks, state_file
from . import state as smt_state

PENDING = state_file.StateFile("var/lib/threadwise-smt/timer-rollback.json", limit=files.LARGE)
ROLLED_BACK = state_file.StateFile("var/lib/threadwise-smt/rolled-back.json", limit=files.LARGE)
PURPOSE = "the rollback timer of a change that was not confirmed"


class Record(TypedDict):
    """What a rollback restores."""

    cpu: smt_state.State  # before the change
    masks: affinity.Captured  # masks to restore
    remove: "list[str]"  # paths below the sysroot of files that only this change has written


def check(record: t.Any) -> None:
    """Check a record, for example from a file; raise ValueError, KeyError or TypeError when it is not a valid record."""
    smt_state.check(record["cpu"])
    affinity.check(record["masks"])
    if not (isinstance(record["remove"], list) and all(isinstance(path, str) for path in record["remove"])):
        raise ValueError("its list of files to remove is not valid")


def restore(host: kernel_files.KernelFiles, record: "t.Mapping[str, t.Any]") -> "list[str]":
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
        check(record)
    except (ValueError, KeyError, TypeError) as error:
        raise smt_state.StateError(f"not a valid record of a host's state: {error!r:.200}") from error
    captured = record["masks"]
    masks = affinity.masks_now(host, captured)
    problems = smt_state.restore(host.sysroot, record["cpu"], host)
    online = smt_state.read(files=host)["online"]
    problems += affinity.restore(host, captured, masks, online)[0]
    if not problems:
        fs = files.HostFs(host.sysroot)
        for path in record["remove"]:
            state_file.StateFile(path).remove(fs)
    return problems


def pending(fs: files.HostFs) -> "Record | None":
    """Return the record of the pending rollback of this boot, or None if there is none. Hold the host's lock if the result has to stay true."""
    return _of_this_boot(fs, PENDING)


def was_rolled_back(fs: files.HostFs) -> bool:
    """Return whether the last change of this boot that needed a confirmation was rolled back."""
    return _of_this_boot(fs, ROLLED_BACK) is not None


def _of_this_boot(fs: files.HostFs, file: state_file.StateFile) -> "Record | None":
    def checked(document: t.Any) -> "Record | None":
        if document["boot_id"] != state_file.boot_id(fs):
            return None
        check(document)
        record: Record = document
        return record

    try:
        return file.load(fs, checked)
    except state_file.StateFileError as error:
        fs.note(f"There is no rollback: {error}.")
        return None


def roll_back(host: kernel_files.KernelFiles) -> "list[str]":
    """Roll back what is not confirmed, once no other run changes this host, and return sentences on what could not be restored. The timer starts this."""
    fs = files.HostFs(host.sysroot)
    with locks.HostLock(host.sysroot, PURPOSE, math.inf):
        record = pending(fs)
        if record is None:
            return fs.problems
        problems = restore(host, record)
        durable.replace(fs.path(PENDING.path), fs.path(ROLLED_BACK.path))
    return problems


def main(arguments: "list[str]") -> int:
    """Run the rollback program for a sysroot and return its exit status: 1 when something could not be restored."""
    problems = roll_back(kernel_files.KernelFiles(arguments[0]))
    for problem in problems:
        sys.stderr.write(f"threadwise-smt: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
