# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls to a host that may never answer, given up after a while."""

from __future__ import annotations

import contextlib
import os
import signal
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.module_utils._host import processes


@contextlib.contextmanager
def within(seconds: float) -> t.Iterator[None]:
    """End a call over a connection that takes longer.

    A host that loses its power while a command's answer is awaited leaves a connection that nothing is sent on any more: the client sits there until
    the kernel asks after it, two hours later by default (tcp(7), ``tcp_keepalive_time``).

    Raises:
        AnsibleConnectionFailure: there was no answer; the processes that waited for it were ended
    """
    # A task with a `timeout` of its own has the clock already, and ends all the same.
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return
    others = processes.children()

    def give_up(_number: int, _frame: t.Any) -> None:
        for pid in processes.children() - others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        raise AnsibleConnectionFailure(f"no answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, give_up)
    # Again and again, because a connection may try anew.
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
