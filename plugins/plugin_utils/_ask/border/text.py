# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text from a host: JSON parsing within limits, and text made safe for a terminal or a page."""

from __future__ import annotations

import datetime
import json
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text

# What lays out a text of several lines.
_LAYOUT = "\t\n"

# JSON escapes that can stand for unsafe characters.
_ESCAPES = ("\\u", "\\b", "\\f", "\\r")

MOMENT = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"
"""A pattern of what ``host_text.UTC_FORMAT`` writes."""


class BorderError(Exception):
    """Data from a host is not valid. The message names the part and the reason."""


def showable(text: str) -> str:
    """Return a text whose every character is seen on a page or a terminal:
    what hides is written as its escape (:func:`host_text.visible`).
    """
    return text if text.isascii() and text.isprintable() else host_text.visible(text, _LAYOUT)


def line(text: t.Any, most: int = 500) -> str:
    """Format any value as one line of at most ``most`` characters that are all seen."""
    seen = host_text.visible(" ".join(str(text)[: most * 2 + 100].split()))
    return seen if len(seen) <= most else f"{seen[: most - 3]}..."


def moment(written: str) -> datetime.datetime:
    """Return the time (aware) of a text as ``host_text.UTC_FORMAT`` has it.

    Raises:
        ValueError: it is none.
    """
    # `strptime` takes more than ten times as long, and each host of a fleet has one.
    if not re.fullmatch(MOMENT, written):
        raise ValueError(f"{line(written, 60)} is no time such as 2026-11-28T22:16:05Z")
    return datetime.datetime.fromisoformat(written)


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
    """Parse a JSON text as plain data with finite numbers and strings that are safe to display.

    Raises:
        BorderError: not JSON, a number is not finite, an integer has more than ``host_text.MAX_DIGITS`` digits, or the
            nesting is too deep.
    """
    try:
        data = host_text.parse_json(text)
        # Most texts have nothing to replace, and scanning the text takes a tenth of the time of walking the data.
        return showable_all(data) if may_be_unshowable(text) else data
    except json.JSONDecodeError as error:
        raise BorderError(
            f"not a complete JSON document ({error.msg} at line {error.lineno}, column {error.colno})"
        ) from error
    except ValueError as error:
        raise BorderError(str(error)) from error
    except RecursionError:
        raise BorderError("nested too deeply") from None


def may_be_unshowable(text: str) -> bool:
    """Return whether :func:`showable` could change a string of a JSON text.

    JSON itself forbids unescaped control characters.
    """
    if "\\" in text and any(escape in text for escape in _ESCAPES):
        return True
    return "\x7f" in text if text.isascii() else any(map(host_text.may_hide, set(text).difference("\t\n\r")))
