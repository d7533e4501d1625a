# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer at the top of a page: what is most important first, and never more than sixty words."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.pages import answer


def words(count, ending="."):
    return " ".join(f"w{number}" for number in range(count)) + ending


PART = words(20, "")
FULL = f"{PART}; {words(39, '')}; {words(20)}"


@pytest.mark.parametrize(
    ("sentences", "shown", "rest"),
    [
        ([], [], []),
        (["a b.", "c."], ["a b.", "c."], []),
        # As many whole sentences as fit, none of those behind one that does not.
        ([words(30), words(30), "c."], [words(30), words(30)], ["c."]),
        ([words(30), words(31), "c."], [words(30)], [words(31), "c."]),
        # A first one that is too long is shown in part, and folded as a whole.
        ([words(200), "b."], [f"{words(59, '')} \u2026"], [words(200), "b."]),
        ([FULL], [f"{PART}; {words(39, '')} \u2026"], [FULL]),
        ([FULL.replace(";", " x;", 1)], [f"{PART} x \u2026"], [FULL.replace(";", " x;", 1)]),
    ],
)
def test_whole_sentences_open_a_page(sentences, shown, rest):
    assert answer.opening(sentences) == (shown, rest)
    assert sum(len(one.split()) for one in shown) <= answer.MAX_WORDS
