# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effect of a comparison as people speak of it: the change of the metric itself, candidate against baseline.

The ratio of a comparison is turned so that above 1 is better, and is for programs. A response time that falls by a
third changes by -0.33 and is better; it is the same number wherever a person reads it.
"""

from __future__ import annotations

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
    def read(cls, fields: t.Mapping[str, t.Any]) -> Change:
        """Return the change of a comparison that has it in these :data:`FIELDS`."""
        return cls(*(fields[name] for name in FIELDS))

    @classmethod
    def of_ratios(cls, better: str, ratio: float, low: float | None, high: float | None) -> Change:
        """Return the change for a ratio and its interval that are turned so that above 1 is better."""
        ends = (low, high) if better == "higher" else (high, low)
        return cls(of_ratio(ratio, better) or 0.0, *(of_ratio(end, better) for end in ends))


def of(judged: t.Mapping[str, t.Any], better: str) -> dict[str, float | None]:
    """Return ``{change, change_low, change_high}``: candidate / baseline - 1 and its interval, None without one.

    Args:
        judged: ``{ratio, ci_low, ci_high}``, turned so that above 1 is better.
        better: the direction of the metric, ``higher`` or ``lower``.
    """
    return dict(zip(FIELDS, Change.of_ratios(better, judged["ratio"], judged["ci_low"], judged["ci_high"])))


def of_ratio(ratio: float | None, better: str) -> float | None:
    """Return the metric's own change for a ratio that is turned so that above 1 is better; None for None."""
    if ratio is None:
        return None
    return float(f"{(ratio if better == 'higher' else 1 / ratio) - 1:.11g}")
