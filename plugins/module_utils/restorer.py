# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring a host back to a record of it: its CPUs, and then the masks of those that ran there.

The guard and a failed change call it; a copy on the host is the program of the dead man's hand, ``python3 -m PACKAGE.restorer RECORD``.
It imports nothing but what is copied with it, by relative imports.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys

from . import bystanders, cpu_state

LOCK = '/run/threadwise-smt/lock'


def put_back(host: bystanders.Host, record: dict) -> list[str]:
    """Restore, and remove the files that only the change to be undone had written.

    :param record: ``{"cpu": state, "bystanders": captured, "remove": [path, ...]}``
    :returns: what is not as it was, one sentence each
    :raises StateError: when ``record`` is none
    """
    try:
        captured, remove = record['bystanders'], record['remove']
        masks = bystanders.masks_now(host, captured)
        problems = cpu_state.restore(host.sysroot, record['cpu'], host)
    except (KeyError, TypeError) as trouble:
        raise cpu_state.StateError('not a record of a host: %r' % trouble) from trouble
    online = cpu_state.read(files=host)['online']
    problems += bystanders.put_back(host, captured, masks, online)[0]
    if not problems:
        for path in remove:
            if os.path.exists(os.path.join(host.sysroot, path)):
                os.unlink(os.path.join(host.sysroot, path))
    return problems


def main(arguments: list[str]) -> int:
    """What the timer starts. Waits until no other run changes this host, restores, and removes the record."""
    with open(LOCK, 'a', encoding='ascii') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            with open(arguments[0], encoding='ascii') as handle:
                record = json.load(handle)
        except FileNotFoundError:
            return 0
        problems = put_back(bystanders.Host('/'), record)
        for problem in problems:
            sys.stderr.write('threadwise-smt: %s\n' % problem)
        os.unlink(arguments[0])
        return 1 if problems else 0


if __name__ == '__main__':
    raise SystemExit(main(sys.argv[1:]))
