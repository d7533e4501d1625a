# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much the controller reads of a host's answer.

Ansible keeps all that a host prints in memory, several times, before it looks at any of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text

MIB = 1024 * 1024
# What Ansible itself reads during a call, the module's files above all, and other lines of the host, such as a banner.
SLACK_BYTES = 8 * MIB
# Seconds of CPU time between two looks: who reads much needs CPU time, and who waits for an answer does not.
LOOK_SECONDS = 0.02


class FloodError(text.BorderError):
    """A host sent more than any valid answer has."""


@contextlib.contextmanager
def at_most(size: int) -> t.Iterator[None]:
    """Stop reading from a host that sends more than a valid answer has.

    The kernel counts what this thread reads from files and pipes (proc(5), ``rchar`` in ``/proc/thread-self/io``),
    which is how the connections ``ssh`` and ``local`` read. Without that file, as on macOS, there is no limit.

    Args:
        size: bytes of the longest valid answer.

    Yields:
        None.

    Raises:
        FloodError: the host sent more; the processes that this call started were ended.
    """
    others = processes.children()
    most = size + SLACK_BYTES
    begun = _received()

    def look(_number: int, _frame: t.Any) -> None:
        if _received() - begun > most:
            end_since(others)
            raise FloodError(
                f"it sent more than {most / MIB:.0f} MiB, and was cut off there: a valid answer has at most"
                f" {size / MIB:.3g} MiB"
            )

    # The timer counts CPU time, so that it leaves SIGALRM to a task's own `timeout`.
    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, LOOK_SECONDS, LOOK_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def end_since(others: t.Collection[int]) -> None:
    """End the children of this process that are not among ``others`` (process ids)."""
    for pid in processes.children() - set(others):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _received() -> int:
    """Return the bytes that this thread has read so far, 0 if the kernel does not count them."""
    try:
        # Not of the process: that includes what its ended children read, and on a local connection these are the
        # modules.
        with open("/proc/thread-self/io", "rb") as file:
            return int(file.readline().partition(b":")[2])
    except (OSError, ValueError):
        return 0
