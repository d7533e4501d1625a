# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A live host of a trial, reached by Ansible: smt_state switches it under its rollback timer,
short commands look at it.
"""

from __future__ import annotations

import shlex
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.time_limits import (
    CALL_SECONDS,
    Calls,
    HostLostError,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.answers import StateAnswer, TrialWorkersAnswer
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots.reboot import SwitchError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import arm_states, host_check

# The most seconds of a switch. Taking the siblings of hundreds of cores offline takes a minute.
SWITCH_SECONDS = 300
# Services that an event names.
MAX_NAMED = 10


class AnsibleHost:
    """The host of a task.

    Args:
        calls: to the host; its rollback timer runs all the while.
        options: those of smt_state that are the same for each switch.
        hook: the argv that makes a service follow its CPUs that smt_state does not know, or empty.
        commands: the argv of each command that prints a metric of the host.
    """

    def __init__(
        self,
        calls: Calls,
        options: dict[str, t.Any],
        hook: t.Sequence[str] = (),
        commands: t.Sequence[t.Sequence[str]] = (),
    ) -> None:
        self._calls = calls
        self._options, self._hook, self._commands = options, list(hook), commands
        self._asked: frozenset[int] = frozenset()

    @property
    def is_booted(self) -> bool:
        """Whether the host was rebooted into its arm."""
        return False

    @property
    def _renew(self) -> str:
        """The command that starts the time anew of what brings the host back."""
        return host_check.RENEW

    def switch(self, arm: str, timer_seconds: int) -> tuple[int, ...]:
        """Put the host into an arm under its rollback timer, and return its online CPUs.

        Raises:
            SwitchError: smt_state refused; the host is as it was.
            HostLostError: it does not answer.
        """
        arguments = {**arm_states.options(arm), **self._options, "rollback_after": timer_seconds}
        try:
            answer = self._calls.ask(StateAnswer, "smt_state", arguments, SWITCH_SECONDS)
        except HostFailedError as failure:
            raise SwitchError(str(failure)) from None
        return host_check.parse_online(answer.after.online)

    def after_switch(self, before: int) -> str | None:
        """Let the service follow its CPUs; return what went wrong, or which services did not count them again.

        A hook that ends well may have changed nothing: nginx counts CPUs at its start, and a reload keeps the number.

        Args:
            before: the number of online CPUs before the switch.
        """
        if self._hook:
            answer = self._run(shlex.join(self._hook))
            if answer.get("rc") != 0:
                output = text.line(
                    f"{answer.get('stderr') or ''} {answer.get('stdout') or ''}".strip() or "nothing", 300
                )
                return f"{self._shown_hook} ended with {text.line(answer.get('rc'), 20)}: {output}"
        # Once for each number: services that count their CPUs do so at their start.
        known, self._asked = before in self._asked, self._asked | {before}
        return None if known else self._old_numbers(before)

    @property
    def _shown_hook(self) -> str:
        return text.line(shlex.join(self._hook), 100)

    def _old_numbers(self, before: int) -> str | None:
        """Return which programs still run as with the CPUs from before; None where none does."""
        try:
            answer = self._calls.ask(TrialWorkersAnswer, "smt_trial_workers", {"cpus": before}, CALL_SECONDS)
        except HostFailedError as failure:
            return f"it is not known which services still believe in {before} CPUs: {failure}"
        programs = [f"{consumer.unit} ({consumer.has})" for consumer in answer.consumers]
        programs += [f"{worker.unit} ({before} {worker.kind} {worker.name})" for worker in answer.workers]
        if not programs:
            return None
        why = (
            f"although {self._shown_hook} was run"
            if self._hook
            else "and smt_trial_consumers does not make them follow"
        )
        more = f" and {len(programs) - MAX_NAMED} more" if len(programs) > MAX_NAMED else ""
        return f"these still run as with the CPUs from before, {why}: {', '.join(programs[:MAX_NAMED])}{more}"

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
            raise HostLostError(str(error)) from error

    def restore(self) -> tuple[int, ...]:
        """Put the host back into its own state at once, and return its online CPUs.

        Raises:
            HostLostError: it does not answer, or what it says is not valid.
        """
        try:
            return host_check.parse_online(self._run(host_check.restore()).get("stdout"))
        except host_check.CheckError as error:
            raise HostLostError(str(error)) from error

    def _run(self, command: str) -> dict[str, t.Any]:
        return self._calls.run(command, host_check.most_characters(len(self._commands)))
