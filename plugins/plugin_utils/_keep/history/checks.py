# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What checks of compliance found over time: a line for each check, in a file for each month.

A line has the statuses that have changed since the line before; the first of a file has all. So a month is complete by
itself, old months can be removed, and a check of 10,000 hosts of which three have drifted is a line of 300 characters.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import json
import os
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import folders
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status

SCHEMA, VERSION = "threadwise.smt/checks", 1
MIB = 1024 * 1024
MAX_FILE = 256 * MIB
LOCK, LOCK_SECONDS = ".checks.lock", 60
# Checks at the same time wait for each other, and controllers' clocks differ a little.
BEHIND = datetime.timedelta(minutes=5)
_NAME = re.compile(r"checks-(\d{4}-\d{2})\.jsonl")

Statuses = t.Mapping[str, Status]


class CheckLine(parts.Part, frozen=True):
    """A line of a file.

    Attributes:
        at: UTC.
        hosts: how many it was about.
        whole: whether all hosts that are known are in it, and not those alone whose status has changed.
        statuses: host -> status; null for a host that is not in the inventory any more.
    """

    schema: t.Literal["threadwise.smt/checks"]
    schema_version: t.Literal[1]
    at: parts.Moment
    hosts: parts.Count
    whole: bool
    statuses: t.Annotated[dict[parts.HostLine, Status | None], parts.at_most(parts.MAX_HOSTS)]


class Check(t.NamedTuple):
    """One check.

    Attributes:
        at: when (aware).
        counts: status -> number of hosts, of all hosts that were checked until then, by their latest word.
    """

    at: datetime.datetime
    counts: t.Mapping[Status, int]


class Drift(t.NamedTuple):
    """A host that differed from its policy.

    Attributes:
        host: the host.
        since: the first check that saw it.
        until: the first check that did not any more; None where none has.
        is_removed: whether the host was not mended, but removed from the inventory.
        is_waived: whether it was not mended, but waived from then on.
    """

    host: str
    since: datetime.datetime
    until: datetime.datetime | None
    is_removed: bool = False
    is_waived: bool = False

    @property
    def lasted(self) -> datetime.timedelta | None:
        """From the check that saw it first to the one that saw it mended; None where none has."""
        return None if self.until is None or self.is_removed or self.is_waived else self.until - self.since


class History(t.NamedTuple):
    """All checks.

    Attributes:
        checks: in order.
        drifts: those that last first, then the latest.
        statuses: the latest word on each host.
        seen: hosts of which it was known once whether they had drifted.
    """

    checks: list[Check]
    drifts: list[Drift]
    statuses: dict[str, Status]
    seen: set[str]


def add(
    directory: str | os.PathLike[str],
    statuses: Statuses,
    others: t.Iterable[str],
    at: datetime.datetime,
    dry_run: bool = False,
) -> None:
    """Add a check.

    Args:
        directory: of the files; it is created if it is missing.
        statuses: host -> status, of the hosts that were checked.
        others: the other hosts of the inventory; of earlier hosts that are neither it is taken down that they left it.
        at: when (aware).
        dry_run: only see that it can be added to what is there.

    Raises:
        BorderError: a file cannot be read or written, is none of this collection's, or has a later check.
    """
    if dry_run and not os.path.lexists(directory):
        return
    try:
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(folders.opened(directory, make=not dry_run))
            if not dry_run:
                stack.enter_context(folder.locked(LOCK, LOCK_SECONDS))
            names = _names(directory)
            known, last, name = _state(folder, names)
            if last and at < last - BEHIND:
                # What came later would be read before it, and a drift would end before it began.
                raise text.BorderError(
                    f"{folder.path / name}: its last check is of {compliance.stamp(last)}, which is later than this one"
                    f" ({compliance.stamp(at)}): set the clock of this controller, or remove the lines of later times"
                    " from the file if its clock was wrong then"
                )
            if dry_run:
                return
            at = max(at, last or at)
            month = at.strftime("%Y-%m")
            # A file whose first line was not written whole has none.
            is_first = name != f"checks-{month}.jsonl"
            now = {**known, **statuses, **dict.fromkeys(known.keys() - statuses.keys() - set(others))}
            line = {
                "schema": SCHEMA,
                "schema_version": VERSION,
                "at": compliance.stamp(at),
                "hosts": len(statuses),
                "whole": is_first,
                "statuses": {host: status for host, status in now.items() if is_first or known.get(host) != status},
            }
            folder.append(f"checks-{month}.jsonl", json.dumps(line).encode() + b"\n", MAX_FILE)
    except OSError as error:
        raise text.BorderError(f"{directory}: the history of checks: {error.strerror}") from None


