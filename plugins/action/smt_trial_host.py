# Copyright: threadwise.smt contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's part of a trial: what it is and what its metrics say, or its schedule."""

from __future__ import annotations

import contextlib
import datetime
import time
import typing as t

from ansible.errors import AnsibleConnectionFailure
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms.smt import why_smt_is_not_switched
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import SlotError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal, time_limits
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.base import HostAction, HostFailedError
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import answers, parts, schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.credentials import variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import places
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.options.smt_trial_host import ARGUMENTS
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot, visit
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.metric_sources import base, server
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import (
    arm_states,
    booted_host,
    directory,
    follower,
    live_host,
    looking,
    overlap,
    readings,
    settings,
)

# Points of a query: as often as a server scrapes by default.
STEP_SECONDS = 15.0
BREACH = "the guardrail "
INTERRUPTED = "the controller was interrupted"

display = terminal.Terminal()


class Clock:
    """The controller's clocks."""

    def now(self) -> float:
        """Return the seconds of a clock that is never set."""
        return time.monotonic()

    def wall(self) -> datetime.datetime:
        """Return the time of day, in UTC."""
        return datetime.datetime.now(datetime.UTC)

    def sleep(self, seconds: float) -> None:
        """Wait; fail where nobody reads what Ansible prints, so that the host goes back."""
        if not terminal.wait_while_read(seconds):
            raise HostFailedError({"msg": terminal.NOBODY_READS})


