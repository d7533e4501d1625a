# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The settings of a plan: of a user's own command, with samples that take no time."""

RATE = {"name": "rate", "unit": "1/s", "better": "higher", "pattern": "rate ([0-9.]+)"}


def own(name, line="echo rate 1", **changed):
    """Return a user's own command that runs in a shell."""
    return {"name": name, "argv": ["sh", "-c", line], "metric": RATE, **changed}


_CHOICES = {"arms": ["as_found"], "workloads": [], "placements": ["single"], "streams": [], "cpus": [], "sources": {}}
_LENGTHS = {"budget": 3600, "shared_by": 1, "blocks": 2, "sample_seconds": 0.05, "settle_seconds": 0}
_GOAL = {"goal": "precision", "margin": 0.01, "siblings": "kernel", "response_limit": {}, "overcommit_ratio": None}
_CONFLICTS = {"affinity_conflicts": "warn", "affinity_conflicts_of": []}
SETTINGS = {**_CHOICES, **_LENGTHS, **_GOAL, **_CONFLICTS, "custom": [own("own")]}
