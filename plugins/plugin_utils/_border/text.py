# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from a host: read as JSON within limits, and made fit for a terminal or a page."""

from __future__ import annotations

import json
import math
import re
import typing as t

try:
    import orjson
except ImportError as error:
    MISSING_LIBRARY: ImportError | None = error
else:
    MISSING_LIBRARY = None

# C0 and C1 controls but tab and newline, lone surrogates (they cannot be encoded), and the marks that reverse the reading order of what follows.
_UNSHOWABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069]")

# How JSON writes what may be unshowable without holding it.
_ESCAPES = ("\\u", "\\b", "\\f", "\\r")

# The longest integer that is read at all: nothing that a machine counts has more digits, and int() of many is slow.
MOST_DIGITS = 100


class BorderError(Exception):
    """What came from a host cannot be accepted. The message says what of it, and why."""


def showable(text: str) -> str:
    """Replace every character that cannot be encoded or that disturbs a page or a terminal by U+FFFD."""
    return _UNSHOWABLE.sub("\ufffd", text)


def line(text: t.Any, most: int = 500) -> str:
    """Make one line of at most ``most`` printable characters of any value, fit for a terminal."""
    words = " ".join(str(text)[: most * 2 + 100].split())
    words = "".join(character if character.isprintable() else "\ufffd" for character in words)
    return words if len(words) <= most else f"{words[: most - 3]}..."


def showable_all(value: t.Any) -> t.Any:
    """Apply :func:`showable` to every string and key of JSON data."""
    if isinstance(value, str):
        return showable(value)
    if isinstance(value, dict):
        return {showable(key): showable_all(item) for key, item in value.items()}
    if isinstance(value, list):
        return [showable_all(item) for item in value]
    return value


def parse(text: str) -> t.Any:
    """Read a JSON text as plain data with finite numbers, all of its strings showable.

    Raises:
        BorderError: it is not JSON, holds a number that is not finite or an integer of more than ``MOST_DIGITS`` digits, or is nested too deeply.
    """
    try:
        data = _loads(text)
        # Most texts hold nothing that has to be replaced, and to look at the text is a tenth of the work of going through the data.
        return showable_all(data) if _may_be_unshowable(text) else data
    except json.JSONDecodeError as error:
        raise BorderError(f"not a whole JSON document ({error.msg} at line {error.lineno}, column {error.colno})") from error
    except ValueError as error:
        raise BorderError(f"{error}: finite numbers only are read") from error
    except RecursionError as error:
        raise BorderError("nested too deeply") from error


def _loads(text: str) -> t.Any:
    """JSON as data: by orjson, and what that refuses by the standard library, which takes halves of surrogates and says which constant or number is wrong."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text, parse_float=_finite, parse_int=_short_integer, parse_constant=_no_constant)


def _may_be_unshowable(text: str) -> bool:
    """Whether a JSON text may hold a string that :func:`showable` would change. JSON itself forbids the controls below a space."""
    if "\\" in text and any(escape in text for escape in _ESCAPES):
        return True
    return "\x7f" in text if text.isascii() else _UNSHOWABLE.search(text) is not None


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _short_integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _no_constant(text: str) -> t.NoReturn:
    raise ValueError(f"{text} is no number")
