# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How numbers, changes and lists are said in sentences."""

from __future__ import annotations

import collections
import functools
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import verdicts
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.room import Use
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import change

# The verdict of several hosts together, where single ones say opposite things.
HOSTS_DISAGREE = "hosts_disagree"

# Verdict -> the word for people.
VERDICT_TITLES = {
    verdicts.GAIN: "better",
    verdicts.LOSS: "worse",
    verdicts.EQUIVALENT: "no difference",
    verdicts.INCONCLUSIVE: "not decided",
    HOSTS_DISAGREE: "hosts disagree",
}
# More workloads than this are counted, not named.
NAMED = 3
# An effect of SMT within this share of the work counts as none, as in evaluations.
MARGIN = 0.01
# Of an almost idle host the room is not said to the percent.
MANY = 10.0


@functools.lru_cache(maxsize=4096)
def percent(share: float, unit: str = " %") -> str:
    """Format a share as percent, with one decimal below ten."""
    value = 100 * share
    return f"{value:.1f}{unit}" if abs(value) < 10 and round(value, 1) != round(value) else f"{value:.0f}{unit}"


@functools.lru_cache(maxsize=4096)
def number(value: float | None, digits: int = 4) -> str:
    """Format a measured value with its significant digits, without an exponent for everyday sizes."""
    if value is None:
        return "unknown"
    if value == 0 or not 1e-4 <= abs(value) < 1e9:
        return f"{value:.{digits}g}"
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return f"{value:,.{max(0, digits - 1 - exponent)}f}".replace(",", "\u202f")


def amount(value: float, digits: int = 3) -> str:
    """Format a measured value for a sentence: with these significant digits, and none that say nothing."""
    text = f"{value:.{digits}g}"
    return number(float(text), digits) if "e" in text else text


def margin(share: float) -> str:
    """Format a margin as it was asked for: ``0.25 %``."""
    return f"{100 * share:.10g} %"


def span(ends: t.Sequence[float]) -> str:
    """Return a share between two limits: ``76 to 84 %``, one number where they are the same."""
    low, high = map(percent, ends)
    return low if low == high else f"{low.removesuffix(' %')} to {high}"


class Room(t.NamedTuple):
    """How much room is left.

    Attributes:
        usage: of a host's CPUs.
        work: the share that it does of what it can do, between two limits.
        room: for more of it, as a share of what it does, likewise; None where it does none.
        by_usage: what usage says of that; likewise None.
    """

    usage: float
    work: tuple[float, float]
    room: tuple[float, float] | None
    by_usage: float | None


def room_left(use: Room | Use) -> str:
    """Return ``CPU usage is 50 %, and it does 76 to 84 % of the work that it can do: ...``.

    Args:
        use: of a host.
    """
    begun = f"CPU usage is {percent(use.usage)}, and it does {span(use.work)} of the work that it can do"
    if use.room is None:
        return f"{begun}."
    if use.room[0] > MANY:
        return f"{begun}: there is room for more than {MANY:.0f} times as much of such work."
    by_usage = f", not for {percent(use.by_usage or 0.0)} as usage says" if room_differs(use) else ""
    return f"{begun}: there is room for {span(use.room)} more of such work{by_usage}."


def room(use: Room | Use) -> str:
    """Return the room that is left for a cell of a table; the argument is that of :func:`room_left`."""
    if use.room is None:
        return "-"
    return f"over {MANY:.0f} times" if use.room[0] > MANY else f"{span(use.room)} more"


def room_differs(use: Room | Use) -> bool:
    """Return whether usage says something else of the room, as far as that matters; likewise."""
    if use.room is None:
        return False
    low, high = use.room
    return bool(low <= MANY and not low - MARGIN <= (use.by_usage or 0.0) <= high + MARGIN)


def signed(ratio: float) -> str:
    """Format a ratio as the change it means: 0.8 is ``−20 %``.

    Args:
        ratio: above 0; 1 is no change.
    """
    return signed_share(ratio - 1)


