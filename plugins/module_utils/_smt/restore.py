# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a host back to a record of it: its CPUs, and then the masks of those that ran there.

The guard and a failed change call it; a copy on the host is the program of the dead man's hand, ``python3 -m PACKAGE.restorer SYSROOT``.
It imports nothing but what is copied with it, by relative imports.

Whether a change is taken back or stays is decided by one thing: the file `PENDING`, while the host's lock is held. A confirmation removes it, the timer's
program restores and renames it to `REVERTED`; whoever comes second finds it gone.
"""

from __future__ import annotations

import json
import math
import os
import sys

from .._host import locks
from . import affinity, state as smt_state

PENDING = "var/lib/threadwise-smt/revert.json"
REVERTED = "var/lib/threadwise-smt/reverted.json"
BOOT_ID = "proc/sys/kernel/random/boot_id"
PURPOSE = "the timer that takes an unconfirmed change back"


def put_back(host: affinity.Host, record: dict) -> list[str]:
    """Restore, and remove the files that only the change to be undone had written.

    Args:
        record: ``{"cpu": state, "bystanders": captured, "remove": [path, ...]}``

    Returns:
        what is not as it was, one sentence each

    Raises:
        StateError: when ``record`` is none
    """
    try:
        captured, remove = record["bystanders"], record["remove"]
        masks = affinity.masks_now(host, captured)
        problems = smt_state.restore(host.sysroot, record["cpu"], host)
    except (KeyError, TypeError) as trouble:
        raise smt_state.StateError(f"not a record of a host: {trouble!r}") from trouble
    online = smt_state.read(files=host)["online"]
    problems += affinity.put_back(host, captured, masks, online)[0]
    if not problems:
        for path in remove:
            if os.path.exists(os.path.join(host.sysroot, path)):
                os.unlink(os.path.join(host.sysroot, path))
    return problems


def pending(host: affinity.Host, path: str = PENDING) -> dict | None:
    """The record that an unconfirmed change of this boot goes back to, None where none waits. What lasts needs the host's lock."""
    try:
        with open(os.path.join(host.sysroot, path), encoding="ascii") as handle:
            record = json.load(handle)
        return record if record["boot_id"] == host.read(BOOT_ID) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def was_reverted(host: affinity.Host) -> bool:
    """Whether the last change of this boot that waited for its confirmation was taken back."""
    return pending(host, REVERTED) is not None


def revert(host: affinity.Host) -> list[str]:
    """What the timer does: wait until no other run changes this host, and take back what is then still unconfirmed.

    Returns:
        what is not as it was, one sentence each
    """
    with locks.HostLock(host.sysroot, PURPOSE, math.inf):
        record = pending(host)
        if record is None:
            return []
        problems = put_back(host, record)
        os.rename(os.path.join(host.sysroot, PENDING), os.path.join(host.sysroot, REVERTED))
    return problems


def main(arguments: list[str]) -> int:
    problems = revert(affinity.Host(arguments[0]))
    for problem in problems:
        sys.stderr.write(f"threadwise-smt: {problem}\n")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
