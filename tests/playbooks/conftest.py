# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The order of tests of playbooks: those that take longest begin first."""

# Whoever of several workers is left with one of these at the end keeps the others waiting.
LONGEST = ("test_trials.py", "test_pull.py", "test_policy_fleet.py", "test_evaluation.py")


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))
    # Those that share an evaluation wait for it: one begins early, and the others come when it is there.
    sharing = [item for item in items if "evaluated" in item.fixturenames]
    items[:] = [item for item in items if item not in sharing[1:]] + sharing[1:]
