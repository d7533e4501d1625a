# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a controller lacks is named once, with the command that helps."""

from __future__ import annotations

import sys

from ansible_collections.threadwise.smt.plugins.plugin_utils._ask import libraries


def lost(name):
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_all_missing_packages_are_in_one_sentence_by_the_names_that_pip_knows():
    said = libraries.sentence("an evaluation", [lost("duckdb.typing"), None, lost("jmespath"), lost("jmespath")])
    assert said == (
        "an evaluation needs Python packages that this controller does not have (No module named 'duckdb.typing'; No"
        f" module named 'jmespath'): {sys.executable} -m pip install duckdb jmespath"
    )
    without = {"without a": lost("duckdb"), "without b": lost("jmespath"), "without c": None}
    assert libraries.left_out("the report is made", without) == (
        "the report is made without a and without b, for which this controller lacks Python packages:"
        f" {sys.executable} -m pip install duckdb jmespath"
    )
    assert libraries.sentence("an evaluation", [None]) is None is libraries.left_out("a report", {"without a": None})
