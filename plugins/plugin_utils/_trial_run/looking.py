# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's files of a trial while it runs: its periods, and the looks at all hosts' periods, taken by whichever host ends a block last."""

from __future__ import annotations

import datetime
import os
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.selection import length
from ansible_collections.threadwise.smt.plugins.module_utils._looks.spending import Look
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import trials
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial import evidence, records, units
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial_run import directory


class HostFiles:
    """The files of a host that follows its schedule.

    Args:
        files: the trial's directory.
        trial: its design.
        host: the host's name.
        say: shows a line on the terminal.
    """

    def __init__(self, files: directory.TrialDirectory, trial: records.Trial, host: str, say: t.Callable[[str], None]) -> None:
        self._files, self._trial, self._host, self._say = files, trial, host, say
        self._parent = os.getppid()

    def period(self, record: dict[str, t.Any]) -> None:
        """Write the record of a period, say so where it is the last one of all hosts, and take the looks that are due."""
        block = max(0, record["period"] - self._trial.design.first[self._host]) // len(self._trial.arms)
        with self._files.alone():
            self._files.append(self._files.host_file(self._host), {**record, "block": block})
            self._show_progress(record["period"])
            self._look()

    def stopped(self) -> str | None:
        """Return why the trial ends for all hosts, None while it goes on."""
        # Ansible's workers have a session of their own, and survive a playbook that is killed.
        return "ansible-playbook has ended" if os.getppid() != self._parent else self._files.ended()

    def ended(self, record: dict[str, t.Any]) -> None:
        """Write how the host's part ended; looks do not wait for it any more."""
        with self._files.alone():
            self._files.append(self._files.ended_file(self._host), record)
            self._look()

    def _show_progress(self, number: int) -> None:
        """Say that a period is over if it is so on all hosts, by the host that ends it last."""
        schedule, first = self._trial.design.schedule, self._trial.design.first
        periods, over = periods_of(self._files, self._trial)
        taking_part = [host for host, arms in schedule.items() if first[host] <= number < first[host] + len(arms) and host not in over]
        if not all(periods[host] and periods[host][-1]["period"] >= number for host in taking_part):
            return
        last = max(first[host] + len(arms) for host, arms in schedule.items())
        left = (last - number - 1) * self._trial.period_seconds
        more = f"; {length(left)} to go, or less once it is decided" if left else ""
        self._say(f"Period {number + 1} of {last} is over on {text.counted(len(taking_part), 'host')}{more}.")

    def _look(self) -> None:
        """Take the look that is due, if one is; the caller has the trial's files alone."""
        taken = looks_of(self._files)
        periods, over = periods_of(self._files, self._trial)
        complete = {host: records.complete(of_host) for host, of_host in periods.items()}
        numbers = {host: [units.Period(one["period"], one["arm"], {}) for one in of_host] for host, of_host in periods.items()}
        blocks = units.blocks_over(self._trial.design, numbers, over)
        found = evidence.look(self._trial, complete, blocks, taken)
        if len(found.taken) == len(taken.taken):
            return
        last = found.taken[-1]
        self._files.append(self._files.path / directory.LOOKS, {"at": now(), "units": last.blocks, "share": last.share, "decided": found.decided})
        self._show(found, complete, sum(blocks.values()))
        if len(found.decided) == len(self._trial.arms) - 1:
            self._files.write_end(records.DECIDED + ", ".join(f"{arm}: {outcome}" for arm, outcome in found.decided.items()))

    def _show(self, found: evidence.Looks, complete: units.Periods, done: int) -> None:
        for one in evidence.compare(self._trial, complete, found.taken):
            if one["primary"] and one["ci_low"] is not None:
                arm = self._trial.titles[one["candidate"]]
                decided = found.decided.get(one["candidate"], "not decided yet")
                without = f" ({done - one['n']} without a value)" if done > one["n"] else ""
                self._say(
                    f"{done} of {self._trial.units} observations{without}, {arm}: {one['metric']} {one['ratio'] - 1:+.1%} "
                    f"({one['ci_low'] - 1:+.1%} to {one['ci_high'] - 1:+.1%}, above 0 is better), {decided}"
                )


def looks_of(files: directory.TrialDirectory) -> evidence.Looks:
    """Return the looks at a trial so far."""
    found = records.lines(files.path / directory.LOOKS, trials.LOOK)
    return evidence.Looks(tuple(Look(one["units"], one["share"]) for one in found), dict(found[-1]["decided"]) if found else {})


def periods_of(files: directory.TrialDirectory, trial: records.Trial) -> tuple[dict[str, list[dict[str, t.Any]]], dict[str, dict[str, t.Any]]]:
    """Return what each host of a trial wrote: its periods, and how its part ended if it has."""
    periods = {host: records.lines(files.host_file(host), trials.PERIOD) for host in trial.design.schedule}
    ends = {host: records.lines(files.ended_file(host), trials.ENDED) for host in trial.design.schedule}
    return periods, {host: found[-1] for host, found in ends.items() if found}


def now() -> str:
    """Return the time of day as files have it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
