# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What second threads give on each hardware class, as the evaluations of its hosts found it."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import room
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding.conclusions import Conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import pooled


@dataclasses.dataclass(frozen=True)
class Yield:
    """The work with SMT on, every online thread busy, in that with SMT off.

    Attributes:
        workload: its name.
        value: the ratio.
        low: the lower end of its interval.
        high: the upper end.
        hosts: of how many hosts.
    """

    workload: str
    value: float
    low: float
    high: float
    hosts: int


def by_class(
    conclusions: t.Iterable[Conclusion], classes: t.Mapping[str, str | None] | None = None
) -> dict[str, list[Yield]]:
    """Return the yields of each hardware class, of the hosts and runs that count for its decision; where a workload has
    a parameter, at each of its values.

    Args:
        conclusions: as for :func:`decisions.decisions`.
        classes: likewise.
    """
    by_name: dict[str, dict[tuple[str, float | None], dict[str, Comparison]]] = {}
    for name, of_hosts in decisions.counted(conclusions, classes)[0].items():
        for evaluation in of_hosts:
            for key, comparison in evaluation.workloads.items():
                if comparison.ci_low is not None and not comparison.confounded:
                    by_name.setdefault(name, {}).setdefault(key, {})[evaluation.host] = comparison
    return {name: list(filter(None, map(_yield, of_class, of_class.values()))) for name, of_class in by_name.items()}


def _yield(key: tuple[str, float | None], hosts: dict[str, Comparison]) -> Yield | None:
    """Return the yield of a workload; None where its hosts do not measure the same, or where it is none."""
    if len(pooled.declarations(hosts)) > 1:
        return None
    # What one worker waits or takes is no work of all threads.
    if next(iter(hosts.values())).aggregate not in workload_metrics.ADDING_UP:
        return None
    combined = next(iter(hosts.values())) if len(hosts) == 1 else pooled.combine_family([hosts])[0]
    if combined.ci_low is None or combined.ci_high is None or combined.ci_low <= 0:
        return None
    # Comparisons are of SMT off against SMT on, turned so that above 1 is better: more work, or less time for it.
    value, low, high = 1 / combined.ratio, 1 / combined.ci_high, 1 / combined.ci_low
    if not room.LIMITS.low <= low <= high <= room.LIMITS.high:
        return None
    name, parameter = key
    return Yield(name if parameter is None else f"{name} {parameter:g}", value, low, high, len(hosts))
