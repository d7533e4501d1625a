# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""nginx with ``worker_processes auto``: a worker for each CPU that was online when its master started
(ngx_os_init in src/os/unix/ngx_posix_init.c). A reload keeps the number (seen with 1.22).
"""

import collections
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._consumers.kinds.base import (
    Change,
    Consumer,
    Kind,
    Process,
)

# Not the caches' processes, nor workers that only wait for their last client.
_WORKER = "nginx: worker process"


def _find(processes: "t.Sequence[Process]", change: Change) -> "list[Consumer]":
    workers = collections.Counter(one.parent for one in processes if " ".join(one.arguments).strip() == _WORKER)
    before, after = len(change.before), len(change.after)
    return [
        Consumer(one.title, f"{before} worker processes", before, after)
        for one in processes
        if workers[one.pid] == before != after
    ]


KIND = Kind(
    program="nginx",
    find=_find,
    remedy="restart it, as a reload keeps the number, or edit worker_processes where that is a number",
)
