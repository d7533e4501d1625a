# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a plan has measured enough: on the width of an interval, never on what it says. docs/verdicts.md says why that does not bias verdicts."""

from __future__ import annotations

import math
import statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.placement import Spot

# With fewer blocks the verdict's ranks take too few values, and an interval is narrow by luck too often.
LEAST_BLOCKS = 6
CONFIDENCE = 0.95

WHOLE_MACHINE = "all_threads"
# (baseline, candidate) of what sharing a core costs and yields.
SHARING = (("cores", "siblings"), ("one_per_core", WHOLE_MACHINE))


# A condition and a placement.
Side = t.Tuple[str, str]
# A workload and the value of its point.
Measured = t.Tuple[str, t.Optional[float]]


def main_comparisons(conditions: t.Sequence[str]) -> list[tuple[Side, Side]]:
    """(baseline, candidate) as (condition, placement): the first that was measured is a workload's main comparison.

    Args:
        conditions: the conditions of a block in order, one or two.
    """
    before, after = conditions[0], conditions[-1]
    changed = [((before, WHOLE_MACHINE), (after, WHOLE_MACHINE))] if before != after else []
    return changed + [((before, baseline), (before, candidate)) for baseline, candidate in SHARING]


class Precision:
    """The samples of a plan so far, and whether their main comparisons are known well enough.

    Args:
        margin: the equivalence margin: an interval is narrow enough when half of its width is at most this.
        placements: {condition: {placement: {workers, same_as}}}, as a plan has them, the condition before the change first.
    """

    def __init__(self, margin: float, placements: t.Mapping[str, t.Mapping[str, Spot]]) -> None:
        self._margin = margin
        self._pairs = main_comparisons(list(placements))
        self._sampled_as = {
            (condition, name): (condition, spot["same_as"] or name)
            for condition, spots in placements.items()
            for name, spot in spots.items()
            if spot["workers"]
        }
        self._values: dict[tuple[str, float | None, str, str], dict[int, float]] = {}

    def add(self, sample: t.Mapping[str, t.Any]) -> None:
        """Take note of a sample that worked."""
        key = (sample["workload"], sample["point"] and sample["point"]["value"], sample["condition"], sample["placement"])
        self._values.setdefault(key, {})[sample["block"]] = sample["metric"]["value"]

    def drop(self, workload: str) -> None:
        """Wait no longer for a workload that was given up."""
        self._values = {key: blocks for key, blocks in self._values.items() if key[0] != workload}

    def enough(self) -> bool:
        """Whether each workload that has a main comparison has a narrow interval of it, at each of its points; False where none has one."""
        compared = [log_ratios for log_ratios in map(self._main, sorted({key[:2] for key in self._values}, key=repr)) if log_ratios is not None]
        confidence = 1 - (1 - CONFIDENCE) / max(1, len(compared))
        return bool(compared) and all(half_width(log_ratios, confidence) <= math.log1p(self._margin) for log_ratios in compared)

    def _main(self, workload: Measured) -> list[float] | None:
        """The log-ratios of a workload's main comparison, one a block that has both sides; None where it has none."""
        for pair in self._pairs:
            before, after = (self._values.get(workload + self._sampled_as.get(side, side)) for side in pair)
            if before and after and before is not after:
                return [math.log(after[block] / before[block]) for block in sorted(set(before) & set(after))]
        return None


def half_width(values: t.Sequence[float], confidence: float) -> float:
    """Half of the width of Student's t interval of the mean; infinite for fewer than ``LEAST_BLOCKS`` values."""
    if len(values) < LEAST_BLOCKS:
        return math.inf
    return student_quantile(1 - (1 - confidence) / 2, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def student_quantile(share: float, freedom: int) -> float:
    """Quantile of Student's t distribution, to 1 % for 5 and more degrees of freedom and shares up to 0.999.

    Source: M. Abramowitz, I. A. Stegun, Handbook of Mathematical Functions (1964), 26.7.5, the expansion in 1 / degrees of freedom.
    """
    z = statistics.NormalDist().inv_cdf(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    correction: float = sum(term / freedom**power for power, term in enumerate(terms, 1))
    return z + correction
