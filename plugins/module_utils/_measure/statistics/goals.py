# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a plan has enough samples: its main comparisons are decided, or their intervals are as narrow as the margin;
docs/verdicts.md explains both.
"""

import functools
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.placement import Assignment
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms as arm_names, placements
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import (
    contrasts,
    decisions,
    schedule,
    verdicts,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.ranks import Paired
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.spending import Look

DECISION, PRECISION, RECHECK = "decision", "precision", "recheck"
GOALS = (DECISION, PRECISION, RECHECK)
PRECISE, RECHECKED = "precise", "rechecked"
# The two looks of a plan that asks whether an earlier result still holds, and half the width of an interval that tells
# a change of 10 points from none at the first one.
RECHECK_LOOKS = (6, 12)
RECHECK_WIDTH = math.log(1.03)
CONFIDENCE = 0.95

# (baseline, candidate) of the comparisons that show the cost and the benefit of sharing a core.
SHARING = ((placements.CORES, placements.SIBLINGS), (placements.ONE_PER_CORE, placements.ALL_THREADS))

# An arm and a placement.
Side = t.Tuple[str, str]
# A workload and the value of its parameter.
Measured = t.Tuple[str, t.Optional[float]]
# A workload and the value of its parameter, an arm and a placement.
Key = t.Tuple[str, t.Optional[float], str, str]
# What was measured, and the candidate of a main comparison of it.
Name = t.Tuple[Measured, Side]


class Decision(t.NamedTuple):
    """The end of a comparison.

    Attributes:
        workload: the name of the workload.
        parameter: the value of its parameter, or None.
        arm: the arm of the candidate.
        placement: the placement of the candidate.
        blocks: the number of blocks that were done.
        outcome: a verdict, or ``futile``.
    """

    workload: str
    parameter: "float | None"
    arm: str
    placement: str
    blocks: int
    outcome: str


def main_comparisons(
    arms: "t.Sequence[str]", taken: "t.Callable[[tuple[Side, Side]], object]"
) -> "list[tuple[Side, Side]]":
    """Return the main comparisons of a workload, pairs (baseline, candidate): each other arm against the baseline with
    all CPUs busy, without these the first one of sharing a core, without that each other arm with one worker alone.

    Args:
        arms: the arms, the baseline first.
        taken: whether a pair has samples on two sides.
    """
    baseline, *others = arms

    def of_arms(placement: str) -> "list[tuple[Side, Side]]":
        return [((baseline, placement), (arm, placement)) for arm in others]

    of_sharing = [((baseline, placement), (baseline, other)) for placement, other in SHARING]
    for pairs in (of_arms(placements.ALL_THREADS), of_sharing, of_arms(placements.SINGLE)):
        present = list(filter(taken, pairs))
        if present:
            return present[:1] if pairs is of_sharing else present
    return []


class Goal:
    """The main comparisons of a plan, from its samples so far.

    Args:
        margin: the equivalence margin.
        assignments: {arm: {placement: Assignment}}, the baseline first.
        better: the direction of the primary metric of each workload, ``higher`` or ``lower``.

    Attributes:
        looks: the looks that were taken, in their order.
        decided: the comparisons that have ended.
    """

    def __init__(
        self, margin: float, assignments: "t.Mapping[str, t.Mapping[str, Assignment]]", better: "t.Mapping[str, str]"
    ) -> None:
        self.looks: list[Look] = []
        self.decided: list[Decision] = []
        self._margin = margin
        self._better = better
        self._arms = list(assignments)
        self._sampled_as = {
            (arm, name): (arm, assignment["same_as"] or name)
            for arm, by_name in assignments.items()
            for name, assignment in by_name.items()
            if assignment["workers"]
        }
        self._values: dict[tuple[str, t.Optional[float], str, str], dict[int, float]] = {}

    def add(self, sample: "t.Mapping[str, t.Any]", value: float) -> None:
        """Add a successful sample with the value of its primary metric."""
        key = (sample["workload"], sample["parameter"], sample["arm"], sample["placement"])
        self._values.setdefault(key, {})[sample["block"]] = value

    def drop(self, workload: str) -> None:
        """Remove a workload that was given up."""
        self._values = {key: blocks for key, blocks in self._values.items() if key[0] != workload}

    def after_block(self, blocks: int, more: int) -> "str | None":
        """Return why the plan has enough samples, or None if it has not.

        Args:
            blocks: the number of blocks that are done.
            more: how many more blocks are possible by now.
        """
        raise NotImplementedError

    def rests(self, measured: Measured) -> bool:
        """Return whether a workload, at a value of its parameter, needs no more samples."""
        raise NotImplementedError

    def deciding(self, planned: "t.Collection[Key]") -> "set[Key]":
        """Return those of the planned samples of a block that the main comparisons need."""
        keys: set[Key] = set()
        for measured in {key[:2] for key in planned}:
            for pair in main_comparisons(self._arms, functools.partial(self._both, measured, set(planned))):
                keys.update(self._keys(measured, pair))
        return keys

    def _both(self, measured: Measured, planned: "set[Key]", pair: "tuple[Side, Side]") -> bool:
        """Return whether the sides of a pair are two of the planned samples."""
        keys = set(self._keys(measured, pair))
        return len(keys) == len(pair) and keys <= planned

    def _keys(self, measured: Measured, sides: "t.Iterable[Side]") -> "list[Key]":
        """Return under what the samples of sides are."""
        return [measured + self._sampled_as.get(side, side) for side in sides]

    def _main(self) -> "dict[Name, Paired]":
        """Return the main comparisons that have blocks with both sides; of two factors their effects."""
        paired_samples: dict[Name, Paired] = {}
        for measured in sorted({key[:2] for key in self._values}, key=repr):
            pairs = main_comparisons(self._arms, functools.partial(self._blocks, measured))
            if arm_names.levels(self._arms) and pairs:
                paired_samples.update(self._of_factors(measured, pairs[0][0][1]))
                continue
            for pair in pairs:
                blocks = self._blocks(measured, pair)
                baseline, candidate = (self._values[key] for key in self._keys(measured, pair))
                sides = [baseline[block] for block in blocks], [candidate[block] for block in blocks]
                paired_samples[(measured, pair[1])] = Paired.of_values(*sides, better=self._better[measured[0]])
        return paired_samples

    def _of_factors(self, measured: Measured, placement: str) -> "dict[Name, Paired]":
        """Return what two factors do at a placement, by the arm that has the effect: the first one, the second one, and
        both for their interaction.
        """
        sides = [(arm, placement) for arm in self._arms]
        values = [self._values.get(key, {}) for key in self._keys(measured, sides)]
        blocks = sorted(set.intersection(*map(set, values)))
        if not blocks:
            return {}
        effects = contrasts.of_factors(*([of_arm[block] for block in blocks] for of_arm in values))
        return {
            (measured, sides[place]): Paired.of_values(*effect, better=self._better[measured[0]])
            for place, effect in zip((2, 1, 3), effects)
        }

    def _blocks(self, measured: Measured, pair: "tuple[Side, Side]") -> "list[int]":
        """Return the blocks with values of both sides; none where one sample stands for both."""
        baseline, candidate = self._keys(measured, pair)
        return (
            sorted(set(self._values.get(baseline, ())) & set(self._values.get(candidate, ())))
            if baseline != candidate
            else []
        )


class UntilDecided(Goal):
    """Planned looks: each comparison ends with its verdict, or when none can be expected any more."""

    def __init__(
        self, margin: float, assignments: "t.Mapping[str, t.Mapping[str, Assignment]]", better: "t.Mapping[str, str]"
    ) -> None:
        super().__init__(margin, assignments, better)
        self._schedule = schedule.Schedule()
        self.looks = self._schedule.looks
        self._ended: set[Name] = set()
        self._resting: frozenset[Measured] = frozenset()

    def after_block(self, blocks: int, more: int) -> "str | None":
        """Return the outcome that ended the last open comparison, or None; see :class:`Goal`."""
        main = self._main()
        if not main or not self._schedule.take(blocks, more):
            return None
        # At the strictest level of Holm's procedure: the report, which knows all comparisons, can only be more certain.
        alpha = (1 - CONFIDENCE) / len(main)
        for name, comparison in main.items():
            outcome = (
                None
                if name in self._ended or comparison.n < verdicts.MIN_BLOCKS
                else decisions.decide(comparison, self.looks, alpha, self._margin, more)
            )
            if outcome is not None:
                (workload, parameter), (arm, placement) = name
                self._ended.add(name)
                self.decided.append(Decision(workload, parameter, arm, placement, blocks, outcome))
        still_open = {name[0] for name in main if name not in self._ended}
        self._resting = frozenset(name[0] for name in main) - still_open
        return None if still_open else self.decided[-1].outcome

    def rests(self, measured: Measured) -> bool:
        """Return whether all main comparisons of this workload have ended."""
        return measured in self._resting


class UntilPrecise(Goal):
    """The width of intervals, never their position: each is as narrow as the margin to either side."""

    def after_block(self, blocks: int, more: int) -> "str | None":
        """Return ``precise`` when all main comparisons have a narrow interval; see :class:`Goal`."""
        main = self._main()
        level = (1 - CONFIDENCE) / max(1, len(main))
        return (
            PRECISE
            if main and all(half_width(comparison, level) <= math.log1p(self._margin) for comparison in main.values())
            else None
        )

    def rests(self, measured: Measured) -> bool:
        """Return False: all workloads are measured to the end."""
        return False


class TwoLooks(UntilPrecise):
    """Two planned looks, of which the first is enough where all intervals are narrow: as for the other goal, it is the
    width that counts, and never the position.
    """

    def after_block(self, blocks: int, more: int) -> "str | None":
        """Return ``rechecked`` after the second look, or the first where that is enough; see :class:`Goal`."""
        main = self._main()
        if not main or blocks not in RECHECK_LOOKS:
            return None
        level = (1 - CONFIDENCE) / len(main)
        is_enough = all(half_width(comparison, level) <= RECHECK_WIDTH for comparison in main.values())
        return RECHECKED if is_enough or blocks == RECHECK_LOOKS[-1] else None


def half_width(comparison: Paired, level: float) -> float:
    """Return half of the width of a comparison's interval; infinity for few blocks,
    whose interval is too often narrow by chance.
    """
    if comparison.n < verdicts.MIN_BLOCKS_RANKED:
        return math.inf
    _centre, low, high = comparison.interval(level)
    return (high - low) / 2


def goal(
    name: str, margin: float, assignments: "t.Mapping[str, t.Mapping[str, Assignment]]", better: "t.Mapping[str, str]"
) -> Goal:
    """Return the goal with one of the names of :data:`GOALS`."""
    return {DECISION: UntilDecided, PRECISION: UntilPrecise, RECHECK: TwoLooks}[name](margin, assignments, better)
