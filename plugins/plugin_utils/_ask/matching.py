# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Find out before a play whether any host takes part in it: Ansible itself skips a play without hosts,
and its exit code is 0.
"""

from __future__ import annotations

import typing as t

MAX_TEXT = 200


def refusal(manager: t.Any, pattern: str, variable: str, limit: str | None) -> str | None:
    """Return why no host takes part in a play, in one sentence with the way out, or None when one does.

    Args:
        manager: Ansible's ``InventoryManager`` with the hosts of the inventory; the limit is set in it.
        pattern: the pattern of the play's hosts.
        variable: name of the variable that sets the pattern, for messages.
        limit: value of ``--limit``, or None.
    """
    if not manager.get_hosts(pattern):
        if not manager.get_hosts("all"):
            return (
                "this call has no inventory, or one without hosts: name it with -i FILE, or take this machine alone"
                " with -i localhost, -c local"
            )
        return (
            f"no host of the inventory matches {variable}={_shortened(pattern)}: name hosts or groups of the inventory"
        )
    if limit:
        manager.subset(limit)
        if not manager.get_hosts(pattern):
            return (
                f"no host matches both {variable}={_shortened(pattern)} and --limit {_shortened(limit)}: change one of"
                " them"
            )
    return None


def _shortened(value: str) -> str:
    """Return a text of the call as it is put into a sentence."""
    return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}..."
