# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effect of a comparison as people speak of it: the change of the metric itself, candidate against baseline.

The ratio of a comparison is turned so that above 1 is better, and is for programs. A response time that falls by a
third changes by -0.33 and is better; it is the same number wherever a person reads it.
"""

from __future__ import annotations

import functools
import typing as t

FIELDS = ("change", "change_low", "change_high")


class Change(t.NamedTuple):
    """The change of a metric, as a share: -0.2 is 20 % less.

    Attributes:
        value: the change.
        low: the lower end of its interval; None without one.
        high: the upper end.
    """

    value: float
    low: float | None
    high: float | None

    @classmethod
    @functools.lru_cache(maxsize=4096)
    def of_ratios(cls, better: str, ratio: float, low: float | None, high: float | None) -> Change:
        """Return the change for a ratio and its interval that are turned so that above 1 is better.

        Args:
            better: the direction of the metric, ``higher`` or ``lower``.
            ratio: candidate / baseline, turned.
            low: the lower end of its interval; None without one.
            high: the upper end.
        """
        ends = (low, high) if better == "higher" else (high, low)
        return cls(of_ratio(ratio, better) or 0.0, *(of_ratio(end, better) for end in ends))

    def described(self) -> dict[str, float | None]:
        """Return it as plain data."""
        return dict(zip(FIELDS, self))


def of_ratio(ratio: float | None, better: str) -> float | None:
    """Return the metric's own change for a ratio that is turned so that above 1 is better; None for None."""
    if ratio is None:
        return None
    return float(f"{(ratio if better == 'higher' else 1 / ratio) - 1:.11g}")
