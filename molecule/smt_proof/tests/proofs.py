# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proof as a user calls it, and what came of it."""

from __future__ import annotations

import json

import calls
import testinfra


def prove(guest, where, *words, **variables):
    """Call the playbook for one guest, with its files below ``where``."""
    return calls.play(
        "threadwise.smt.smt_proof", "--limit", guest, *words, cwd=where, **{"smt_proof_run": "first", **variables}
    )


def document(guest, where):
    """The document of the guest's proof."""
    return json.loads((where / "smt_proof_results" / "first" / "proof" / f"{guest}.json").read_text())


def reached(guest):
    """The guest for testinfra."""
    return testinfra.get_host(f"ansible://{guest}?ansible_inventory={calls.INVENTORY}")
