# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the typical value of a metric and its mean, or its tail, say opposite things.

A verdict is about typical values. A few slow answers hardly move these, and may be what users feel.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import comparisons as host_comparisons, paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import wording

MEAN = "mean"
# What names of metrics end in.
_MEDIAN = re.compile(r"(?:\A|_)(?:median|p50|typical)\Z")
_MEAN = re.compile(r"(?:\A|_)(?:mean|average|avg)\Z")
_TAIL = re.compile(r"(?:\A|_)(?:p9[0-9]+|max|maximum|worst)\Z")
# The kinds of values of which the first is typical beside the second.
_BESIDE = ((_MEDIAN, _MEAN), (_MEDIAN, _TAIL), (_MEAN, _TAIL))

Spread = dict[str, t.Any]


def found(comparisons: t.Iterable[Comparison]) -> list[Spread]:
    """Return where typical values and means or tails disagree in sign, of arms at the widest measured placement.

    Args:
        comparisons: from :func:`comparisons.compare_host`.

    Returns:
        ``{workload, title, parameter, placement, baseline, candidate, metric, change, against, against_change}`` each:
        the change of the typical value of ``metric``, and that of its ``mean`` or of another metric, ``against``; the
        typical value has a verdict, and the other change is beyond the margin, or has one, too.
    """
    of_arms = host_comparisons.at_widest(comparisons, every_metric=True)
    decided = [one for one in of_arms if one["verdict"] in (paired.GAIN, paired.LOSS) and not one["confounded"]]
    apart = []
    for one in decided:
        change = one["change"]
        if one["mean_change"] * change < 0 and abs(one["mean_change"]) > one["margin"]:
            apart.append(_described(one, MEAN, one["mean_change"]))
        apart += [
            _described(one, other["metric"], other["change"])
            for typical, beside in _BESIDE
            if typical.search(one["metric"])
            for other in decided
            if beside.search(other["metric"])
            and not other["primary"]
            and _place(other) == _place(one)
            and _is_of_the_same(typical.sub("", one["metric"]), beside.sub("", other["metric"]))
            and other["change"] * change < 0
        ]
    return apart


def _is_of_the_same(one: str, other: str) -> bool:
    """Return whether two values are of the same thing, by what is left of their names: that of a query, and that of a
    connection are not.
    """
    return one == other or not one or not other


def caution(one: Spread) -> str:
    """Return a sentence about one of these.

    Args:
        one: from :func:`found`.
    """
    typical, other = (
        f"{_verb(change)} by {wording.percent(abs(change))}" for change in (one["change"], one["against_change"])
    )
    kind = "mean" if _MEAN.search(one["against"]) else "tail"
    what = kind if one["against"] == MEAN else f"{kind} ({one['against']})"
    return (
        f"{one['title']}, {one['candidate']} against {one['baseline']}: the typical {one['metric']} {typical}, the"
        f" {what} {other}. The verdict is about the typical value."
    )


def _described(one: Comparison, against: str, change: float) -> Spread:
    return {
        **{key: one[key] for key in ("workload", "title", "placement", "metric")},
        "parameter": one.get("parameter"),
        **{side: one[side]["arm_title"] for side in ("baseline", "candidate")},
        "change": one["change"],
        "against": against,
        "against_change": change,
    }


def _place(one: Comparison) -> tuple[t.Any, ...]:
    return one["workload"], one.get("parameter"), one["placement"], host_comparisons.sides_of(one), one["better"]


def _verb(change: float) -> str:
    return "rises" if change > 0 else "falls"
