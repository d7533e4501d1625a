# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is found of two sides, wherever they come from: their ratio with its interval, and what that says."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.verdicts import GAIN, LOSS
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording
from ansible_collections.threadwise.smt.plugins.plugin_utils._page.change import Change

# What a verdict is of the sides exchanged, where it is another one.
OPPOSITE = {GAIN: LOSS, LOSS: GAIN}
# The fields of a :class:`Judged` that the filter smt_compare returns.
PUBLIC = (
    *("ratio", "ci_low", "ci_high", "confidence", "n", "margin", "minimum_detectable", "verdict", "method", "p_value"),
    *("p_adjusted", "interval_confidence", "family", "looks"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ratio:
    """The ratio of two sides with its interval, and what it says.

    Attributes:
        better: the direction of the metric, ``higher`` or ``lower``.
        ratio: after / before, turned so that above 1 is better.
        ci_low: the lower end of its interval; None without one.
        ci_high: the upper end.
        confidence: of the whole family.
        n: the number of blocks.
        margin: effects within this share of 1 count as none.
        verdict: what that says.
        method: how the interval was computed.
        p_value: of no effect.
        p_adjusted: the same for the family and all looks.
        interval_confidence: that of this one interval after the correction for the family.
        family: how many comparisons are corrected together.
    """

    better: str
    ratio: float
    ci_low: float | None
    ci_high: float | None
    confidence: float
    n: int
    margin: float
    verdict: str
    method: str
    p_value: float
    p_adjusted: float
    interval_confidence: float
    family: int

    @property
    def change(self) -> Change:
        """The metric's own change."""
        return Change.of_ratios(self.better, self.ratio, self.ci_low, self.ci_high)

    @property
    def is_called(self) -> bool:
        """Whether it is called a gain or a loss."""
        return self.verdict in (GAIN, LOSS)

    @property
    def word(self) -> str:
        """The word for its verdict."""
        return wording.VERDICT_TITLES[self.verdict]

    @property
    def in_words(self) -> str:
        """It as ``−20 % (−22 to −18 %), worse``."""
        return f"{wording.change_and_interval(self.change)}, {self.word}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judged(Ratio):
    """Two sides compared block by block.

    Attributes:
        minimum_detectable: the share by which the ratio would have to differ from 1 for a gain or loss in 90 % of such
            runs; None without an interval.
        looks: the number of planned looks.
    """

    minimum_detectable: float | None
    looks: int

    def described(self) -> dict[str, t.Any]:
        """Return what the filter smt_compare does."""
        return {name: getattr(self, name) for name in PUBLIC}
