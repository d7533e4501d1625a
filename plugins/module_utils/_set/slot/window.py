# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hours in which hosts may be rebooted, in UTC: no clock change makes them longer or shorter, and a controller and
its hosts agree about them. Pure rules.
"""

import re
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._set.slot.settings import SlotError

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY_SECONDS = 24 * 3600
_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])|24:00")


class Window(t.NamedTuple):
    """A window.

    Attributes:
        days: on which it begins, 0 for Monday.
        begin: seconds from midnight.
        end: the same, beyond a day where the window is over on the next one.
    """

    days: "frozenset[int]"
    begin: int
    end: int

    def opens_in(self, now: float) -> float:
        """Return the seconds until it is open, 0 where it is.

        Args:
            now: seconds since 1970.
        """
        today = int(now // _DAY_SECONDS)
        for day in range(today - 1, today + 8):
            # The first of January 1970 was a Thursday.
            if (day + 3) % 7 in self.days:
                begin, end = (day * _DAY_SECONDS + moment for moment in (self.begin, self.end))
                if now < end:
                    return max(0.0, begin - now)
        raise AssertionError("there is no day in eight")

    def opens_at(self, now: float) -> str:
        """Return the moment when it opens, for a sentence."""
        return time.strftime("%a %Y-%m-%d %H:%M UTC", time.gmtime(now + self.opens_in(now)))


def parse(given: t.Any) -> "Window | None":
    """Return what `smt_reboot_window` says, None where it is empty.

    Raises:
        SlotError: it is no window.
    """
    if not given:
        return None
    if not isinstance(given, dict) or not {"from", "to"} <= set(given) <= {"days", "from", "to"}:
        raise SlotError('it must be a mapping such as {days: [sat, sun], from: "02:00", to: "05:00"}, in UTC')
    days = given.get("days", list(DAYS))
    if not isinstance(days, list) or not days or not all(str(day).lower() in DAYS for day in days):
        raise SlotError(f"its days must be a list of {', '.join(DAYS)}")
    begin, end = (_seconds(name, given[name]) for name in ("from", "to"))
    if begin in (end, _DAY_SECONDS):
        raise SlotError("it begins when it ends: leave it out to reboot at any time")
    return Window(
        frozenset(DAYS.index(str(day).lower()) for day in days), begin, end if end > begin else end + _DAY_SECONDS
    )


def _seconds(name: str, value: t.Any) -> int:
    # YAML 1.1 reads 22:00 without quotes as a number of base 60.
    if isinstance(value, int) and not isinstance(value, bool) and 60 <= value <= 1440:
        return value * 60
    match = _TIME.fullmatch(value) if isinstance(value, str) else None
    if not match:
        raise SlotError(f'its {name} must be a time of UTC such as "02:00", in quotes')
    return int(match[1]) * 3600 + int(match[2]) * 60 if match[1] else _DAY_SECONDS
