# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A proof as a user calls it, and what came of it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import testinfra

INVENTORY = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"


def prove(guest, where, *words, **variables):
    """Call the playbook for one guest, with its files below ``where``."""
    return subprocess.run(
        [
            *("ansible-playbook", "-i", str(INVENTORY), "threadwise.smt.smt_proof", "--limit", guest),
            *("-e", json.dumps({"smt_proof_run": "first", **variables}), *words),
        ],
        cwd=where,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true"},
    )


def document(guest, where):
    """The document of the guest's proof."""
    return json.loads((where / "smt_proof_results" / "first" / "proof" / f"{guest}.json").read_text())


def reached(guest):
    """The guest for testinfra."""
    return testinfra.get_host(f"ansible://{guest}?ansible_inventory={INVENTORY}")
