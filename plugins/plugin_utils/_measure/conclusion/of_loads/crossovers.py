# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From how many streams on SMT helps (:mod:`_measure.analysis.streams`), in words."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.streams import (
    FOUND,
    NEVER,
    SOME,
    UNDECIDED,
    Crossover,
    Curve,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording


def described(curve: Curve) -> dict[str, t.Any]:
    """Return the crossover of a workload as plain data: its fields, with its text, and the name and title of the
    workload.
    """
    return {
        "workload": curve.workload,
        "title": curve.title,
        "text": text(curve.crossover),
        **dataclasses.asdict(curve.crossover),
    }


def clause(crossover: Crossover, what: str = "") -> str:
    """Return a crossover as a clause with its subject: ``SMT helps gzip from 8 streams on``.

    Args:
        crossover: the crossover.
        what: the workloads that it is of, or nothing where that is said already.
    """
    helps = f"SMT helps {what}".rstrip()
    return (
        f"{helps} {text(crossover)}"
        if crossover.status in (FOUND, SOME, NEVER)
        else f"whether {helps} is {text(crossover)}"
    )


def text(crossover: Crossover) -> str:
    """Return a crossover for people: ``from 8 streams on``."""
    if crossover.status == FOUND:
        return f"from {crossover.streams} streams on" + (
            "" if crossover.low == crossover.high else f" ({crossover.low} to {crossover.high})"
        )
    if crossover.status == NEVER:
        both_sides = crossover.cores is not None and crossover.measured[0] <= crossover.cores
        return (
            f"with no number of streams up to {crossover.measured[-1]}"
            if both_sides
            else f"with none of the numbers of streams measured ({_named(crossover, crossover.measured)})"
        )
    if crossover.status == SOME:
        return _with_some(crossover)
    if crossover.threads is not None:
        between = f"between the {crossover.cores} cores and the {crossover.threads} threads"
        return f"not decided: no number of streams {between} was measured"
    if crossover.status == UNDECIDED:
        comparisons = (
            f"comparison{'' if len(crossover.open) == 1 else 's'} with {_named(crossover, crossover.open)} streams"
        )
        return f"not decided: the {comparisons} {wording.verb(crossover.open, 'is', 'are')} not"
    wanted = (
        "the number of cores is unknown"
        if crossover.cores is None
        else f"measure streams up to, and above, the {crossover.cores} cores in both arms"
    )
    return f"not known: {wanted}"


def _with_some(crossover: Crossover) -> str:
    """Return with which numbers of streams SMT helps: ``with 6 to 11 streams, and no longer with 12``."""
    if crossover.gains == crossover.measured:
        return f"with each number of streams measured ({_named(crossover, crossover.measured)})"
    decided = [count for count in crossover.measured if count not in (*crossover.gains, *crossover.open)]
    above = [count for count in decided if count > crossover.gains[-1]]
    others = f", and {'no longer' if above else 'not'} with {_named(crossover, above or decided)}" if decided else ""
    undecided = f", not decided with {_named(crossover, crossover.open)}" if crossover.open else ""
    return (
        f"with {_named(crossover, crossover.gains)} stream{'' if crossover.gains == (1,) else 's'}{others}{undecided}"
    )


def _named(crossover: Crossover, numbers: t.Sequence[int]) -> str:
    """Return numbers of streams as ``1, 2 and 6 to 11``: three or more that were measured one after the other are named
    by the first and the last.
    """
    places = enumerate(map(crossover.measured.index, numbers))
    parts: list[str] = []
    for _start, run in itertools.groupby(places, key=lambda place: place[1] - place[0]):
        names = [str(crossover.measured[place]) for _number, place in run]
        parts += [f"{names[0]} to {names[-1]}"] if len(names) > 2 else names
    return wording.join(parts)
