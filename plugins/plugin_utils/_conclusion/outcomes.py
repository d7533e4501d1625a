# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which arm does better than which: the outcome of each two arms that were compared, and the best of all arms.

An arm is better than another when a workload gains, after the correction, and none loses or stays undecided. The best
arm is better than each other arm of the run; where it was not compared with one of them, or not in each workload, there
is no best arm, however large its effect.
"""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import (
    comparisons as host_comparisons,
    limits,
    recorded,
    streams,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.measures import Level
from ansible_collections.threadwise.smt.plugins.plugin_utils._pooled import pooled

BY_WORKLOAD, UNDECIDED, NOT_COMPARED = "by_workload", "undecided", "not_compared"
WORSE, BETTER, EQUAL = "worse", "better", "equal"
# Of a hardware class only.
HOSTS_DISAGREE = pooled.HOSTS_DISAGREE


@dataclasses.dataclass(frozen=True)
class Standing:
    """How the arms of a run stand to each other.

    Attributes:
        outcomes: (candidate, baseline) -> outcome of that pair, of pairs that were compared.
        best: the arm that is better than each other arm, or None.
        better: the arms that are better than the baseline of the run.
        complete: whether every two arms were compared.
    """

    outcomes: dict[tuple[str, str], str]
    best: str | None
    better: tuple[str, ...]
    complete: bool

    def described(self) -> dict[str, t.Any]:
        """Return the standing as plain data."""
        pairs = [
            {"arm": arm, "against": against, "outcome": outcome} for (arm, against), outcome in self.outcomes.items()
        ]
        return {"best": self.best, "better_than_baseline": list(self.better), "pairs": pairs}


def outcome(group: t.Sequence[Comparison]) -> str:
    """Combine the verdicts of comparisons: ``worse``, ``better``, ``equal``, ``by_workload``, ``undecided``,
    ``not_compared`` or ``hosts_disagree``.
    """
    verdicts = {one["verdict"] for one in group}
    if not verdicts:
        return NOT_COMPARED
    if any(one["confounded"] for one in group):
        return UNDECIDED
    if HOSTS_DISAGREE in verdicts:
        return HOSTS_DISAGREE
    if {"gain", "loss"} <= verdicts:
        return BY_WORKLOAD
    if "inconclusive" in verdicts:
        return UNDECIDED
    return WORSE if "loss" in verdicts else BETTER if "gain" in verdicts else EQUAL


def deciding(analysis: HostAnalysis) -> list[Comparison]:
    """Return the comparisons of SMT off against SMT on that decide: of the whole machine, and of streams
    (:meth:`streams.Curve.deciding`) of the workloads of which it was not measured.
    """
    return [*analysis.of_smt, *(one for curve in _curves(analysis) for one in curve.deciding())]


def _curves(analysis: HostAnalysis) -> list[streams.Curve]:
    whole = {one["workload"] for one in analysis.of_smt}
    return [curve for curve in analysis.curves if curve.workload not in whole]


def on_one_side(analysis: HostAnalysis) -> list[Level]:
    """Return what SMT on or SMT off cannot do at all with every online thread busy, and the other one can: each sample
    failed. It is no comparison, and may be what would have contradicted those that there are. Loads that fail are none
    of these where the most load within a limit is asked for.
    """
    limited = limits.limited(analysis.result)
    sides = [
        level
        for level in analysis.levels
        if level.placement == host_comparisons.WHOLE_MACHINE
        and level.arm in recorded.OF_SMT
        and (level.metric == limits.MOST_LOAD or (level.primary and level.workload not in limited))
    ]
    able = {(level.workload, level.parameter) for level in sides if level.value is not None}
    return [level for level in sides if level.value is None and (level.workload, level.parameter) in able]


def of_smt(analysis: HostAnalysis) -> str:
    """Return the outcome of SMT off against SMT on. Comparisons on which all agree decide nothing where those are
    missing that could contradict them: of streams that were not measured, or of a workload that one of both cannot do.
    """
    said = outcome(deciding(analysis))
    missing = on_one_side(analysis) or any(curve.crossover.threads for curve in _curves(analysis))
    return UNDECIDED if missing and said in (WORSE, BETTER, EQUAL) else said


def standing(analysis: HostAnalysis) -> Standing:
    """Return how the arms of a run stand to each other."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for one in [*deciding(analysis), *analysis.of_other_arms]:
        baseline, candidate = host_comparisons.sides_of(one)
        groups.setdefault((candidate, baseline), []).append(one)
    outcomes = {
        pair: _of_pair(group, set(map(_subject, itertools.chain(*groups.values())))) for pair, group in groups.items()
    }
    if (pair := (arms.SMT_OFF, arms.SMT_ON)) in outcomes and of_smt(analysis) == UNDECIDED:
        outcomes[pair] = UNDECIDED
    names = [arm.name for arm in analysis.result.arms]
    beaten = {pair for pair, found in outcomes.items() if found == BETTER} | {
        (against, arm) for (arm, against), found in outcomes.items() if found == WORSE
    }
    best = [
        name for name in names if len(names) > 1 and all((name, other) in beaten for other in names if other != name)
    ]
    return Standing(
        outcomes,
        best[0] if best else None,
        tuple(name for name in names if (name, names[0]) in beaten),
        len({frozenset(pair) for pair in outcomes}) == len(names) * (len(names) - 1) // 2,
    )


def _of_pair(group: t.Sequence[Comparison], subjects: set[tuple[str, float | None]]) -> str:
    """Return the outcome of a pair; undecided where it lacks what other pairs were compared with,
    since that may be what would have lost.
    """
    return outcome(group) if set(map(_subject, group)) == subjects else UNDECIDED


def _subject(one: Comparison) -> tuple[str, float | None]:
    return one["workload"], one.get("parameter")
