# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The longest response times that users allow, by workload:
how many clients are served within them is the answer of a curve of response times.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import units
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    Workload,
    WorkloadError,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.metrics import UNDECLARED

_TIME = re.compile(rf"([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?) ?({'|'.join(units.SECONDS)})\Z")
# The shortest and the longest limit in seconds.
LIMITS = (1e-6, 86400.0)
# How the values of workers are combined that one of them waits for.
_OF_EACH = ("max", "mean", UNDECLARED)
_PERCENTILE = re.compile(r"(?:p|q|percentile)_?([0-9]{1,9})")


def carrier(metrics: "t.Iterable[tuple[str, str, str, str]]") -> "str | None":
    """Return the metric that a limit is for, of some with their unit, better and aggregate: of the times that are
    waited for that of the highest percentile by its name, else the median, else the first one; None without any.
    """
    waits = [
        metric[0] for metric in metrics if metric[1] in units.SECONDS and metric[2] == "lower" and metric[3] in _OF_EACH
    ]
    ranks = {name: [*_PERCENTILE.findall(name), "5" if "median" in name else "49"] for name in waits}
    return max(waits, key=lambda name: float(f"0.{ranks[name][0]}"), default=None)


def in_seconds(given: "t.Mapping[str, t.Any]", workloads: "t.Iterable[Workload]") -> "dict[str, float]":
    """Return the limits in seconds by the name of the workload.

    Args:
        given: {name of the workload: time with its unit, such as ``2.0 s``}.
        workloads: the declarations of the plan's workloads.

    Raises:
        WorkloadError: a time is not valid, or the workload is not one of these that is measured at several values of a
            parameter, or has no metric that a limit can be for.
    """
    measured = {
        workload["name"]: [
            (metric["name"], metric["unit"], metric["better"], metric["aggregate"]) for metric in workload["metrics"]
        ]
        for workload in workloads
        if workload["parameter"] and not workload["parameter"].get("per_worker")
    }
    for name in given:
        if name not in measured:
            raise WorkloadError(
                f"response_limit names {str(name)[:80]!r}: it can be set for workloads of this plan that are measured"
                " at several loads, such as oltp"
            )
        if carrier(measured[name]) is None:
            raise WorkloadError(
                f"response_limit names {name}, whose metrics are no response times (unit {', '.join(units.SECONDS)};"
                f" better lower; aggregate max or mean): {'; '.join(map(', '.join, measured[name]))}"
            )
    return times(given)


def times(given: "t.Mapping[str, t.Any]") -> "dict[str, float]":
    """Return the limits in seconds by the name of the workload, whatever the plan's workloads are.

    Args:
        given: as for :func:`in_seconds`.

    Raises:
        WorkloadError: a time is not valid.
    """
    times_by_metric = {}
    for name, time in given.items():
        match = _TIME.match(str(time))
        seconds = float(match.group(1)) * units.SECONDS[match.group(2)] if match else 0.0
        if not LIMITS[0] <= seconds <= LIMITS[1]:
            raise WorkloadError(
                f"response_limit of {str(name)[:80]} is {str(time)[:80]!r}: give a time with its unit, such as 2.0 s or"
                " 500 ms"
            )
        times_by_metric[name] = seconds
    return times_by_metric
