# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much is tried: by day one or two cases of each kind, at night all. The marker ``night`` says it of tests."""

import os

NIGHT = bool(os.environ.get("NIGHT"))


def number(day: int, of_night: int) -> int:
    """Return how many seeds, steps or answers are tried now."""
    return of_night if NIGHT else day
