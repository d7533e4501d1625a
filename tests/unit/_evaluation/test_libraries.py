# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a controller lacks is named once, with the command that helps."""

from __future__ import annotations

import sys

from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import libraries


def lost(name):
    return ModuleNotFoundError(f"No module named {name!r}", name=name)


def test_all_missing_packages_are_in_one_sentence_by_the_names_that_pip_knows():
    failed = [lost("duckdb"), None, lost("jmespath"), lost("jmespath"), lost("msgspec")]
    actual = libraries.sentence("an evaluation", failed)
    assert actual.startswith(
        "an evaluation needs Python packages that this controller does not have (No module named 'duckdb'; No module"
        " named 'jmespath'; No module named 'msgspec')"
    )
    assert actual.endswith(f": {sys.executable} -m pip install duckdb jmespath msgspec")


def test_a_part_of_a_package_is_the_package():
    assert libraries.sentence("an evaluation", [lost("duckdb.typing")]).endswith("-m pip install duckdb")


def test_nothing_is_said_where_nothing_is_missing():
    assert libraries.sentence("an evaluation", [None, None]) is None
    assert libraries.left_out("the report is made", {"without a": None}) is None


def test_all_that_is_left_out_is_in_one_sentence_with_what_would_bring_it():
    actual = libraries.left_out(
        "the report is made", {"without a": lost("duckdb"), "without b": lost("jmespath"), "without c": None}
    )
    assert actual.startswith(
        "the report is made without a and without b, for which this controller lacks Python packages: "
    )
    assert actual.endswith(f"{sys.executable} -m pip install duckdb jmespath")
