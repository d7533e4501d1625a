# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What tests of playbooks share: the helpers of the unit tests,
and an order in which those that take longest begin first.
"""

from __future__ import annotations

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "unit" / "support"))

# Whoever of several workers is left with one of these at the end keeps the others waiting.
LONGEST = (
    "test_trial.py",
    "test_trial_secrets.py",
    "test_pull.py",
    "test_policy_fleet.py",
    "test_playbooks.py",
    "test_archive.py",
)


def pytest_configure(config):
    config.addinivalue_line(
        "markers",
        "kills: takes minutes, mostly because a playbook is ended half way: `make kills` runs it, and not `make test`",
    )
    config.addinivalue_line("markers", "long: takes most of a minute: `make long` runs it, and not `make test`")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
    # Those that share an evaluation wait for it: one begins early, and the others come when it is there.
    sharing = [item for item in items if "evaluated" in item.fixturenames]
    items[:] = [item for item in items if item not in sharing[1:]] + sharing[1:]
