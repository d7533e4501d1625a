# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts under their policy, from those of their fields that matter."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance

WAIVER = {"until": "2026-03-09", "state": "valid", "days_left": 8, "reason": "x", "owner": "y"}
USUAL = {
    "decision": {"rests_on": {}, "rechecks": []},
    "waiver": WAIVER,
    **{name: {"reasons": ["x"]} for name in compliance.ASPECTS},
}


def found(status="compliant", sentence="because", **known):
    """Return a host from plain data, as smt_status registers them."""
    whole = {name: {**USUAL[name], **one} if name in USUAL and one else one for name, one in known.items()}
    return parts.converted({"status": status, "sentence": sentence, **whole}, compliance.Compliance)
