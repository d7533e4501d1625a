# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""HAProxy without ``nbthread``: a thread for each CPU that it may run on. A reload starts a worker that counts anew
(seen with 2.6). By itself it has at most 64 (MAX_THREADS in its Makefile).
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers.kinds.base import (
    Consumer,
    Kind,
    Online,
    Process,
    of_cpus,
)

_MAX_THREADS = 64


def _find(processes: "t.Sequence[Process]", online: Online) -> "list[Consumer]":
    # A master has one thread, and after a reload beside the new worker the old one, as long as that has clients.
    masters = {process.parent for process in processes}
    workers = sorted(
        (process for process in processes if process.pid not in masters), key=lambda process: process.started
    )
    # What has lost its parent has that of others.
    newest = {(worker.parent, worker.unit): worker for worker in workers}
    return [
        consumer
        for worker in newest.values()
        if worker.threads == min(_MAX_THREADS, len(worker.mask & online.at(worker.started)))
        for consumer in of_cpus(
            worker, online, f"{worker.threads} thread{'' if worker.threads == 1 else 's'}", _MAX_THREADS
        )
    ]


KIND = Kind(
    programs=("haproxy",),
    find=_find,
    remedy="reload it, or edit nbthread where that is a number",
    actions=("reload", "restart"),
)
