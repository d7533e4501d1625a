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

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    limits,
    measures,
    paired,
    recorded,
    streams,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Compared, Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.measures import Level
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import pooled

BY_WORKLOAD, UNDECIDED, NOT_COMPARED = "by_workload", "undecided", "not_compared"
WORSE, BETTER, EQUAL = "worse", "better", "equal"
# Of a hardware class only.
HOSTS_DISAGREE = pooled.HOSTS_DISAGREE


@dataclasses.dataclass(frozen=True)
class Unable:
    """What one of two arms cannot do at all with every online thread busy, and the other one can.

    Attributes:
        workload: its name.
        parameter: the value of its parameter, or None.
        arm_title: the side that cannot.
        why: the reason for which it was not measured; None where each sample failed.
    """

    workload: str
    parameter: float | None
    arm_title: str
    why: str | None = None


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


class Said(t.Protocol):
    """What has a verdict of two arms."""

    @property
    def verdict(self) -> str:
        """The verdict."""

    @property
    def confounded(self) -> bool:
        """Whether it is confounded with the reboot between."""


def outcome(group: t.Sequence[Said]) -> str:
    """Combine the verdicts of comparisons: ``worse``, ``better``, ``equal``, ``by_workload``, ``undecided``,
    ``not_compared`` or ``hosts_disagree``.
    """
    verdicts = {comparison.verdict for comparison in group}
    if not verdicts:
        return NOT_COMPARED
    if any(comparison.confounded for comparison in group):
        return UNDECIDED
    if HOSTS_DISAGREE in verdicts:
        return HOSTS_DISAGREE
    if {"gain", "loss"} <= verdicts:
        return BY_WORKLOAD
    if "inconclusive" in verdicts:
        return UNDECIDED
    return WORSE if "loss" in verdicts else BETTER if "gain" in verdicts else EQUAL


def served_by_one(analysis: HostAnalysis) -> list[Compared]:
    """Return what stands for comparisons without a ratio: of most loads of which one side serves none, None, that was
    measured, and of failures at a rate that is given, by the blocks in which one side has more (sign test). Those of
    SMT on and off are of the whole machine and of SMT off.
    """
    result, (margin, confidence, compare) = analysis.result, analysis.settings
    by_place: dict[tuple[str, float | None, str, str], dict[str, Level]] = {}
    given = {comparison.place for comparison in analysis.comparisons if comparison.given}
    samples = recorded.by_key(result) if given else {}
    # Most results have no limit, and of many hosts nobody asks for the levels.
    for level in analysis.levels if limits.limited(result) or given else ():
        if level.metric == limits.MOST_LOAD or host_comparisons.FAILURES.search(level.metric):
            place = level.workload, level.parameter, level.placement, level.metric
            by_place.setdefault(place, {})[level.arm] = level
    judged = []
    for (workload, parameter, placement, metric), levels in by_place.items():
        names = [arm.name for arm in result.arms if arm.name in levels]
        for two in itertools.combinations(names, 2):
            pair = recorded.OF_SMT if {*two} == {*recorded.OF_SMT} else two
            sides = [levels[name] for name in pair]
            if compare != host_comparisons.ALL and result.arms[0].name not in pair:
                continue
            served = [side for side in sides if side.value is not None]
            if metric == limits.MOST_LOAD and len(served) == 1:
                blocks = min(served[0].n, *(side.failed for side in sides if side is not served[0]))
                verdict = paired.GAIN if served[0] is sides[1] else paired.LOSS
            elif metric != limits.MOST_LOAD and (workload, parameter, placement, frozenset(pair)) in given:
                blocks = min(side.n for side in sides)
                both = [samples[workload, side.measured_as, side.arm, parameter] for side in sides]
                before, after = (recorded.good_values(blocks_of, metric, or_zero=True) for blocks_of in both)
                sums = [(sum(before[block]), sum(after[block])) for block in {*before} & {*after}]
                more = [second > first for first, second in sums if first != second]
                if 2 * len(more) < blocks:
                    continue
                called = len({*more}) == 1 and 2.0 ** (1 - len(more)) <= 1 - confidence
                verdict = paired.INCONCLUSIVE if not called else paired.LOSS if more[0] else paired.GAIN
            else:
                continue
            keys = (placement, pair[0]), (placement, pair[1])
            of_boots = host_comparisons.basis(result, ("arm", pair[1], placement, *keys)) == host_comparisons.BOOTS
            judged.append(
                Compared(
                    **{**vars(measures.describe_workload(result, workload, parameter, metric)), "primary": True},
                    kind="arm",
                    effect=pair[1],
                    placement=placement,
                    confounded=of_boots and bool(result.plan.confounded),
                    baseline=host_comparisons.side_of(result, *keys[0]),
                    candidate=host_comparisons.side_of(result, *keys[1]),
                    given=metric != limits.MOST_LOAD,
                    baseline_value=sides[0].value,
                    candidate_value=sides[1].value,
                    confidence=confidence,
                    margin=margin,
                    n=blocks,
                    dropped_blocks=served[0].n + served[0].failed - blocks,
                    verdict=verdict if blocks >= paired.MIN_BLOCKS else paired.INCONCLUSIVE,
                )
            )
    widest = list(map(id, host_comparisons.at_widest([*analysis.comparisons, *judged])))
    return [
        comparison
        for comparison in judged
        if (
            comparison.placement == host_comparisons.WHOLE_MACHINE if comparison.is_of_smt else id(comparison) in widest
        )
    ]


