# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What many hosts say of what was asked, in sentences."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import streams
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_loads import crossovers
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import (
    hardware_classes,
    text as report_text,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

STREAMS = "streams"
# What is recommended to how many hosts, in the order of the sentence.
_RECOMMENDED = {
    conclusion.ON: "leave SMT on at",
    conclusion.OFF: "turn SMT off at",
    conclusion.EITHER: "either will do at",
    conclusion.BY_WORKLOAD: "it depends on the work at",
    STREAMS: "it depends on how much runs at once at",
    conclusion.UNDECIDED: "not decided at",
    conclusion.NOT_COMPARED: "SMT on and off were not compared at",
}


def sentences(rows: t.Sequence[hardware_classes.Row]) -> list[str]:
    """Say at how many hosts to do what about SMT, and what other arms do at how many."""
    chosen = collections.Counter(
        STREAMS if row.streams and row.recommendation == conclusion.BY_WORKLOAD else row.recommendation
        for row in rows
        if row.subject is None
    )
    others = collections.Counter(
        row.title
        if row.subject
        else row.title.removeprefix(report_text.RECOMMENDATION_TITLES[row.recommendation]).removeprefix(", ")
        for row in rows
    )
    by_streams: dict[str, list[str]] = {}
    for row in rows:
        for title, crossover in row.streams:
            is_known = crossover.status in (streams.FOUND, streams.SOME, streams.NEVER)
            text = crossovers.text(crossover)
            sentence = f"SMT helps {title} {text}" if is_known else f"{title}: {text}"
            by_streams.setdefault(sentence, []).append(row.host)
    return [
        *_at([(words, chosen[choice]) for choice, words in _RECOMMENDED.items()], chosen.total()),
        *wording.first_of(
            [f"{wording.capital(sentence)} ({wording.named(hosts)})." for sentence, hosts in by_streams.items()],
            "workloads",
            ["on the pages of their hosts"] * len(by_streams),
        ),
        *_at([(f"{title} at", count) for title, count in sorted(others.items()) if title], len(rows)),
    ]


def _at(parts: t.Sequence[tuple[str, int]], total: int) -> list[str]:
    """Return ``Leave SMT on at 7 of 12 hosts; turn SMT off at 5.``, or nothing without a host."""
    counted = [part for part in parts if part[1]]
    if not counted:
        return []
    (words, count), *others = counted
    hosts = wording.counted(total, "host")
    whole = hosts if total == 1 else "both hosts" if total == 2 else f"all {hosts}"
    first = f"{words} {whole if count == total else f'{count} of {hosts}'}"
    sentence = "; ".join([first, *(f"{more} {number}" for more, number in others)])
    return [f"{sentence[0].upper()}{sentence[1:]}."]
