# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two factors in one evaluation: what each does, and whether that depends on the other. What is compared is in
``_measure/statistics/contrasts.py``: the plan on the host looks at the same.
"""

from __future__ import annotations

import dataclasses
import math
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms as arm_names
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import contrasts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    limits,
    paired,
    recorded,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.host_analysis import HostAnalysis
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Judged, Ratio
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

# Arm -> values of its blocks, one number each.
_Values = dict[str, dict[int, float]]


@dataclasses.dataclass(frozen=True)
class Factorial:
    """What two factors do to a workload.

    Attributes:
        workload: its name.
        title: its title.
        parameter: the value of its parameter, or None.
        metric: its primary metric.
        better: the direction of that.
        placement: where it was compared.
        margin: effects within this share of 1 count as none.
        levels: the titles of both levels of both factors, the baselines first.
        main: what each factor does, over the levels of the other one.
        interaction: how much what the first does differs between the levels of the other one.
        first_at: what the first factor does at each level of the other one.
    """

    workload: str
    title: str
    parameter: float | None
    metric: str
    better: str
    placement: str
    margin: float
    levels: tuple[tuple[str, str], tuple[str, str]]
    main: tuple[Ratio, Ratio]
    interaction: Ratio
    first_at: tuple[Ratio, Ratio]

    def described(self) -> dict[str, t.Any]:
        """Return it as plain data."""
        return {
            **{name: getattr(self, name) for name in ("workload", "title", "parameter", "metric", "better")},
            "placement": self.placement,
            "levels": [list(pair) for pair in self.levels],
            "main": list(map(_described, self.main)),
            "interaction": _described(self.interaction),
            "first_at": list(map(_described, self.first_at)),
        }

    def rows(self) -> list[tuple[str, Ratio]]:
        """Return each effect with its words, for a picture; the interaction is none that is better or worse."""
        (base, first), (second_base, second) = self.levels
        return [
            (f"{first} against {base}", self.main[0]),
            (f"{second} against {second_base}", self.main[1]),
            (f"{first}, with {second_base}", self.first_at[0]),
            (f"{first}, with {second}", self.first_at[1]),
        ]

    def sentence(self) -> str:
        """Say what each factor does, or what the first does at each level of the other one where that differs."""
        (_base, first), (second_base, second) = self.levels
        of = self.title if self.better == "higher" else f"{self.title} {self.metric}"
        if self.interaction.is_called:
            here, there = (self._clause(first, effect) for effect in self.first_at)
            return f"{of}: with {second_base}, {here}; with {second}, {there}."
        known = "neither depends on the other"
        if self.interaction.verdict == paired.INCONCLUSIVE:
            known = f"whether one depends on the other is not decided ({_change_of(self.interaction)})"
        return f"{of}: {'; '.join(map(self._clause, (first, second), self.main))}; {known}."

    def _clause(self, name: str, effect: Ratio) -> str:
        if effect.is_called:
            return f"{name} changes it by {_change_of(effect)}, {effect.word}"
        if effect.verdict == paired.EQUIVALENT:
            return f"{name} leaves it within {wording.margin(self.margin)}"
        if effect.ci_low is None:
            return f"what {name} does {wording.counted(effect.n, 'block')} cannot say"
        return f"{name} is not decided ({_change_of(effect)})"


def of_host(analysis: HostAnalysis) -> list[Factorial]:
    """Return what two factors do to each workload; nothing of a result of other arms.

    Args:
        analysis: of the host; its margin and its confidence hold for the main effects and interactions of all
            workloads together, and for the effects at each level together.
    """
    result = analysis.result
    arms = _arms(result)
    if arms is None:
        return []
    samples = recorded.by_key(result)
    subjects = _subjects(analysis, arms)
    measured = [
        (subject, _sides(values, arms)) for subject in subjects if (values := _values(result, samples, subject, arms))
    ]
    subjects, pairs = [comparison for comparison, _both in measured], [sides for _comparison, sides in measured]
    main = _compared(analysis, subjects, [sides[:3] for sides in pairs], True)
    at_levels = _compared(analysis, subjects, [sides[3:] for sides in pairs], False)
    return [
        Factorial(
            comparison.workload,
            comparison.title,
            comparison.parameter,
            comparison.metric,
            comparison.better,
            comparison.placement,
            analysis.settings[0],
            _levels(arms),
            (first, second),
            interaction,
            (comparison, there),
        )
        for comparison, (first, second, interaction), (there,) in zip(subjects, main, at_levels)
    ]


def _arms(result: HostResult) -> tuple[str, str, str, str] | None:
    """Return the four arms of two factors in the order of the levels, None where the arms are others."""
    names = tuple(arm.name for arm in result.arms)
    return t.cast("tuple[str, str, str, str]", names) if arm_names.levels(names) else None


def _levels(arms: tuple[str, str, str, str]) -> tuple[tuple[str, str], tuple[str, str]]:
    (base, first), (second_base, second) = (
        tuple(catalogue.title(name) or name for name in level) for level in arm_names.levels(arms) or ()
    )
    return (base, first), (second_base, second)


def _subjects(analysis: HostAnalysis, arms: tuple[str, ...]) -> list[Comparison]:
    """Return of each workload whose arms all are compared with the first one the comparison of the first factor, at
    the first level of the other one.
    """
    by_place: dict[tuple[t.Any, ...], list[Comparison]] = {}
    for comparison in host_comparisons.at_widest(analysis.comparisons):
        # The most load within a limit is one of those measured: a mean of two of them is none.
        if comparison.baseline.arm == arms[0] and comparison.metric != limits.MOST_LOAD:
            by_place.setdefault((comparison.workload, comparison.parameter, comparison.placement), []).append(
                comparison
            )
    by_arm = ({comparison.candidate.arm: comparison for comparison in group} for group in by_place.values())
    return [of_arms[arms[2]] for of_arms in by_arm if set(of_arms) == set(arms[1:])]


def _values(result: HostResult, samples: recorded.Samples, comparison: Comparison, arms: tuple[str, ...]) -> _Values:
    """Return the value of each arm in each block that has all of them; empty without such a block."""
    values: _Values = {}
    for arm in arms:
        place = recorded.sampled_as(result, comparison.placement, arm)
        blocks = samples.get((comparison.workload, place, arm, comparison.parameter)) or {}
        good = recorded.good_values(blocks, comparison.metric)
        values[arm] = {block: _mean(of_block) for block, of_block in good.items() if of_block and min(of_block) > 0}
    common = set.intersection(*(set(blocks) for blocks in values.values()))
    return {arm: {block: blocks[block] for block in sorted(common)} for arm, blocks in values.items()} if common else {}


def _mean(values: t.Sequence[float]) -> float:
    """Return the geometric mean."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _sides(values: _Values, arms: tuple[str, str, str, str]) -> list[contrasts.Sides]:
    """Return the sides of each comparison: both main effects, the interaction, and the first factor at the second level
    of the other one. At the first level it is one of the comparisons of arms.
    """
    blocks = [list(values[arm].values()) for arm in arms]
    return [*contrasts.of_factors(*blocks), (blocks[1], blocks[3])]


