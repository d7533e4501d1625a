# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host is quiet enough for an evaluation, and how long one waits for it."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import telemetry
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import text

MAX_SECONDS = 86400
_TIME = re.compile(r"([0-9]{1,6}(?:[.][0-9]{1,3})?) *(s|m|min|h|)")
_UNITS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


class QuietError(Exception):
    """A time to wait that is not valid; the text says what it has to be."""


def seconds(given: t.Any) -> float:
    """Return a time to wait in seconds.

    Args:
        given: a number of seconds, or one with a unit, such as ``10m``.

    Raises:
        QuietError: it is neither, or more than a day.
    """
    match = _TIME.fullmatch(str(given).strip()) if not isinstance(given, (bool, list, dict)) else None
    wait = float(match[1]) * _UNITS[match[2]] if match else None
    if wait is None or wait > MAX_SECONDS:
        raise QuietError(
            f"wait_quiet is {text.line(given, 40)}: it must be a time such as 90s, 10m or 1h, at most a day, or 0"
        )
    return wait


def is_busy(share: float) -> bool:
    """Return whether other work disturbs an evaluation.

    Args:
        share: of the host's CPUs that other work wants, as its description has it; above 1 it waits for them.
    """
    return share > telemetry.BUSY_SHARE
