# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls to a host that may never answer: their time limits, and a few attempts; and the end of a task by a signal."""

from __future__ import annotations

import contextlib
import signal
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import intake
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostAction
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers, text

# The most seconds of a short command.
CALL_SECONDS = 60
# Time between two attempts to reach a host, and how often they are made.
PAUSE_SECONDS = 2.0
ATTEMPTS = 3
# What ends a task.
ENDS = (signal.SIGTERM, signal.SIGINT)
# Longest answer to a short command.
MAX_CHARACTERS = 64 * 1024

Answer = t.TypeVar("Answer")


class HostLostError(Exception):
    """The host does not answer, or was restarted."""


class Calls:
    """The calls of a task to its host, each with a time limit and a few attempts.

    Args:
        action: the task's action.
        task_vars: its variables.
    """

    def __init__(self, action: HostAction, task_vars: dict[str, t.Any]) -> None:
        self.action, self.task_vars = action, task_vars

    def ask(
        self,
        kind: type[answers.Kind],
        module: str,
        arguments: dict[str, t.Any],
        seconds: float,
        check_mode: bool = False,
    ) -> answers.Kind:
        """Return the answer of a module.

        Raises:
            HostFailedError: it failed, or its answer was refused.
            HostLostError: the host does not answer.
        """
        task = self.action._task
        before, task.check_mode = task.check_mode, check_mode
        try:
            return self._reached(lambda: self.action.ask(kind, module, arguments, self.task_vars), seconds)
        finally:
            task.check_mode = before

    def run(self, command: str, characters: int = MAX_CHARACTERS, seconds: float = CALL_SECONDS) -> dict[str, t.Any]:
        """Run a short shell command, and return what Ansible says of it; raises HostLostError."""

        def call() -> dict[str, t.Any]:
            with intake.at_most(characters):
                return self.action._low_level_execute_command(command)

        try:
            return self._reached(call, seconds)
        except intake.FloodError as error:
            raise HostLostError(str(error)) from error

    def _reached(self, call: t.Callable[[], Answer], seconds: float) -> Answer:
        attempt = 1
        while True:
            try:
                if attempt > 1:
                    self.action._connection.reset()
                with within(seconds):
                    return call()
            except AnsibleConnectionFailure as error:
                if attempt == ATTEMPTS:
                    raise HostLostError(f"no answer in {ATTEMPTS} attempts: {text.line(error, 300)}") from error
            attempt += 1
            time.sleep(PAUSE_SECONDS)


@contextlib.contextmanager
def until_ended() -> t.Iterator[None]:
    """Raise KeyboardInterrupt within where the task is ended, so that its host goes back on the way out.

    Ansible ends its workers by SIGTERM, after Ctrl-C too; in its releases before 2.19 they hear of Ctrl-C themselves.

    Yields:
        None.
    """
    before = {number: signal.signal(number, _interrupt) for number in ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def _interrupt(_number: int, _frame: t.Any) -> None:
    # A second one would keep the host from being restored.
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


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