def _compared(
    analysis: HostAnalysis,
    subjects: t.Sequence[Comparison],
    pairs: t.Sequence[t.Sequence[contrasts.Sides]],
    are_looked_at: bool,
) -> list[list[Judged]]:
    """Compare sides of all workloads as one family; a list for each workload.

    Args:
        analysis: of the host.
        subjects: a comparison of each workload.
        pairs: the sides of each workload.
        are_looked_at: whether the plan looked at these, so that one of them could end it.
    """
    family = [
        (before, after, comparison.better) for comparison, sides in zip(subjects, pairs) for before, after in sides
    ]
    looks = [host_comparisons.looks_at(analysis.result, len(before)) for before, _after, _better in family]
    deciding = [are_looked_at] * len(family)
    judged = iter(paired.compare_family(family, *analysis.settings[:2], looks, deciding) if family else ())
    return [[next(judged) for _sides_of in sides] for sides in pairs]


def _described(effect: Ratio) -> dict[str, t.Any]:
    """Return an effect as plain data."""
    names = ("ratio", "ci_low", "ci_high", "verdict", "n")
    return {**effect.change.described(), **{name: getattr(effect, name) for name in names}}


def _change_of(effect: Ratio) -> str:
    return wording.change_of(effect.change) if effect.ci_low is None else wording.change_and_interval(effect.change)
