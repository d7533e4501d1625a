# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stopping rule of a plan: it depends on the width of confidence intervals, never on their position.

docs/verdicts.md explains why this does not bias verdicts.
"""

import math
import statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._topology.placement import Assignment
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import placements

# With fewer blocks the ranks behind a verdict have too few values, and an interval is too often narrow by chance.
LEAST_BLOCKS = 6
CONFIDENCE = 0.95

# (baseline, candidate) of the comparisons that show the cost and the benefit of sharing a core.
SHARING = ((placements.CORES, placements.SIBLINGS), (placements.ONE_PER_CORE, placements.ALL_THREADS))

# An arm and a placement.
Side = t.Tuple[str, str]
# A workload and the value of its parameter.
Measured = t.Tuple[str, t.Optional[float]]


def main_comparisons(arms: "t.Sequence[str]") -> "tuple[list[tuple[Side, Side]], list[tuple[Side, Side]]]":
    """Return pairs (baseline, candidate): one for each other arm than the baseline, and those that stand in for a workload with none of these.

    Args:
        arms: the arms, the baseline first.
    """
    baseline = arms[0]
    of_arms = [((baseline, placements.ALL_THREADS), (arm, placements.ALL_THREADS)) for arm in arms[1:]]
    return of_arms, [((baseline, one), (baseline, other)) for one, other in SHARING]


class Precision:
    """The precision of the main comparisons of a plan, from its samples so far.

    Args:
        margin: the equivalence margin. An interval is narrow enough when half of its width is at most this.
        assignments: {arm: {placement: Assignment}}, the baseline first.
    """

    def __init__(self, margin: float, assignments: "t.Mapping[str, t.Mapping[str, Assignment]]") -> None:
        self._margin = margin
        self._of_arms, self._of_sharing = main_comparisons(list(assignments))
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

    def enough(self) -> bool:
        """Return whether all main comparisons have a narrow interval, for each value of a parameter; False if there is no main comparison."""
        compared = [log_ratios for workload in sorted({key[:2] for key in self._values}, key=repr) for log_ratios in self._main(workload)]
        confidence = 1 - (1 - CONFIDENCE) / max(1, len(compared))
        return bool(compared) and all(half_width(log_ratios, confidence) <= math.log1p(self._margin) for log_ratios in compared)

    def _main(self, workload: Measured) -> "list[list[float]]":
        """Return the log-ratios of a workload's main comparisons, one for each block with both sides."""
        return self._measured(workload, self._of_arms) or self._measured(workload, self._of_sharing)[:1]

    def _measured(self, workload: Measured, pairs: "t.Sequence[tuple[Side, Side]]") -> "list[list[float]]":
        found = []
        for pair in pairs:
            baseline, candidate = (self._values.get(workload + self._sampled_as.get(side, side)) for side in pair)
            if baseline and candidate and baseline is not candidate:
                found.append([math.log(candidate[block] / baseline[block]) for block in sorted(set(baseline) & set(candidate))])
        return found


def half_width(values: "t.Sequence[float]", confidence: float) -> float:
    """Return half of the width of Student's t interval of the mean; infinity for fewer than ``LEAST_BLOCKS`` values."""
    if len(values) < LEAST_BLOCKS:
        return math.inf
    return student_quantile(1 - (1 - confidence) / 2, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))


def student_quantile(share: float, freedom: int) -> float:
    """Return a quantile of Student's t distribution, accurate to 1 % for 5 or more degrees of freedom and shares up to 0.999.

    Source: M. Abramowitz, I. A. Stegun, Handbook of Mathematical Functions (1964), 26.7.5, the expansion in 1 / degrees of freedom.
    """
    z = normal_quantile(share)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    correction: float = sum(term / freedom**power for power, term in enumerate(terms, 1))
    return z + correction


def normal_quantile(share: float) -> float:
    """Return a quantile of the standard normal distribution, accurate to 1e-6 for shares from 1e-9 to 1 - 1e-9; statistics.NormalDist needs Python 3.8.

    Newton's method from the middle: the distribution function is concave on one side of it and convex on the other, so each step ends before the quantile.
    """
    z = 0.0
    for _step in range(40):
        z += (share - math.erfc(-z / math.sqrt(2)) / 2) * math.sqrt(2 * math.pi) * math.exp(z * z / 2)
    return z