def of_smt_by_one(analysis: HostAnalysis) -> list[Compared]:
    """Return those of :func:`served_by_one` that are of SMT on and off."""
    return [comparison for comparison in served_by_one(analysis) if comparison.is_of_smt]


def deciding(analysis: HostAnalysis) -> list[Comparison]:
    """Return the comparisons of SMT off against SMT on that decide beside :func:`of_smt_by_one`: of the whole machine,
    and of streams (:meth:`streams.Curve.deciding`); where the whole machine was measured, those of streams that were
    called.
    """
    whole = _of_the_whole(analysis)
    return [
        *analysis.of_smt,
        *(
            comparison
            for curve in analysis.curves
            for comparison in curve.deciding()
            if curve.workload not in whole or comparison.is_called
        ),
    ]


def is_by_streams(analysis: HostAnalysis) -> bool:
    """Return whether streams and not the whole machine alone make the outcome of SMT off against SMT on."""
    whole = [*analysis.of_smt, *of_smt_by_one(analysis)]
    return bool(analysis.curves) and (not whole or outcome(whole) != outcome([*deciding(analysis), *whole]))


def _of_the_whole(analysis: HostAnalysis) -> set[str]:
    """Return the workloads that were compared on the whole machine."""
    return {comparison.workload for comparison in [*analysis.of_smt, *of_smt_by_one(analysis)]}


def _curves(analysis: HostAnalysis) -> list[streams.Curve]:
    whole = _of_the_whole(analysis)
    return [curve for curve in analysis.curves if curve.workload not in whole]


def parts_against(analysis: HostAnalysis) -> list[Comparison]:
    """Return the comparisons of SMT off against SMT on of workloads that were compared on a part of the machine only,
    at the widest of them, with a verdict that none of those has that decide.
    """
    verdicts = {comparison.verdict for comparison in [*deciding(analysis), *of_smt_by_one(analysis)]}
    if not verdicts:
        return []
    called = {paired.GAIN, paired.LOSS} - verdicts
    known = _of_the_whole(analysis) | {curve.workload for curve in analysis.curves}
    return [
        comparison
        for comparison in map(Comparison.of_smt_off, host_comparisons.at_widest(analysis.comparisons))
        if comparison.is_of_smt
        and comparison.workload not in known
        and not comparison.confounded
        and comparison.verdict in called
    ]


def on_one_side(analysis: HostAnalysis, pair: tuple[str, str] = recorded.OF_SMT) -> list[Unable]:
    """Return what one of two arms cannot do at all with every online thread busy, and the other one can: each sample
    failed, or none could be taken. It is no comparison, and may be what would have contradicted those that there are.
    Loads that fail are none of these where the most load within a limit is asked for.
    """
    limited = limits.limited(analysis.result)
    sides = [
        level
        for level in analysis.levels
        if level.placement == host_comparisons.WHOLE_MACHINE
        and level.arm in pair
        and level.primary
        and level.workload not in limited
    ]
    able = {(level.workload, level.parameter) for level in sides if level.value is not None}
    failed = [
        Unable(level.workload, level.parameter, level.arm_title)
        for level in sides
        if level.value is None and (level.workload, level.parameter) in able
    ]
    able_in = {(level.workload, level.arm) for level in sides if level.value is not None}
    skipped = [
        Unable(skip.workload, None, recorded.arm_title(analysis.result, skip.arm), skip.reason)
        for skip in analysis.result.skipped
        if skip.workload and skip.arm in pair and _is_of_the_whole(analysis.result, skip.placement, skip.arm)
        for other in pair
        if other != skip.arm and (skip.workload, other) in able_in and (skip.workload, skip.arm) not in able_in
    ]
    return [*failed, *skipped]


def _is_of_the_whole(result: HostResult, placement: str | None, arm: str) -> bool:
    whole = host_comparisons.WHOLE_MACHINE
    return placement in (None, whole, recorded.sampled_as(result, whole, arm))