class ActionModule(HostAction):
    """The action of smt_trial_host."""

    from_user = ("run", "dest")

    def run(self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None) -> dict[str, t.Any]:
        """Say what the host is and what its metrics say, or carry out its schedule."""
        super().run(tmp, task_vars)
        options = self.validated(ARGUMENTS)
        self._options, self._vars = options, task_vars or {}
        self._name = str(self._vars["inventory_hostname"])
        try:
            end = self._end_written() if options._step == "follow" else contextlib.nullcontext()
            with time_limits.until_ended(), end:
                self._metrics, self._limits = (
                    settings.metrics(options.metrics),
                    settings.guardrails(options.guardrails),
                )
                clock = Clock()
                self._servers = self._connected()
                self._readings = readings.HostReadings(
                    self._metrics, self._limits, self._servers, clock.wall, min(STEP_SECONDS, options.check)
                )
                return self._follow(clock) if options._step == "follow" else self._describe()
        except HostFailedError as failure:
            return failure.answer
        except time_limits.HostLostError as error:
            return {"failed": True, "changed": False, "msg": f"{self._name}: {error}"}
        except (settings.TrialSettingsError, server.SourceError, arm_states.ArmStateError, text.BorderError) as error:
            return {"failed": True, "changed": False, "msg": str(error)}

    def cleanup(self, force: bool = False) -> None:
        """Remove what modules left on the host; one that is lost has its own reason, and this is none."""
        with contextlib.suppress(AnsibleConnectionFailure):
            super().cleanup(force)

    def _connected(self) -> dict[base.MetricSource, base.Server]:
        """Return the server of each source that a metric or a guardrail has, where it has one."""

        def get(name: str) -> t.Any:
            # None of them is an argument of the task, which Ansible shows when it cannot be templated.
            written = self._user.around(self._name)
            return self._user.templated(written.get(variables.OF_TRIAL + name), written)

        sources = dict.fromkeys(wanted.origin.source for wanted in (*self._metrics, *self._limits))
        connected = {source: source.connect(get) for source in sources}
        return {source: server for source, server in connected.items() if server is not None}

    def _describe(self) -> dict[str, t.Any]:
        """Return what the host is, what its metrics say now, and why it cannot take part."""
        facts = self.ask(answers.FactsAnswer, "smt_facts", {}, self._vars).ansible_facts.smt
        arms = self._arms()
        reason = why_smt_is_not_switched(parts.plain(facts))
        obstacle = None if reason is None else f"it cannot be switched, because {reason}"
        pending = live_host.AnsibleHost(time_limits.Calls(self, self._vars), {}).pending() if obstacle is None else None
        if pending is not None:
            obstacle = (
                "a change on it waits to be confirmed, or a trial that lost its controller has not ended: confirm the"
                " change, or wait for its rollback"
            )
            obstacle += f" ({pending})" if pending else ""
        warnings: list[str] = []
        for arm in arms if obstacle is None else ():
            obstacle = self._conflicts(arm, warnings)
            if obstacle:
                break
        # The load decides which hosts are compared with each other; a trial without one still is one.
        load = self._readings.load(self._options.traffic or self._metrics[0].name)
        if load.value is None and not self._metrics[0].origin.command:
            obstacle = obstacle or f"it cannot be measured, because {load.why}"
        longest = None
        if obstacle is None:
            try:
                longest = overlap.of_metrics(self._metrics, self._servers, self._options.check)._asdict()
            except base.NotKnownError as error:
                obstacle = f"it cannot be measured, because {error}"
        return {
            "changed": False,
            "looks_back": longest,
            "hardware_class": facts.hardware_class,
            "load": load.value,
            "online": facts.cpus.online,
            "obstacle": obstacle,
            # Before the first switch, such as who would believe in another number of CPUs.
            **({"warnings": [f"{self._name}: {sentence}" for sentence in dict.fromkeys(warnings)]} if warnings else {}),
        }

    def _conflicts(self, arm: str, warnings: list[str]) -> str | None:
        """Return why smt_state would refuse an arm and the timer that takes it back, None where it would not.

        Args:
            arm: its name.
            warnings: gets what smt_state warns of.
        """
        calls, options = time_limits.Calls(self, self._vars), arm_states.options(arm)
        try:
            if catalogue.takes_reboot(arm):
                visit.Visit(calls, "trial", self._options.run, wanted=self._wanted()).check(options)
            else:
                asked = {**options, **self._of_switches(), "rollback_after": follower.MIN_TIMER_SECONDS}
                warnings += calls.ask(answers.StateAnswer, "smt_state", asked, live_host.SWITCH_SECONDS, True).warnings
        except (HostFailedError, SlotError, visit.SwitchError) as failure:
            return f"{arm} is refused: {failure}"
        return None

    def _wanted(self) -> reboot.Wanted:
        return reboot.wanted(self._user, self._vars["inventory_hostname"])

    def _arms(self) -> list[str]:
        return arm_states.names(self._options.arms, with_boots=self._options.design == design.PARALLEL)

    def _of_switches(self) -> dict[str, t.Any]:
        """Return the options of smt_state that are the same for each switch."""
        names = ("affinity_conflicts", "affinity_conflicts_of", "consumers", "consumers_custom")
        return {name: getattr(self._options, name) for name in names}

    @contextlib.contextmanager
    def _end_written(self) -> t.Iterator[None]:
        """Write down how the host's part of the trial ended, whatever ends it: looks wait for a host without an end."""
        self._files = directory.TrialDirectory(places.run_directory(self._options.dest, self._options.run))
        self._in_trial: looking.HostFiles | None = None
        self._part: follower.Follower | None = None
        self._own: tuple[int, ...] | None = None
        self._takes_part, self._reason = True, INTERRUPTED
        try:
            yield
        except BaseException as error:
            self._reason = str(error) or INTERRUPTED
            raise
        finally:
            if self._takes_part:
                self._write_end()

    def _write_end(self) -> None:
        after = self._own if self._part is None else self._part.online_after
        own, now = (None if cpus is None else cpulist.render(cpus) for cpus in (self._own, after))
        record = records.End(
            host=text.line(self._name, schema.MAX_NAME),
            ended=looking.now(),
            reason=self._reason,
            restored=self._part is None or after == self._own,
            before=own,
            after=now,
        )
        try:
            if self._in_trial is not None:
                self._in_trial.ended(record)
            else:
                self._files.append(self._files.ended_file(self._name), records.written(record))
        except text.BorderError as error:
            display.warning(f"{self._name}: how its part ended is not written down: {text.line(error)}")

    def _follow(self, clock: Clock) -> dict[str, t.Any]:
        """Follow the host's schedule."""
        trial = self._files.trial(self._options.digest)
        if self._name not in trial.design.schedule:
            self._takes_part = False
            return {"changed": False, "msg": trial.design.left_out.get(self._name, "it does not take part")}
        times = follower.Times(trial.period_seconds, trial.settle_seconds, self._options.check)
        started = self._options.begin
        self._in_trial = looking.HostFiles(
            self._files, trial, self._name, display.display, lambda: clock.now() - started
        )
        given = (
            *(time_limits.Calls(self, self._vars), self._of_switches()),
            *(self._options.after_switch, self._readings.commands),
        )
        host = (
            booted_host.BootedHost(
                *given,
                run=self._options.run,
                reboot_seconds=self._options.reboot_timeout,
                wanted=self._wanted(),
            )
            if any(map(catalogue.takes_reboot, trial.arms))
            else live_host.AnsibleHost(*given)
        )
        self._own = host.check().online
        self._part = follower.Follower(host, self._readings, self._in_trial, clock, times, self._own)
        first = trial.design.first[self._name]
        failed = False
        try:
            self._reason = self._part.follow(trial.design.schedule[self._name], first, started + first * times.period)
        except text.BorderError as error:
            self._reason, failed = str(error), True
        return self._result(self._files, self._reason, self._part.online_after == self._own, failed)

    def _result(
        self, files: directory.TrialDirectory, reason: str | None, is_restored: bool, failed: bool = False
    ) -> dict[str, t.Any]:
        decided = reason is not None and reason.startswith(records.DECIDED)
        if reason is not None and reason.startswith(BREACH) and self._options.on_breach == settings.END:
            try:
                files.end(f"{self._name}: {reason}")
            except text.BorderError as error:
                display.warning(f"{self._name}: the trial goes on for the other hosts: {text.line(error)}")
        if not is_restored:
            return {
                "changed": True,
                "failed": True,
                "msg": (
                    f"{self._name}: it may not be in its own state: its rollback timer puts it back within"
                    f" {follower.MIN_TIMER_SECONDS} s or a few checks"
                ),
            }
        if failed:
            return {
                "changed": True,
                "failed": True,
                "msg": (
                    f"{self._name}: it left the trial, and is in its own state: {text.line(reason, records.MAX_SAID)}"
                ),
            }
        if reason is not None and not decided:
            display.display(f"{self._name}: left the trial, and is in its own state: {text.line(reason)}")
        reason = None if reason is None else text.line(reason, records.MAX_SAID)
        return {"changed": True, "reason": reason, "msg": reason or "its schedule is done"}
