# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts that somebody else may have written: JSON parsed within limits, hidden characters made visible;
the address of a server; and the time as text.
"""

import json
import math
import re
import time
import typing as t
import unicodedata
import urllib.parse

MAX_DIGITS = 100
"""The longest integer accepted: int() of many digits is slow."""

MAX_MARKS = 4
"""Marks above and below one character: Hebrew and Vietnamese put up to three there, and any number
covers the lines around it.
"""

# Of Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties.txt) those that str.isprintable takes for printable,
# because they are letters or marks; and the blank of Braille, which has no glyph either.
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")

_PLAIN = re.compile("[ -~]*")
# In an address.
_VISIBLE = frozenset(map(chr, range(0x21, 0x7F)))

UTC_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
"""A time as the files of this collection have it, for time.strftime and time.strptime."""


def parse_json(text: str) -> t.Any:
    """Parse a JSON text whose numbers are finite and short.

    Raises:
        json.JSONDecodeError: it is not JSON.
        ValueError: a number is not finite or has too many digits, or the nesting is too deep.
    """
    try:
        return json.loads(text, parse_float=_finite, parse_int=_short_integer, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def visible(text: str, layout: str = "") -> str:
    r"""Return untrusted text with each character that has no glyph, or acts on the text around it, as its escape,
    such as ``\x1b`` or ``\u202e``.

    These are all that Unicode calls control, format, surrogate, private or unassigned, line and paragraph separators,
    those that are ignorable by default, such as tags, fillers and variation selectors, and marks that stand on nothing
    or after ``MAX_MARKS`` others. Spaces of all widths stay.

    Args:
        text: any text.
        layout: the control characters that stay, such as a newline.
    """
    # Most texts, and there are hundreds of thousands in a report on a fleet.
    if _PLAIN.fullmatch(text):
        return text
    used = set(text)
    hidden = {character for character in used if _is_hidden(character)}.difference(layout)
    marks = set(filter(_is_mark, used - hidden))
    if marks:
        return "".join(_with_few_marks(text, hidden, marks))
    return text.translate({ord(character): _escape(character) for character in hidden}) if hidden else text


def may_hide(character: str) -> bool:
    """Return whether :func:`visible` escapes a character, or does after certain others."""
    return _is_hidden(character) or _is_mark(character)


def printable(text: str, most: int = 200) -> str:
    """Return untrusted text as one line that a terminal does not interpret.

    Args:
        text: any text.
        most: maximum length of the result, in characters.
    """
    return visible(text[:most])[:most]


def _is_hidden(character: str) -> bool:
    return (not character.isprintable() and unicodedata.category(character) != "Zs") or bool(_BLANK.match(character))


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) in ("Mn", "Me")


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def _with_few_marks(text: str, hidden: "t.Container[str]", marks: "t.Container[str]") -> "t.Iterator[str]":
    room = 0
    for character in text:
        if character in hidden:
            room = 0
            yield _escape(character)
        elif character not in marks:
            room = 0 if character.isspace() else MAX_MARKS
            yield character
        elif room:
            room -= 1
            yield character
        else:
            yield _escape(character)


def utc_now() -> str:
    """Return the current time as ISO 8601 in UTC, to the second."""
    return time.strftime(UTC_FORMAT, time.gmtime())


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large: only finite numbers are accepted")
    return number


def _short_integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise ValueError(
            f"an integer has {len(text)} digits: only finite numbers of at most {MAX_DIGITS} digits are accepted"
        )
    return int(text)


def _no_constant(text: str) -> t.NoReturn:
    raise ValueError(f"{text} is not a number: only finite numbers are accepted")


def address(url: t.Any) -> urllib.parse.SplitResult:
    """Return the parts of a server's address; all are empty where it is none.

    A message about one that is wrong shows nothing of it: it may have a password in it.

    Args:
        url: whatever was given.
    """
    none = urllib.parse.urlsplit("")
    if not isinstance(url, str):
        return none
    try:
        parts = urllib.parse.urlsplit(url)
        is_one = bool(parts.hostname) and (parts.port is None or 0 < parts.port < 65536) and _VISIBLE.issuperset(url)
    except ValueError:
        return none
    return parts if is_one else none
