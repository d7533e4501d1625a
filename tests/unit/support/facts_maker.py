# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts as the object behind the border, of plain facts with other values of some parts."""

from __future__ import annotations

import typing as t

import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import facts, parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.of_hosts import memory

MEASURED = {"cpus": "0-3", "pairs": [], "singles": "", "unclear": "", "rounds": 3, "seconds": 1.0, "confidence": 0.99}
MEASURED |= {"agrees_with_kernel": True, "measured_at": "2026-11-27T10:00:00Z", "ratios": []}
VULNERABILITY = {"status": "Not affected", "smt": None}
ROOM = dict.fromkeys(("bytes", "unprivileged_bytes", "largest_request_bytes"))
WANTED = {"overcommit": None, "commit_limit_bytes": None, "headroom": ROOM, "refusal": None, "sysctls": {}}
WANTED |= {"differences": [], "boot_differences": [], "boot_blocked_by": None, "overrides": []}
MEMORY = dict.fromkeys(memory.Memory.__struct_fields__)
MEMORY |= {"headroom": ROOM, "protected_units": [], "problems": []}


def made(plain: dict[str, t.Any] | None = None, **changes: t.Any) -> facts.Facts:
    """Facts of a host, or of one that tells nothing; they need not be consistent."""
    found = over(result_maker.nothing_known() if plain is None else plain, changes)
    found["measured"] = found["measured"] and {**MEASURED, **found["measured"]}
    found["vulnerabilities"] = {name: {**VULNERABILITY, **one} for name, one in found["vulnerabilities"].items()}
    return parts.converted(found, facts.Facts)


def over(plain: dict[str, t.Any], changes: dict[str, t.Any]) -> dict[str, t.Any]:
    """The same data with other values, also of some of what a part has."""
    found = dict(plain)
    for name, value in changes.items():
        is_part = isinstance(value, dict) and isinstance(found.get(name), dict)
        found[name] = over(found[name], value) if is_part else value
    return found


def of_memory(wanted: dict[str, t.Any] | None, **changes: t.Any) -> memory.Memory:
    """Facts of a memory policy, of which only ``wanted`` and what is named is known."""
    return parts.converted({**MEMORY, "wanted": wanted and {**WANTED, **wanted}, **changes}, memory.Memory)
