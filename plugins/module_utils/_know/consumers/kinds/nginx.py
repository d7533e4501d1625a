# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""nginx with ``worker_processes auto``: a worker for each CPU that was online when its master started
(ngx_os_init in src/os/unix/ngx_posix_init.c). A reload keeps the number (seen with 1.22).
"""

import collections
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds.base import (
    Consumer,
    Kind,
    Online,
    Process,
)

# Not the caches' processes, nor workers that only wait for their last client.
_WORKER = "nginx: worker process"


def _find(processes: "t.Sequence[Process]", online: Online) -> "list[Consumer]":
    workers = collections.Counter(
        process.parent for process in processes if " ".join(process.arguments).strip() == _WORKER
    )
    counts = [(process, len(online.at(process.started))) for process in processes]
    return [
        Consumer(process, f"{counted} worker process{'' if counted == 1 else 'es'}", counted, len(online.now))
        for process, counted in counts
        if workers[process.pid] == counted != len(online.now)
    ]


KIND = Kind(
    programs=("nginx",),
    find=_find,
    actions=("restart",),
    remedy="restart it, as a reload keeps the number, or edit worker_processes where that is a number",
)
