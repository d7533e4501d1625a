# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One host's part of a trial: it follows the schedule, watches the host, and reads the metrics of each period.

A host is only ever in another state than its own while its rollback timer runs. Each check starts the timer anew, so a
host whose controller is lost goes back by itself after a few checks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions.time_limits import HostLostError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots.reboot import SwitchError
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import host_check

# Checks that a host can miss before its rollback timer ends: one slow answer must not end a trial.
CHECKS_OF_TIMER = 6
MIN_TIMER_SECONDS = 60
# A clock that is kept right by NTP moves less than this in a period.
MAX_CLOCK_SECONDS = 2.0
# Of the part of a period that is to count, so much has to be left after the switch.
MIN_COUNTED = 0.5


class Clock(t.Protocol):
    """The controller's clocks."""

    def now(self) -> float:
        """Return the seconds of a clock that is never set."""

    def wall(self) -> datetime.datetime:
        """Return the time of day, in UTC."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class LiveHost(t.Protocol):
    """What a trial does on its host. Each method raises HostLostError."""

    @property
    def is_booted(self) -> bool:
        """Whether the host was rebooted into its arm."""

    def switch(self, arm: str, timer_seconds: int) -> tuple[int, ...]:
        """Put the host into an arm under its rollback timer, and return its online CPUs; raises SwitchError."""

    def after_switch(self, before: int) -> str | None:
        """Let the service follow its CPUs, of which there were so many before; return what went wrong,
        None where nothing did.
        """

    def check(self) -> host_check.Checked:
        """Look at the host, and start its rollback timer anew."""

    def restore(self) -> tuple[int, ...]:
        """Put the host back into its own state at once, and return its online CPUs."""


class Readings(t.Protocol):
    """The numbers of one host's metrics and guardrails."""

    def watch(self, now: float, checked: host_check.Checked) -> str | None:
        """Read the guardrails; return why the host has to go back, None where it need not.

        Args:
            now: on the clock that is never set.
            checked: what the host said at this check.
        """

    def of_period(self, begin: datetime.datetime, end: datetime.datetime) -> records.Read:
        """Return what the metrics are over a period, and their points."""

    def start_period(self) -> None:
        """Forget what belongs to the period before."""


class Files(t.Protocol):
    """Where a host's part of the trial is written."""

    def period(self, record: records.Period) -> None:
        """Write the record of a period, and take the looks that are due; raises BorderError,
        which ends the host's part.
        """

    def stopped(self) -> str | None:
        """Return why the trial ends for all hosts, None while it goes on."""


@dataclasses.dataclass(frozen=True)
class Times:
    """The times of a trial, in seconds.

    Attributes:
        period: of a period.
        settle: what is not counted of it, at its beginning.
        check: between two checks.
    """

    period: float
    settle: float
    check: float

    @property
    def timer(self) -> int:
        """Of the rollback timer."""
        return max(MIN_TIMER_SECONDS, round(CHECKS_OF_TIMER * self.check))


