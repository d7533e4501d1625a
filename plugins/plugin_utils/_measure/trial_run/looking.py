# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's files of a trial while it runs: its periods, and the looks at all hosts' periods,
taken by whichever host ends a block last.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation.selection import length
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text as border_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import evidence, records, units
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import directory
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

# A host whose period is over for longer, and not written down, is not waited for: longer than the slowest switch.
LATE_SECONDS = 300.0


@dataclasses.dataclass(frozen=True)
class Known:
    """What the hosts of a trial wrote.

    Attributes:
        periods: host -> its periods; none where its files cannot be read.
        ends: host -> how its part ended, if it has.
        unreadable: host -> what is wrong with its files.
    """

    periods: dict[str, t.Sequence[records.Period]]
    ends: dict[str, records.End]
    unreadable: dict[str, str]

    @property
    def complete(self) -> dict[str, list[units.Period]]:
        """Host -> its complete periods."""
        return {host: records.complete(of_host) for host, of_host in self.periods.items()}


class HostFiles:
    """The files of a host that follows its schedule.

    Args:
        files: the trial's directory.
        trial: its design.
        host: the host's name.
        say: shows a line on the terminal.
        elapsed: returns the seconds since the first period of the trial began.
    """

    def __init__(
        self,
        files: directory.TrialDirectory,
        trial: records.Trial,
        host: str,
        say: t.Callable[[str], None],
        elapsed: t.Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._files, self._trial, self._host, self._say, self._elapsed = files, trial, host, say, elapsed
        self._parent = os.getppid()

    def period(self, record: records.Period) -> None:
        """Write the record of a period, say so where it is the last one of all hosts, and take the looks that are due.

        Raises:
            RecordError: it is not valid. One that says so was written instead of it.
            BorderError: it cannot be written, or cannot be read again.
        """
        path = self._files.host_file(self._host)
        with self._files.alone():
            try:
                line = records.period(self._trial, self._host, record)
            except records.RecordError as error:
                self._files.append(
                    path, records.period(self._trial, self._host, records.without_numbers(record, str(error)))
                )
                raise
            self._files.append(path, line)
            seen = known(self._files, self._trial)
            if self._host in seen.unreadable:
                raise directory.TrialFileError(seen.unreadable[self._host])
            self._show_progress(record.number, seen)
            self._look(seen)

    def stopped(self) -> str | None:
        """Return why the trial ends for all hosts, None while it goes on."""
        # Ansible's workers have a session of their own, and survive a playbook that is killed.
        return "ansible-playbook has ended" if os.getppid() != self._parent else self._files.ended()

    def ended(self, record: records.End) -> None:
        """Write how the host's part ended; looks do not wait for it any more."""
        self._files.append(self._files.ended_file(self._host), records.written(record))
        with self._files.alone():
            self._look(known(self._files, self._trial))

    def _over(self, seen: Known) -> set[str]:
        """Return the hosts that nobody waits for: their part is over, their files cannot be read,
        or they have been silent for too long.

        A worker that was killed, or a host that was never reached, writes no end.
        """
        over = {*seen.ends, *seen.unreadable}
        for host, arms in self._trial.design.schedule.items():
            first = self._trial.design.first[host]
            due = seen.periods[host][-1].number + 1 if seen.periods[host] else first
            if due < first + len(arms) and self._elapsed() > (due + 1) * self._trial.period_seconds + LATE_SECONDS:
                over.add(host)
        return over

    def _show_progress(self, number: int, seen: Known) -> None:
        """Say that a period is over if it is so on all hosts, by the host that ends it last."""
        schedule, first = self._trial.design.schedule, self._trial.design.first
        over = self._over(seen)
        taking_part = [
            host
            for host, arms in schedule.items()
            if first[host] <= number < first[host] + len(arms) and host not in over
        ]
        if not all(seen.periods[host] and seen.periods[host][-1].number >= number for host in taking_part):
            return
        last = max(first[host] + len(arms) for host, arms in schedule.items())
        left = (last - number - 1) * self._trial.period_seconds
        more = f"; {length(left)} to go, or less once it is decided" if left else ""
        self._say(f"Period {number + 1} of {last} is over on {wording.counted(len(taking_part), 'host')}{more}.")

    def _look(self, seen: Known) -> None:
        """Take the look that is due, if one is; the caller has the trial's files alone."""
        try:
            taken = looks_of(self._files)
        except border_text.BorderError as error:
            # Without them no verdict would hold, so no host is switched for it any more.
            self._files.write_end(f"its looks cannot be read: {error}")
            return
        numbers = {
            host: [units.Period(period.number, period.arm, {}) for period in of_host]
            for host, of_host in seen.periods.items()
        }
        blocks = units.blocks_over(self._trial.design, numbers, self._over(seen))
        looks = evidence.look(self._trial, seen.complete, blocks, taken)
        if len(looks.taken) == len(taken.taken):
            return
        last = looks.taken[-1]
        look = records.Look(at=now(), units=last.blocks, share=last.share, decided=t.cast("t.Any", looks.decided))
        self._files.append(self._files.path / directory.LOOKS, records.written(look))
        self._show(looks, seen.complete, sum(blocks.values()))
        if len(looks.decided) == len(self._trial.arms) - 1:
            self._files.write_end(
                records.DECIDED
                + ", ".join(f"{self._trial.titles[arm]}: {_decided(looks, arm)}" for arm in looks.decided)
            )

    def _show(self, looks: evidence.Looks, complete: units.Periods, done: int) -> None:
        for comparison in evidence.compare(self._trial, complete, looks.taken):
            if comparison.metric.is_primary and comparison.judged.ci_low is not None:
                arm = self._trial.titles[comparison.candidate]
                decided = _decided(looks, comparison.candidate)
                without = f" ({done - comparison.judged.n} without a value)" if done > comparison.judged.n else ""
                self._say(
                    f"{done} of {self._trial.units} observations{without}, {arm}: {comparison.metric.name}"
                    f" {wording.change_and_interval(comparison.judged.change)}, {decided}"
                )


def _decided(looks: evidence.Looks, arm: str) -> str:
    outcome = looks.decided.get(arm)
    if outcome is None:
        return "not decided yet"
    return wording.VERDICT_TITLES.get(outcome, "not decided, and the rest would hardly decide it")


def looks_of(files: directory.TrialDirectory) -> evidence.Looks:
    """Return the looks at a trial so far.

    Raises:
        BorderError: they cannot be read, or are not valid.
    """
    return evidence.Looks(*files.looks())


def known(files: directory.TrialDirectory, trial: records.Trial) -> Known:
    """Return what each host of a trial wrote.

    Files that cannot be read are their host's failure, and of no other host.
    """
    trial_known = Known({}, {}, {})
    for host in trial.design.schedule:
        part = records.Part()
        try:
            part = files.part(trial, host)
        except border_text.BorderError as error:
            trial_known.unreadable[host] = str(error)
        trial_known.periods[host] = part.periods
        if part.end is not None:
            trial_known.ends[host] = part.end
    return trial_known


def now() -> str:
    """Return the time of day as files have it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
