# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts that somebody else may have written: JSON parsed within limits, names made printable; and the time as text.

This file is copied to a host as part of the rollback program: it imports nothing from the collection.
"""

import json
import math
import time
import typing as t

MOST_DIGITS = 100
"""The longest integer accepted: int() of many digits is slow."""

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


def printable(text: str, most: int = 200) -> str:
    """Return untrusted text without control characters, which a terminal would interpret.

    Args:
        text: any text.
        most: maximum length of the result, in characters.
    """
    return "".join(char if char.isprintable() else "?" for char in text)[:most]


def utc_now() -> str:
    """Return the current time as ISO 8601 in UTC, to the second."""
    return time.strftime(UTC_FORMAT, time.gmtime())


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large: only finite numbers are accepted")
    return number


def _short_integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"an integer has {len(text)} digits: only finite numbers of at most {MOST_DIGITS} digits are accepted")
    return int(text)


def _no_constant(text: str) -> t.NoReturn:
    raise ValueError(f"{text} is not a number: only finite numbers are accepted")