def cold_starts(result: HostResult, level: Level) -> int:
    """Return in how many blocks the smallest load of a most load is over its limit while a larger one is within it, as
    after a cold start: no load is served there by the rule, and the next ones are.
    """
    workload = limits.limited(result)[level.workload]
    limit = workload.response_limit or 0.0
    return sum(
        responses[min(responses)] > limit >= min(responses.values())
        for group, responses in limits.responses_by_load(result, workload).items()
        if group[1:3] == (level.measured_as, level.arm)
    )


def _workers(result: HostResult, placement: str, arm: str) -> int | None:
    """Return how many workers a placement has in an arm, or None where it is not known."""
    spot = (result.plan.placements or {}).get(arm, {}).get(recorded.sampled_as(result, placement, arm))
    return len(spot.workers) if spot and spot.workers else None


def ran(result: HostResult, comparison: Comparison) -> list[int]:
    """Return how many workers ran on both sides of a comparison; empty where that is not known."""
    numbers = [_workers(result, comparison.placement, arm) for arm in comparison.sides]
    return [number for number in numbers if number] if None not in numbers else []


def says_nothing_of_all(result: HostResult, comparison: Comparison) -> bool:
    """Return whether a comparison is of what one worker has, while more of them ran on one side: which side did more is
    not known. A response time is what is asked for, where it was declared to be one (``max``).
    """
    is_of_one = comparison.aggregate in ("mean", workload_metrics.MEAN_PER_JOB)
    return is_of_one and comparison.parameter is None and len(set(ran(result, comparison))) > 1


def of_smt(analysis: HostAnalysis) -> str:
    """Return the outcome of SMT off against SMT on. Comparisons on which all agree decide nothing where those are
    missing that could contradict them (:func:`is_incomplete`).
    """
    verdict = outcome([*deciding(analysis), *of_smt_by_one(analysis)])
    return UNDECIDED if verdict in (WORSE, BETTER, EQUAL) and is_incomplete(analysis) else verdict


def is_incomplete(analysis: HostAnalysis) -> bool:
    """Return whether something is missing that could contradict what was compared of SMT on and off, however many
    blocks or hosts agree: of streams that were not measured, of a workload that one of both cannot do, of one that was
    compared on a part of the machine only and says the opposite there, or of what all workers did where only that of
    each is known; or of what may differ at a rate that was asked for.
    """
    asked = [
        comparison
        for comparison in deciding(analysis)
        if comparison.given and comparison.better == "higher" and comparison.parameter
    ]
    return bool(
        (asked and not of_smt_by_one(analysis))
        or on_one_side(analysis)
        or parts_against(analysis)
        or any(curve.crossover.threads for curve in _curves(analysis))
        or any(says_nothing_of_all(analysis.result, comparison) for comparison in deciding(analysis))
        or any(
            cold_starts(analysis.result, level)
            for level in analysis.levels
            if level.metric == limits.MOST_LOAD and level.workload in limits.limited(analysis.result)
        )
    )


def standing(analysis: HostAnalysis) -> Standing:
    """Return how the arms of a run stand to each other."""
    groups: dict[tuple[str, str], list[Compared]] = {}
    for comparison in [*deciding(analysis), *analysis.of_other_arms, *served_by_one(analysis)]:
        baseline, candidate = comparison.sides
        groups.setdefault((candidate, baseline), []).append(comparison)
    subjects = {comparison.work for comparison in itertools.chain(*groups.values())}
    outcomes = {
        (candidate, baseline): of_pair(analysis, (baseline, candidate), group)
        # Undecided where it lacks what other pairs were compared with, since that may be what would have lost.
        if {comparison.work for comparison in group} == subjects
        else UNDECIDED
        for (candidate, baseline), group in groups.items()
    }
    if (pair := (arms.SMT_OFF, arms.SMT_ON)) in outcomes and of_smt(analysis) == UNDECIDED:
        outcomes[pair] = UNDECIDED
    names = [arm.name for arm in analysis.result.arms]
    beaten = {pair for pair, outcome_of_pair in outcomes.items() if outcome_of_pair == BETTER} | {
        (against, arm) for (arm, against), outcome_of_pair in outcomes.items() if outcome_of_pair == WORSE
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


def of_pair(analysis: HostAnalysis, pair: tuple[str, str], group: t.Sequence[Compared]) -> str:
    """Return the outcome of comparisons of two arms, the baseline first; undecided where they agree, and one arm cannot
    do what the other one can.
    """
    verdict = outcome(group)
    return UNDECIDED if verdict in (WORSE, BETTER, EQUAL) and on_one_side(analysis, pair) else verdict