class Follower:
    """Follows a host's schedule.

    Args:
        host: the host.
        readings: its numbers.
        files: where its part is written.
        clock: the controller's clocks.
        times: of the trial.
        own: the host's online CPUs before the trial.

    Attributes:
        online_after: its online CPUs when its part is over; None where that is not known.
    """

    def __init__(
        self, host: LiveHost, readings: Readings, files: Files, clock: Clock, times: Times, own: t.Sequence[int]
    ) -> None:
        self._host, self._readings, self._files, self._clock, self._times = host, readings, files, clock, times
        self._own = tuple(own)
        self.online_after: tuple[int, ...] | None = self._own
        self._online = self._own
        self._arm: str | None = None
        self._is_touched = False
        self._switched_at = -math.inf
        self._events: list[records.Event] = []

    def follow(self, schedule: t.Sequence[str], first: int, begin: float) -> str | None:
        """Follow the schedule until its end, or until the host has to go back.

        The host is put back into its own state whatever happens, also after Ctrl-C.

        Args:
            schedule: the arm of each period.
            first: the number of its first period.
            begin: when that period begins, on the clock that is never set.

        Returns:
            Why the host's part ended early; None at the end of the schedule.
        """
        reason: str | None = None
        try:
            for number, arm in enumerate(schedule):
                its_begin = begin + number * self._times.period
                reason = self._until(its_begin, watched=False) or self._period(first + number, arm, its_begin)
                if reason is not None:
                    break
        except HostLostError as error:
            reason = str(error)
        finally:
            self._go_back()
        return reason

    def _period(self, number: int, arm: str, begin: float) -> str | None:
        """Carry out a period; return why the host has to go back, None where it need not."""
        self._events = []
        self._readings.start_period()
        started, running = self._clock.wall(), self._clock.now()
        end = begin + self._times.period
        reason = self._enter(arm)
        # What settles begins with the end of a switch, which takes a while on a large host, and never before the end of
        # what the period before counts.
        settled = max(running, self._switched_at) + self._times.settle
        reason = reason or self._until(end)
        ended = self._clock.wall()
        clock_moved = (ended - started).total_seconds() - (self._clock.now() - running)
        invalid = reason or _clock_was_set(clock_moved) or _too_little_is_left(self._times, end - settled)
        counted = ended - datetime.timedelta(seconds=end - settled) if invalid is None else started
        metrics, series = self._readings.of_period(counted, ended) if invalid is None else ({}, {})
        self._files.period(
            records.Period(
                number=number,
                arm=arm,
                started=_written(started),
                counted_from=_written(counted),
                ended=_written(ended),
                complete=invalid is None,
                reason=invalid,
                metrics=metrics,
                series=series,
                events=tuple(self._events),
                block=0,
            )
        )
        return reason

    def _enter(self, arm: str) -> str | None:
        if arm == self._arm:
            return None
        self._is_touched = True
        before = len(self._online)
        try:
            self._online = self._host.switch(arm, self._times.timer)
        except SwitchError as error:
            return str(error)
        self._arm = arm
        self._switched_at = self._clock.now()
        self._note("switched", arm)
        # After a boot the service has counted its CPUs.
        is_to_follow = len(self._online) != before and not self._host.is_booted
        problem = self._host.after_switch(before) if is_to_follow else None
        if problem:
            self._note("after_switch", problem)
        return None

    def _until(self, end: float, watched: bool = True) -> str | None:
        """Wait until a moment, with checks; return why the host has to go back before it."""
        while True:
            stopped = self._files.stopped()
            if stopped is not None:
                return stopped
            left = end - self._clock.now()
            if left <= 0:
                return None
            self._clock.sleep(min(left, self._times.check))
            reason = self._check() if watched else None
            if reason is not None:
                return reason

    def _check(self) -> str | None:
        checked = self._host.check()
        if checked.online != self._online:
            was, now = (cpulist.render(cpus) for cpus in (self._online, checked.online))
            return f"CPUs {now} are online instead of {was}: somebody else changed them"
        if (self._online != self._own or self._host.is_booted) and not checked.is_armed:
            return "the timer that brings it back is gone"
        return self._readings.watch(self._clock.now(), checked)

    def _go_back(self) -> None:
        if not self._is_touched:
            return
        self.online_after = None
        # A host that does not answer goes back by its rollback timer.
        with contextlib.suppress(HostLostError):
            self.online_after = self._host.restore()

    def _note(self, event: str, detail: str) -> None:
        self._events.append(records.Event(_written(self._clock.wall()), event, detail))


def _clock_was_set(seconds: float) -> str | None:
    """Return why a period has no numbers: the metrics server knows them by the time of day."""
    return (
        f"the controller's clock was set by {seconds:.0f} s in this period"
        if abs(seconds) > MAX_CLOCK_SECONDS
        else None
    )


def _too_little_is_left(times: Times, seconds: float) -> str | None:
    """Return why a period has no numbers after a switch that took long."""
    if seconds >= MIN_COUNTED * (times.period - times.settle):
        return None
    return (
        f"the switch took so long that {max(0.0, seconds):.0f} s of the period were left to count: give it longer"
        " periods"
    )


def _written(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
