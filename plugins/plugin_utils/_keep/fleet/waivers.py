# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Waivers: hosts that may differ from their policy until a day, for a reason, by somebody's leave.

A day is a day of UTC, wherever the controller and the host are, and the last day counts: a waiver until 2027-03-01 ends
with the midnight after it. A moment stands for the day of UTC that it is in, so that no waiver ends before it.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, policy

VARIABLE = "smt_policy_waiver"
# A waiver is valid, ends within `NOTICE_DAYS`, or is over.
VALID, ENDING, EXPIRED = "valid", "ending", "expired"
STATES = (VALID, ENDING, EXPIRED)
NOTICE_DAYS = 30
TEXTS = ("reason", "owner")
MAX_TEXT = 500

_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    rf"{_DAY.pattern}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,9}})?)? ?(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)?"
)
_DAY_SECONDS = 24 * 60 * 60
# What a host needs that is left alone.
_NO_CHANGE = {"running": None, "configured": None, "memory": False, "reboot": False}


class WaiverError(policy.PolicyError):
    """A waiver is not valid. The text gives the reason and what to set."""


@dataclasses.dataclass(frozen=True)
class Waiver:
    """Leave for a host to differ from its policy.

    Attributes:
        until: the last day, of UTC.
        reason: why, in one line.
        owner: who answers for it.
    """

    until: datetime.date
    reason: str
    owner: str

    def days_left(self, now: datetime.datetime) -> int:
        """Return how many whole days follow the present one: 0 on the last day, negative when it is over.

        Args:
            now: the present time, aware.
        """
        return (self.until - now.astimezone(datetime.UTC).date()).days

    def described(self, now: datetime.datetime) -> dict[str, t.Any]:
        """Return it as plain data: ``{until, state, days_left, reason, owner}``."""
        left = self.days_left(now)
        state = EXPIRED if left < 0 else ENDING if left <= NOTICE_DAYS else VALID
        return {
            "until": self.until.isoformat(),
            "state": state,
            "days_left": left,
            **{name: getattr(self, name) for name in TEXTS},
        }


def parse(value: t.Any) -> Waiver | None:
    """Return the waiver of a value of ``smt_policy_waiver``, None where it says that there is none.

    Args:
        value: ``{until, reason, owner}``; None, an empty mapping, an empty text and false are no waiver.

    Raises:
        WaiverError: it is not valid.
    """
    if value is None or value is False or value in ("", {}):
        return None
    names = ("until", *TEXTS)
    if not isinstance(value, dict):
        raise WaiverError(
            f"{VARIABLE} is {cpulist.quoted(value)}: it must be a mapping of until, reason and owner. Where a template"
            " makes it, write the day in quotes"
        )
    wrong = [name for name in value if name not in names]
    if wrong:
        raise WaiverError(
            f"{VARIABLE} has {cpulist.quoted(wrong[0])}: it has until, reason and owner, and nothing else"
        )
    missing = [name for name in names if value.get(name) is None]
    if missing:
        raise WaiverError(f"{VARIABLE} has no {' and no '.join(missing)}: give until, a day, reason and owner")
    texts = {name: text.line(value[name], MAX_TEXT).strip() if isinstance(value[name], str) else "" for name in TEXTS}
    for name, given in texts.items():
        if not given:
            raise WaiverError(f"{VARIABLE} has the {name} {cpulist.quoted(value[name])}: give a text, in quotes")
    return Waiver(_day(value["until"]), **texts)


def _day(value: t.Any) -> datetime.date:
    """Return the day of UTC that a date or a moment of YAML stands for, or a text of one."""
    # PyYAML makes a date of 2027-03-01, and a moment of what has a time; JSON and quotes leave a text.
    if not isinstance(value, datetime.date):
        value = _read(value)
    if not isinstance(value, datetime.datetime):
        return datetime.date(value.year, value.month, value.day)
    try:
        # Without a zone it is UTC, as YAML says.
        return (value.astimezone(datetime.UTC) if value.tzinfo else value).date()
    except OverflowError:
        raise WaiverError(f"{VARIABLE}: until {cpulist.quoted(str(value))} is no day of the calendar") from None


