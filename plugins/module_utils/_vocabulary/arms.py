# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The arms that an evaluation compares: their names in results and their titles for users."""

from __future__ import annotations

SMT_ON, SMT_OFF, AS_FOUND = "smt_on", "smt_off", "as_found"
TITLES = {
    SMT_ON: "SMT on",
    SMT_OFF: "SMT off",
    AS_FOUND: "as found",
    "overcommit_strict": "strict overcommit",
    "panic_on_oom": "panic when out of memory",
}


def title(name: str) -> str:
    """Return the title of an arm for users; an unknown arm's name is returned unchanged."""
    return TITLES.get(name, name)
