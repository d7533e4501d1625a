# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy without ``nbthread``: a thread for each CPU that it may run on. A reload starts a worker that counts anew
(seen with 2.6).
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._consumers.kinds.base import (
    Change,
    Consumer,
    Kind,
    Process,
    of_cpus,
)


def _find(processes: "t.Sequence[Process]", change: Change) -> "list[Consumer]":
    return [
        found
        for one in processes
        # The master has one thread.
        if one.threads == len(one.mask & change.before) > 1
        for found in of_cpus(one, change, f"{one.threads} threads")
    ]


KIND = Kind(program="haproxy", find=_find, remedy="reload it, or edit nbthread where that is a number")
