# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer at the top of a page: what is most important first, and never more than sixty words."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.pages import answer


def words(count, ending="."):
    return " ".join(f"w{number}" for number in range(count)) + ending


@pytest.mark.parametrize(
    ("sentences", "shown", "rest"),
    [
        ([], [], []),
        (["a b.", "c."], ["a b.", "c."], []),
        # As many whole sentences as fit, none of those behind one that does not.
        ([words(30), words(30), "c."], [words(30), words(30)], ["c."]),
        ([words(30), words(31), "c."], [words(30)], [words(31), "c."]),
    ],
)
def test_whole_sentences_open_a_page(sentences, shown, rest):
    assert answer.opening(sentences) == (shown, rest)


@pytest.mark.parametrize(
    ("sentence", "start"),
    [
        (f"{words(20, '')}; {words(39, '')}; {words(20)}", f"{words(20, '')}; {words(39, '')} \u2026"),
        (f"{words(20, '')}; {words(40, '')}; {words(20)}", f"{words(20, '')} \u2026"),
        (words(200), f"{words(59, '')} \u2026"),
    ],
)
def test_a_first_sentence_that_is_too_long_is_shown_in_part_and_folded_as_a_whole(sentence, start):
    assert answer.opening([sentence, "b."]) == ([start], [sentence, "b."])
    assert len(start.split()) <= answer.MAX_WORDS
