# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Numbers as tools print them: with units that change from run to run, as times, and cut in two by a separator.

What a number means has to be the same in all samples that are compared. So a unit is converted to that of the metric
where it can be, and refused where it has two meanings; a number of which only a part was matched is refused.
"""

import math
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import UnreadableError

SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "usec", "usecs", "micros", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
}
_PREFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
# What is counted, behind a prefix: the k of kIOPS is one, that of keys is not.
_COUNTED = ("req", "reqs", "requests", "op", "ops", "iops", "tps", "qps", "rps", "ips", "pps", "tx", "events", "msgs")
_BYTES = re.compile(r"([kKMGTPE]?)(i?)(B|[Bb]ytes?|b|[Bb]its?)(ps)?\Z")

_NUMBER = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_PLAIN = re.compile(_NUMBER + r"\Z")
_WORD = r"[A-Za-z\u00b5\u03bc]+(?:/[A-Za-z\u00b5\u03bc]+)?"
_WITH_UNIT = re.compile(rf"({_NUMBER})\s*({_WORD})\Z")
_PART = r"([0-9]+(?:\.[0-9]+)?)(ms|us|\u00b5s|\u03bcs|ns|h|min|m|s)"
_TIME = re.compile(rf"(?:{_PART}){{2,}}\Z")
_CLOCK = re.compile(r"(?:([0-9]+):)?([0-9]+):([0-9]{2}(?:\.[0-9]+)?)\Z")
_SEPARATED = re.compile(r"[0-9][,_'\u2019\u00a0\u2009\u202f][0-9]")
_NEXT_UNIT = re.compile(rf"([ \t]*[\[(]|[ \t]?)((?:[kKMGT] )?{_WORD})(?!\s*[:=])")
# A prefix may stand apart, as in 15.6 k iops.
_APART = re.compile(r"^([kKMGT]) (?=[A-Za-z])")
# What shows before and behind a match that it is a part of a longer number: digits, separators, an exponent, a sign.
_CUT_BEFORE = re.compile(r"(?:[0-9][.,_'\u2019\u00a0\u2009\u202f]?|(?:^|[\s=:(\[])-)\Z")
_CUT_BEHIND = re.compile(r"[.,_'\u2019\u00a0\u2009\u202f]?[0-9]|[eE][+-]?[0-9]")
# The same of a time, such as 1m2.5s and 0:01.5.
_TIME_BEFORE = re.compile(r"[0-9](?:h|min|m|s)\Z")
_CLOCK_BEFORE, _CLOCK_REST = re.compile(r"[0-9]:\Z"), re.compile(r"[0-9]{2}(?![0-9])")
_TIME_BEHIND = re.compile(r":[0-9]{2}|(?:h|min|m|s|ms|us|\u00b5s|\u03bcs)[0-9]")
# Without a number right before them these are words of something else.
_SHORT = frozenset(("m", "min", "h", *_PREFIXES))
CONTEXT = 40


class Place(t.NamedTuple):
    """Where a number stands.

    Attributes:
        before: the text before it, at most ``CONTEXT`` characters.
        text: the number as it was matched.
        behind: the text behind it, as long at most.
        unit: its unit where the match has it, else None.
    """

    before: str
    text: str
    behind: str
    unit: "str | None"


def number(place: Place, declared: str, scale: float = 1.0) -> float:
    """Return a printed number in the unit of its metric, times a factor; NaN for a text that is no number.

    Args:
        place: the number and what is around it.
        declared: the unit of the metric.
        scale: the factor that the user declares.

    Raises:
        UnreadableError: a part of a number was matched, or its unit cannot be converted. The message says how it can be
            read.
    """
    text = place.text.strip().rstrip(",;)]")
    if _is_cut(place, text, declared):
        raise UnreadableError(
            f"{_quoted(place)} was matched in a longer number: let the group of the pattern have all of it. One with a"
            " separator, such as 12,345, can be read in two ways: print it without, for instance by argv: [sh, -c,"
            ' "COMMAND | tr -d ,"]'
        )
    if _PLAIN.match(text):
        value = float(text)
        if place.unit is not None:
            return value * _factor(place, place.unit, declared) * scale
        return value * _unasked_factor(place, declared, scale)
    with_unit = _WITH_UNIT.match(text)
    if with_unit:
        return float(with_unit.group(1)) * _factor(place, with_unit.group(2), declared) * scale
    seconds = _seconds(text)
    if not math.isnan(seconds):
        return seconds * _factor(place, "s", declared) * scale
    return math.nan


def ratio(printed: str, declared: str) -> "float | None":
    """Return by what a number in one unit is multiplied to be in another.

    Args:
        printed: the unit as a tool prints it.
        declared: the unit of the metric.

    Returns:
        The factor, NaN where it has two meanings, such as that of KB, and None where the units are of different things.
    """
    (amount, per), (wanted, wanted_per) = _parts(printed), _parts(declared)
    if per and per != wanted_per:
        return None
    if amount == wanted:
        return 1.0
    times = _time(amount), _time(wanted)
    if times[0] and times[1]:
        return times[0] / times[1]
    of_bytes = _BYTES.match(wanted)
    if of_bytes:
        return _of_bytes(amount, _BYTES.match(amount), of_bytes)
    return None if times[0] or times[1] else _of_counts(amount, wanted)


def _of_bytes(amount: str, printed: "t.Match[str] | None", wanted: "t.Match[str]") -> "float | None":
    letter = printed.group(1) if printed else amount
    if not printed and letter not in _PREFIXES:
        return None
    same = letter.lower() == wanted.group(1).lower()
    # K, and a prefix without its bytes, is 1000 in one tool and 1024 in another.
    unclear = [not match.group(2) and match.group(1) == "K" for match in (printed, wanted) if match]
    if not printed or any(unclear):
        bits = printed is None or _bits(printed) == _bits(wanted)
        return 1.0 if same and bits else math.nan
    return _size(printed) / _size(wanted)


def _size(match: "t.Match[str]") -> float:
    power = "KMGTPE".find(match.group(1).upper()) + 1 if match.group(1) else 0
    return (1024.0 if match.group(2) else 1000.0) ** power / (8 if _bits(match) else 1)


def _bits(match: "t.Match[str]") -> bool:
    return match.group(3) == "b" or match.group(3).lower().startswith("bit")


def _of_counts(amount: str, wanted: str) -> "float | None":
    of_wanted = _PREFIXES.get(wanted[:1], 1.0) if wanted[1:].lower() in _COUNTED else 1.0
    counted = wanted[1:] if of_wanted > 1 else wanted
    if amount == counted:
        return 1 / of_wanted
    return _PREFIXES[amount[0]] / of_wanted if amount[:1] in _PREFIXES and amount[1:] in ("", counted) else None


def _parts(unit: str) -> "tuple[str, str]":
    """Return what is counted, and per what."""
    plain = unit.strip().strip("()[]").replace("\u00b5", "u").replace("\u03bc", "u")
    amount, _slash, per = re.sub(r" ?/ ?| per ", "/", _APART.sub(r"\1", plain)).partition("/")
    if amount.endswith("ps") and _BYTES.match(amount):
        amount, per = amount[:-2], "s"
    return amount, str(_time(per) or per.lower())


def _time(unit: str) -> "float | None":
    return SECONDS.get(unit) or (SECONDS.get(unit.lower()) if len(unit) > 2 else None)


def _seconds(text: str) -> float:
    """Return the seconds of a time such as 1m2.5s or 0:01.50, NaN for another text."""
    if _TIME.match(text):
        return sum(float(count) * SECONDS[_parts(unit)[0]] for count, unit in re.findall(_PART, text))
    clock = _CLOCK.match(text)
    if clock:
        return int(clock.group(1) or 0) * 3600.0 + int(clock.group(2)) * 60.0 + float(clock.group(3))
    return math.nan


def _is_cut(place: Place, text: str, declared: str) -> bool:
    if _SEPARATED.search(text) or _CUT_BEFORE.search(place.before) or _CUT_BEHIND.match(place.behind):
        return text[:1] in tuple("+-.0123456789")
    return bool(_time(_parts(declared)[0])) and bool(
        _TIME_BEFORE.search(place.before)
        or (_CLOCK_BEFORE.search(place.before) and _CLOCK_REST.match(text))
        or _TIME_BEHIND.match(place.behind)
    )


def _factor(place: Place, unit: str, declared: str) -> float:
    """Return the factor for a unit that the match has."""
    factor = ratio(unit, declared)
    if factor is None or math.isnan(factor):
        why = (
            "K, and a prefix alone, is 1000 for some tools and 1024 for others" if factor else "it is of something else"
        )
        raise UnreadableError(
            f"{_quoted(place)} is in {unit[:20]!r}, which cannot be converted to {declared!r}, the metric's unit: {why}"
        )
    return factor


def _unasked_factor(place: Place, declared: str, scale: float) -> float:
    """Return the factor where the match has no unit: that of the unit behind it, if it is another one of the same
    thing. Tools change it from run to run.
    """
    following = _NEXT_UNIT.match(place.behind)
    if not following or (following.group(1) and following.group(2) in _SHORT):
        return scale
    factor = ratio(following.group(2), declared)
    if factor is None:
        return scale
    if math.isnan(factor):
        return _factor(place, following.group(2), declared)
    if scale != 1.0 and not math.isclose(scale, factor):
        raise UnreadableError(
            f"{_quoted(place)} is followed by its unit {following.group(2)!r}, and scale is {scale:g}: without it the"
            f" number is converted to {declared!r}. With it, match the unit too, as a group (?P<unit>...)"
        )
    return factor


def _quoted(place: Place) -> str:
    return repr(place.text[:60])