def see_that_it_can_be_kept(directory: str | os.PathLike[str], at: datetime.datetime, dry_run: bool) -> None:
    """Refuse a directory to which no check could be added.

    Args:
        directory: of the files; it is created if it is missing.
        at: the present time (aware).
        dry_run: only see that what is there can be read.

    Raises:
        BorderError: as for :func:`add`.
    """
    add(directory, {}, (), at, dry_run=True)
    if dry_run:
        return
    try:
        with folders.opened(directory, make=True) as folder, folder.locked(LOCK, LOCK_SECONDS):
            pass
    except OSError as error:
        raise text.BorderError(f"{directory}: the history of checks: {error.strerror}") from None


def read(directory: str | os.PathLike[str]) -> History:
    """Read all checks.

    Args:
        directory: of the files.

    Raises:
        BorderError: there are none, or a file cannot be read or is none of this collection's.
    """
    history = History([], [], {}, set())
    lasting: dict[str, datetime.datetime] = {}
    counts: collections.Counter[Status | None] = collections.Counter()
    try:
        with folders.opened(directory) as folder:
            for name in _names(directory):
                for at, line in _lines(folder, name):
                    if history.checks and at < history.checks[-1].at:
                        raise text.BorderError(
                            f"{folder.path / name}: its check of {compliance.stamp(at)} comes after one of"
                            f" {compliance.stamp(history.checks[-1].at)}: remove the lines of the wrong time"
                        )
                    # Who is not in a whole line left the inventory in a month whose file is gone.
                    left = dict.fromkeys(history.statuses.keys() - line.statuses.keys()) if line.whole else {}
                    for host, status in (*left.items(), *line.statuses.items()):
                        _see(history, lasting, host, status, at)
                        if status and _tells(status):
                            history.seen.add(host)
                        counts[history.statuses.get(host)] -= 1
                        counts[status] += 1
                        _take(history.statuses, host, status)
                    history.checks.append(
                        Check(at, {state: count for state, count in counts.items() if state and count > 0})
                    )
    except OSError as error:
        raise text.BorderError(f"{directory}: the history of checks: {error.strerror}") from None
    if not history.checks:
        raise text.BorderError(
            f"{directory}: there is no history of checks: set smt_compliance_history to this directory first"
        )
    history.drifts.extend(Drift(host, since, None) for host, since in lasting.items())
    history.drifts.sort(key=lambda drift: (drift.until is not None, -drift.since.timestamp(), drift.host))
    return history


def _see(
    history: History, lasting: dict[str, datetime.datetime], host: str, status: Status | None, at: datetime.datetime
) -> None:
    """Take note of a host's status: a drift begins, or has ended."""
    if status is Status.DRIFTED:
        lasting.setdefault(host, at)
    elif (status is None or _tells(status)) and host in lasting:
        history.drifts.append(Drift(host, lasting.pop(host), at, status is None, status is Status.WAIVED))


def _tells(status: Status) -> bool:
    """Return whether a status says if a host has drifted."""
    return status.row.is_fine or status is Status.DRIFTED


def _take(statuses: dict[str, Status], host: str, status: Status | None) -> None:
    """Keep the latest word on a host; of one that left the inventory there is none."""
    statuses.pop(host, None)
    if status is not None:
        statuses[host] = status


def _names(directory: str | os.PathLike[str]) -> list[str]:
    return sorted(name for name in os.listdir(directory) if _NAME.fullmatch(name))


def _state(folder: folders.Folder, names: t.Sequence[str]) -> tuple[dict[str, Status], datetime.datetime | None, str]:
    """Return the statuses at the end of the last file that has checks, when its last one was, and its name; None and an
    empty name without any.
    """
    for name in reversed(names):
        lines = list(_lines(folder, name))
        if lines:
            statuses: dict[str, Status] = {}
            for _at, line in lines:
                for host, status in line.statuses.items():
                    _take(statuses, host, status)
            return statuses, lines[-1][0], name
    return {}, None, ""


def _lines(folder: folders.Folder, name: str) -> t.Iterator[tuple[datetime.datetime, CheckLine]]:
    """Yield the lines of a file, each with its time; one that was not written whole is none."""
    content = folder.read(name, MAX_FILE).decode("utf-8", "replace")
    for number, line in enumerate(content[: content.rfind("\n") + 1].splitlines(), 1):
        try:
            check = parts.decoded(line, CheckLine)
            at = text.moment(check.at)
        except (ValueError, text.BorderError) as error:
            raise text.BorderError(
                f"{folder.path / name}: line {number} is no check of this collection ({error}): remove the file"
            ) from None
        yield at, check
