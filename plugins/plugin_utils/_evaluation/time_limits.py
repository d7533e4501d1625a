# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time limits for calls to a host that may never answer."""

from __future__ import annotations

import contextlib
import signal
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions import intake


@contextlib.contextmanager
def within(seconds: float) -> t.Iterator[None]:
    """Limit the time of calls over a connection.

    When a host loses power during a call, the client waits on a dead connection until the kernel probes it, after two
    hours by default (tcp(7), ``tcp_keepalive_time``).

    Args:
        seconds: the time limit.

    Yields:
        None.

    Raises:
        AnsibleConnectionFailure: no answer within the limit; the processes that waited for it were ended.
    """
    # A task with a `timeout` already uses this timer, and ends by it where that is sooner.
    of_task, interval = signal.getitimer(signal.ITIMER_REAL)
    if 0 < of_task <= seconds:
        yield
        return
    begun = time.monotonic()
    others = processes.children()

    def give_up(_number: int, _frame: t.Any) -> None:
        intake.end_since(others)
        raise AnsibleConnectionFailure(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    # Repeated, because a connection plugin may retry.
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if of_task:
            # Not 0, which would end the timer instead of the task.
            signal.setitimer(signal.ITIMER_REAL, max(1e-3, of_task - (time.monotonic() - begun)), interval)