def _read(value: t.Any) -> datetime.date:
    text = value.strip() if isinstance(value, str) else ""
    try:
        if _DAY.fullmatch(text):
            return datetime.date.fromisoformat(text)
        if _MOMENT.fullmatch(text):
            return datetime.datetime.fromisoformat(text.replace(" ", "T", 1).replace(" ", ""))
    except ValueError:
        pass
    raise WaiverError(
        f"{VARIABLE} has until {cpulist.quoted(value)}: it must be a day as YYYY-MM-DD, the last one, of UTC, or a"
        " moment as YYYY-MM-DDTHH:MM:SSZ, which stands for the day that it is in"
    )


def in_force(result: compliance.ComplianceResult) -> bool:
    """Return whether a host has a waiver that is not over, so that nothing is changed on it."""
    return result["waiver"] is not None and result["waiver"]["state"] != EXPIRED


def applied(
    result: compliance.ComplianceResult, waiver: Waiver | None, now: datetime.datetime
) -> compliance.ComplianceResult:
    """Return a host's result with its waiver: what differs is waived as long as it is in force, and nothing is changed.

    Args:
        result: of :func:`compliance.judge` or :func:`compliance.refused`.
        waiver: from :func:`parse`.
        now: the present time, aware.
    """
    if waiver is None:
        return result
    changed = {**result, "waiver": waiver.described(now)}
    if in_force(changed):
        changed["change"] = result["change"] and _NO_CHANGE
        if result["status"] == compliance.DRIFTED:
            changed["status"] = compliance.WAIVED
    waived = sentence(changed) if result["status"] == compliance.DRIFTED else None
    return {**changed, "sentence": ". ".join(filter(None, [result["sentence"], waived]))}


def end(described: t.Mapping[str, t.Any]) -> int:
    """Return when a waiver ends, in seconds since 1970: the midnight after its last day.

    Args:
        described: from :meth:`Waiver.described`.
    """
    last = datetime.datetime.fromisoformat(described["until"]).replace(tzinfo=datetime.UTC)
    return int(last.timestamp()) + _DAY_SECONDS


def sentence(result: compliance.ComplianceResult) -> str:
    """Return what the waiver of a host means for it."""
    waiver = result["waiver"]
    verb = "its waiver ended with" if waiver["state"] == EXPIRED else "waived until"
    left = (
        ""
        if waiver["state"] != ENDING
        else ", its last day"
        if not waiver["days_left"]
        else f", {waiver['days_left']} more day{'s' if waiver['days_left'] > 1 else ''}"
    )
    return f"{verb} {waiver['until']} (UTC{left}) by {waiver['owner']}: {waiver['reason']}"


def notice(judged: t.Iterable[tuple[str, compliance.ComplianceResult]], most: int) -> str:
    """Return a sentence that names the hosts whose waiver ends soon or is over, and that differ; empty without one.

    Args:
        judged: the hosts.
        most: of them that are named of each kind.
    """
    by_state: dict[str, list[str]] = {ENDING: [], EXPIRED: []}
    for host, result in judged:
        waiver = result["waiver"]
        if waiver and waiver["state"] in by_state and result["status"] in (compliance.WAIVED, compliance.DRIFTED):
            by_state[waiver["state"]].append(f"{host} ({waiver['until']})")
    words = {EXPIRED: "Waivers that ended", ENDING: f"Waivers that end within {NOTICE_DAYS} days"}
    return " ".join(
        f"{words[state]}: {', '.join(by_state[state][:most])}"
        f"{f' and {len(by_state[state]) - most} more' if len(by_state[state]) > most else ''}."
        for state in words
        if by_state[state]
    )
