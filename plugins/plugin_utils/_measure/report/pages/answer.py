# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The answer at the top of a page: so few words that it is read at a glance."""

from __future__ import annotations

import typing as t

MAX_WORDS = 60


def opening(sentences: t.Sequence[str], most: int = MAX_WORDS) -> tuple[list[str], list[str]]:
    """Divide sentences into those that open a page, as many as have so many words, and the others.

    A first sentence that is longer is shown up to a clause, or a word, and is among the others as a whole.
    """
    shown: list[str] = []
    for sentence in sentences:
        if _words(*shown, sentence) > most:
            break
        shown.append(sentence)
    if shown or not sentences:
        return shown, list(sentences[len(shown) :])
    clauses = sentences[0].split("; ")
    fits = next((count for count in range(len(clauses), 0, -1) if _words(*clauses[:count]) < most), 0)
    start = "; ".join(clauses[:fits]) if fits else " ".join(sentences[0].split()[: most - 1])
    return [f"{start} \u2026"], list(sentences)


def _words(*texts: str) -> int:
    return sum(len(text.split()) for text in texts)
