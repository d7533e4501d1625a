# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A live host of a trial, reached by Ansible: smt_state switches it under its rollback timer,
short commands look at it.
"""

from __future__ import annotations

import shlex
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions import intake
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions.base import HostAction, HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import time_limits
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial_run import arm_states, follower, host_check

# The most seconds of a single call. Taking the siblings of hundreds of cores offline takes a minute.
SWITCH_SECONDS = 300
CALL_SECONDS = 60
# Time between two attempts to reach a host, and how often they are made: its rollback timer runs all the while.
PAUSE_SECONDS = 2.0
ATTEMPTS = 3
# Services that an event names.
MAX_NAMED = 10

Answer = t.TypeVar("Answer")


class AnsibleHost:
    """The host of a task.

    Args:
        action: the task's action.
        task_vars: its variables.
        conflicts: the options of smt_state about affinity conflicts.
        hook: the argv that makes the service follow its CPUs, or empty.
        commands: the argv of each command that prints a metric of the host.
    """

    def __init__(
        self,
        action: HostAction,
        task_vars: dict[str, t.Any],
        conflicts: dict[str, t.Any],
        hook: t.Sequence[str] = (),
        commands: t.Sequence[t.Sequence[str]] = (),
    ) -> None:
        self._action, self._task_vars = action, task_vars
        self._conflicts, self._hook, self._commands = conflicts, list(hook), commands
        self._asked: frozenset[int] = frozenset()
        # The command that starts the time anew of what brings the host back.
        self._renew = host_check.RENEW

    @property
    def is_booted(self) -> bool:
        """Whether the host was rebooted into its arm."""
        return False

    def switch(self, arm: str, timer_seconds: int) -> tuple[int, ...]:
        """Put the host into an arm under its rollback timer, and return its online CPUs.

        Raises:
            SwitchError: smt_state refused; the host is as it was.
            HostLostError: it does not answer.
        """
        arguments = {**arm_states.options(arm), **self._conflicts, "rollback_after": timer_seconds}
        try:
            answer = self._reached(
                lambda: self._action.ask("smt_state", "smt_state", arguments, self._task_vars), SWITCH_SECONDS
            )
        except HostFailedError as failure:
            raise follower.SwitchError(str(failure)) from None
        return host_check.parse_online(answer["after"]["online"])

    def after_switch(self, before: int) -> str | None:
        """Let the service follow its CPUs; return what went wrong,
        or without a hook which services did not count them again.

        Args:
            before: the number of online CPUs before the switch.
        """
        if not self._hook:
            # Once for each number: services that count their CPUs do so at their start.
            known, self._asked = before in self._asked, self._asked | {before}
            return None if known else self._old_numbers(before)
        answer = self._run(shlex.join(self._hook))
        if answer.get("rc") == 0:
            return None
        said = text.line(f"{answer.get('stderr') or ''} {answer.get('stdout') or ''}".strip() or "nothing", 300)
        return f"{text.line(shlex.join(self._hook), 100)} ended with {text.line(answer.get('rc'), 20)}: {said}"

    def _old_numbers(self, before: int) -> str | None:
        """Return which services still have as many workers as there were CPUs; None where none has."""
        try:
            answer = self._reached(
                lambda: self._action.ask("smt_trial_workers", "smt_trial_workers", {"cpus": before}, self._task_vars),
                CALL_SECONDS,
            )
        except HostFailedError as failure:
            return f"it is not known which services still believe in {before} CPUs: {failure}"
        found = [f"{one['unit']} ({before} {one['kind']} {one['name']})" for one in answer["workers"]]
        if not found:
            return None
        return (
            "these still have as many workers as there were CPUs before, and smt_trial_after_switch is empty:"
            f" {', '.join(found[:MAX_NAMED])}"
        )

    def pending(self) -> str | None:
        """Return what is to bring the host back says, maybe nothing; None where nothing runs that would.

        Raises HostLostError.
        """
        answer = self._run(host_check.pending())
        return text.line(answer.get("stdout") or "", 500).strip() if answer.get("rc") == 0 else None

    def check(self) -> host_check.Checked:
        """Look at the host, and start its rollback timer anew.

        Raises:
            HostLostError: it does not answer, or what it says is not valid.
        """
        answer = self._run(host_check.check(self._commands, self._renew))
        try:
            return host_check.parse(answer.get("stdout"), len(self._commands))
        except host_check.CheckError as error:
            raise follower.HostLostError(str(error)) from error

    def restore(self) -> tuple[int, ...]:
        """Put the host back into its own state at once, and return its online CPUs.

        Raises:
            HostLostError: it does not answer, or what it says is not valid.
        """
        try:
            return host_check.parse_online(self._run(host_check.restore()).get("stdout"))
        except host_check.CheckError as error:
            raise follower.HostLostError(str(error)) from error

    def _run(self, command: str) -> dict[str, t.Any]:
        def call() -> dict[str, t.Any]:
            with intake.at_most(host_check.most_characters(len(self._commands))):
                return self._action._low_level_execute_command(command)

        try:
            return self._reached(call, CALL_SECONDS)
        except intake.FloodError as error:
            raise follower.HostLostError(str(error)) from error

    def _reached(self, call: t.Callable[[], Answer], seconds: float) -> Answer:
        """Return what a call returns, after a few attempts."""
        attempt = 1
        while True:
            try:
                if attempt > 1:
                    self._action._connection.reset()
                with time_limits.within(seconds):
                    return call()
            except AnsibleConnectionFailure as error:
                if attempt == ATTEMPTS:
                    raise follower.HostLostError(
                        f"no answer in {ATTEMPTS} attempts: {text.line(error, 300)}"
                    ) from error
            attempt += 1
            time.sleep(PAUSE_SECONDS)
