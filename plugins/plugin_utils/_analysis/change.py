# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The effect of a comparison as people speak of it: the change of the metric itself, candidate against baseline.

The ratio of a comparison is turned so that above 1 is better, and is for programs. A response time that falls by a
third changes by -0.33 and is better; it is the same number wherever a person reads it.
"""

from __future__ import annotations

import typing as t

FIELDS = ("change", "change_low", "change_high")


def of(judged: t.Mapping[str, t.Any], better: str) -> dict[str, float | None]:
    """Return ``{change, change_low, change_high}``: candidate / baseline - 1 and its interval, None without one.

    Args:
        judged: ``{ratio, ci_low, ci_high}``, turned so that above 1 is better.
        better: the direction of the metric, ``higher`` or ``lower``.
    """
    ends = ("ci_low", "ci_high") if better == "higher" else ("ci_high", "ci_low")
    return dict(zip(FIELDS, (of_ratio(judged[name], better) for name in ("ratio", *ends))))


def of_ratio(ratio: float | None, better: str) -> float | None:
    """Return the metric's own change for a ratio that is turned so that above 1 is better; None for None."""
    if ratio is None:
        return None
    return float(f"{(ratio if better == 'higher' else 1 / ratio) - 1:.11g}")
