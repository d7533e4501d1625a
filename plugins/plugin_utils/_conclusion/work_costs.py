# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same work at another cost (:mod:`_analysis.costs`), in words."""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import (
    comparisons as host_comparisons,
    costs,
    paired,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis.comparisons import Comparison


def sentences(comparisons: t.Iterable[Comparison], judged: t.Callable[[Comparison], str]) -> list[str]:
    """Return a sentence for each workload whose work is the same in two arms and costs more or less in one of them.

    Args:
        comparisons: from :func:`comparisons.compare_host`.
        judged: makes the text of a comparison: its change, and whether that is better.
    """
    found = host_comparisons.at_widest(comparisons, every_metric=True)
    same = {_place(one): one for one in found if one["primary"] and one["verdict"] == paired.EQUIVALENT}
    return [
        f"{one['title']}, {one['candidate']['arm_title']} against {one['baseline']['arm_title']}: the same"
        f" {same[_place(one)]['metric']}, and its {costs.TITLES[one['metric']]} change by {judged(one)}."
        for one in found
        if one["metric"] in costs.METRICS
        and one["verdict"] in (paired.GAIN, paired.LOSS)
        and not one["confounded"]
        and _place(one) in same
    ]


def _place(one: Comparison) -> tuple[t.Any, ...]:
    return one["workload"], one.get("parameter"), one["placement"], host_comparisons.sides_of(one)