def change_of(relative_change: change.Change, end: float | None = None) -> str:
    """Format a change as ``−20 %``, with one more digit for narrow intervals.

    Args:
        relative_change: the change.
        end: one end of its interval, in the place of its value.
    """
    places = (
        None
        if relative_change.low is None or relative_change.high is None
        else digits(relative_change.low, relative_change.high)
    )
    return signed_share(relative_change.value if end is None else end, places)


def change_and_interval(relative_change: change.Change) -> str:
    """Format a change as ``−20 % (−22 to −18 %)``."""
    if relative_change.low is None or relative_change.high is None:
        return f"{change_of(relative_change)} (no interval)"
    low, high = (change_of(relative_change, end) for end in (relative_change.low, relative_change.high))
    return f"{change_of(relative_change)} ({low.removesuffix(' %')} to {high})"


def ends(relative_change: change.Change) -> str:
    """Format the interval of a change, each end with as many digits as :func:`percent` gives."""
    return " to ".join(signed_share(end) for end in relative_change[1:] if end is not None)


def change_of_ratio(ratio: float, better: str) -> str:
    """Format the metric's own change for a ratio that is turned so that above 1 is better."""
    return signed_share(change.of_ratio(ratio, better) or 0.0)


def signed_share(share: float, places: int | None = None) -> str:
    """Format a change with its sign, as ``−20 %``; ``±0 %`` where it is none.

    Args:
        share: the change; 0 is none.
        places: the number of decimals, or None for as many as :func:`percent` gives.
    """
    text = percent(abs(share)) if places is None else f"{100 * abs(share):.{places}f} %"
    return f"{'+' if share > 0 else '−'}{text}" if text.strip(" 0.%") else f"±{text}"


def counted(count: int, what: str) -> str:
    """Return ``1 host``, ``2 hosts``."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def digits(low: float, high: float) -> int:
    """Return the number of decimals of a change in percent whose interval has these ends."""
    return 0 if high - low >= 0.05 else 1


def capital(text: str) -> str:
    """Return a text as the begin of a sentence."""
    return f"{text[:1].upper()}{text[1:]}"


def clause(text: str) -> str:
    """Turn a foreign message into a clause without a full stop."""
    return text.strip().rstrip(".")


def verb(group: t.Sequence[t.Any], singular: str, many: str) -> str:
    """Return the form of a verb that goes with a group of one, or of several."""
    return singular if len(group) == 1 else many


def named(names: t.Sequence[str]) -> str:
    """Name the first ones and count the others."""
    return join(names) if len(names) <= NAMED else f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def join(parts: t.Sequence[str]) -> str:
    """Return ``a``, ``a and b`` or ``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def first_of(sentences: t.Sequence[str], what: str, verdicts: t.Sequence[str] | None = None) -> list[str]:
    """Return the first sentences of some that are of one kind, and how many more there are.

    Args:
        sentences: all of them.
        what: they are about, in the plural.
        verdicts: of each; None where all say the same.
    """
    more = len(sentences) - NAMED
    # One more is said itself: that takes no more room.
    if more <= 1:
        return list(sentences)
    summary = f"The same holds for {more} further {what}."
    if verdicts is not None:
        counts = collections.Counter(VERDICT_TITLES.get(verdict, verdict) for verdict in verdicts[NAMED:])
        summary = f"{more} further {what}: {join([f'{count} {word}' for word, count in counts.items()])}."
    return [*sentences[:NAMED], summary]


def tied(text: str) -> str:
    """Put no-break spaces between numbers and percent signs."""
    return text.replace(" %", "\u00a0%")


def interval(changed: change.Change) -> str:
    """Format a change's interval as ``−22 % to −18 %``."""
    if changed.low is None or changed.high is None:
        return "none"
    return f"{change_of(changed, changed.low)} to {change_of(changed, changed.high)}"


def cpu_list(value: str | tuple[int, ...] | None) -> str:
    """Format CPUs as a kernel CPU list, from such a text or from numbers."""
    if isinstance(value, tuple):
        value = cpulist.render(value)
    return value or "none" if isinstance(value, str) else "unknown"
