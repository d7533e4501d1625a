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
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts, schema, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import policy

VARIABLE = "smt_policy_waiver"
# A waiver is valid, ends within `NOTICE_DAYS`, or is over.
State = t.Literal["valid", "ending", "expired"]
NOTICE_DAYS = 30
TEXTS = ("reason", "owner")
MAX_TEXT = 500

_DAY = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(
    rf"{_DAY.pattern}[T ][0-9]{{2}}:[0-9]{{2}}(:[0-9]{{2}}([.][0-9]{{1,9}})?)? ?(Z|[+-][0-9]{{2}}(:?[0-9]{{2}})?)?"
)
_DAY_SECONDS = 24 * 60 * 60


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

    def at(self, now: datetime.datetime) -> Leave:
        """Return what it means at a time (aware)."""
        left = self.days_left(now)
        state: State = "expired" if left < 0 else "ending" if left <= NOTICE_DAYS else "valid"
        return Leave(self.until.isoformat(), state, left, self.reason, self.owner)


class Leave(parts.Excerpt, frozen=True):
    """A waiver at the time of a check.

    Attributes of the file:
        until: its last day, of UTC.
        state: whether it is valid, ends within 30 days, or is over and excuses nothing.
        days_left: whole days after that of the check: 0 on its last day, negative when it is over.
        reason: why the host may differ.
        owner: who answers for it.
    """

    until: parts.Day
    state: t.Annotated[State, parts.in_order(State)]
    days_left: t.Annotated[int, parts.between(-schema.MAX_SECONDS, schema.MAX_SECONDS)]
    reason: parts.Line
    owner: parts.Line

    @property
    def is_in_force(self) -> bool:
        """Whether it is not over."""
        return self.state != "expired"

    @property
    def end(self) -> int:
        """When it ends, in seconds since 1970: the midnight after its last day."""
        last = datetime.datetime.fromisoformat(self.until).replace(tzinfo=datetime.UTC)
        return int(last.timestamp()) + _DAY_SECONDS

    @property
    def sentence(self) -> str:
        """What it means for its host."""
        verb = "waived until" if self.is_in_force else "its waiver ended with"
        left = (
            ""
            if self.state != "ending"
            else ", its last day"
            if not self.days_left
            else f", {self.days_left} more day{'s' if self.days_left > 1 else ''}"
        )
        return f"{verb} {self.until} (UTC{left}) by {self.owner}: {self.reason}"


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
