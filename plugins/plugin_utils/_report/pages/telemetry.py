# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's CPUs did while a workload ran, by placement and condition: usage, frequency, counters, throttling, stolen time -> rows of its page.

What no sample carries is no column; :func:`absent` says why.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import comparisons as host_comparisons, conclusion, smt_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import text as report_text

Sample = dict[str, t.Any]
Key = tuple[str, str, float | None]
# A text, and the number that it is sorted by.
Cell = tuple[str, float]
# Of reasons that samples give for what they lack, so many are named.
MOST_REASONS = 3
# Less than this is no usage that a rate could be divided by.
LEAST_USAGE = 1e-4


@dataclasses.dataclass(frozen=True)
class Group:
    """The good samples of one placement, condition and point.

    Attributes:
        rate: mean rate of all workers together; None for a metric that is no rate
        used: summed usage of the logical CPUs, 1 for one that is busy all the time; None where no sample tells
        share: the same as a share of all of them
        capacity: the highest rate measured with every thread busy under the same condition
    """

    samples: list[Sample]
    rate: float | None
    used: float | None
    share: float | None
    capacity: float | None = None


def table(result: host_comparisons.Result, samples: t.Sequence[Sample], levels: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, t.Any] | None:
    """What a workload's good samples carry beside its metric.

    Args:
        samples: those of one workload
        levels: of :func:`host_comparisons.levels`, whose order the rows have

    Returns:
        ``{columns, words, heads, rows}``: the names of the columns that have a value in any row, how many columns of words stand before them, the
            titles of all, and a row for each placement, condition and point as cells ``(text, what it is sorted by)``; None where no sample carries anything
    """
    groups = _groups(result, samples, levels)
    figures = [{name: figure(group) for name, (_title, figure) in COLUMNS.items()} for group in groups.values()]
    columns = [name for name in COLUMNS if any(one[name] for one in figures)]
    if not columns:
        return None
    with_point = any(point is not None for _placement, _condition, point in groups)
    heads = ["placement", "condition", *(["point"] if with_point else []), *(COLUMNS[name][0] for name in columns)]
    rows = []
    for (placement, condition, point), one in zip(groups, figures):
        place = [(host_comparisons.placement_title(placement), ""), (arms.title(condition), "")]
        spot = [("", "") if point is None else (f"{point:g}", point)] if with_point else []
        rows.append([*place, *spot, *(one[name] or ("–", "") for name in columns)])
    return {"columns": columns, "words": 2, "heads": heads, "rows": rows}


def absent(result: host_comparisons.Result, tables: t.Iterable[dict[str, t.Any] | None]) -> list[str]:
    """What no sample carries, each with the reason.

    Args:
        tables: of :func:`table`, those of all workloads
    """
    told = {name for one in tables if one for name in one["columns"]}
    return [f"{what}: {why(result)}" for name, (what, why) in ABSENCES.items() if name not in told]


def _groups(result: host_comparisons.Result, samples: t.Sequence[Sample], levels: t.Sequence[t.Mapping[str, t.Any]]) -> dict[Key, Group]:
    kinds: dict[Key, list[Sample]] = {(one["placement"], one["condition"], one["point"]): [] for one in levels}
    for sample in samples:
        if host_comparisons.good_value(sample) is not None:
            kinds.setdefault((sample["placement"], sample["condition"], host_comparisons.point_of(sample)), []).append(sample)
    groups = {kind: Group(members, _rate(members), *_usage(members)) for kind, members in kinds.items() if members}
    capacities: dict[str, float] = {}
    for (placement, condition, _point), group in groups.items():
        if group.rate is not None and placement == host_comparisons.sampled_as(result, host_comparisons.WHOLE_MACHINE, condition):
            capacities[condition] = max(group.rate, capacities.get(condition, 0.0))
    return {kind: dataclasses.replace(group, capacity=capacities.get(kind[1])) for kind, group in groups.items()}


def _rate(samples: t.Sequence[Sample]) -> float | None:
    if any(sample["metric"].get("better") == "lower" for sample in samples):
        return None
    values: list[float] = [sample["metric"]["value"] for sample in samples]
    return sum(values) / len(values)


def _usage(samples: t.Sequence[Sample]) -> tuple[float, float] | tuple[None, None]:
    told = [[share for share in usage.values() if share is not None] for sample in samples if (usage := sample.get("cpu_usage"))]
    told = [shares for shares in told if shares]
    if not told:
        return None, None
    return sum(map(sum, told)) / len(told), sum(sum(shares) / len(shares) for shares in told) / len(told)


def _used(group: Group) -> Cell | None:
    return None if group.used is None else (f"{group.used:.2f}", group.used)


def _achieved(group: Group) -> Cell | None:
    if group.rate is None or group.used is None or group.used < LEAST_USAGE:
        return None
    value = smt_metrics.achievement_rate(group.rate, group.used)
    return report_text.number(value), value


def _room(which: str) -> t.Callable[[Group], Cell | None]:
    """How much more work there is room for, as a share of the work done: ``by_usage``, as usage suggests, or ``real``."""

    def figure(group: Group) -> Cell | None:
        if group.rate is None or group.capacity is None or group.share is None or not LEAST_USAGE <= group.share <= 1:
            return None
        more = smt_metrics.headroom(group.rate, group.share, group.capacity)[which] / group.rate
        return conclusion.signed(1 + more), more

    return figure


def _frequency(group: Group) -> Cell | None:
    told = [megahertz for sample in group.samples for megahertz in (sample.get("frequency") or {}).values() if megahertz]
    return (f"{sum(told) / len(told):.0f}", sum(told) / len(told)) if told else None


def _counts(group: Group, which: str) -> tuple[float, list[float]] | None:
    """Cycles of all these threads or cores in all samples, and the instructions of each."""
    counted = [one for sample in group.samples for one in ((sample.get("perf") or {}).get(which) or {}).values()]
    counted = [one for one in counted if (one.get("cycles") or 0) >= 1 and (one.get("instructions") or 0) >= 1]
    return (sum(one["cycles"] for one in counted), [one["instructions"] for one in counted]) if counted else None


def _ipc(group: Group) -> Cell | None:
    counts = _counts(group, "cpus")
    if counts is None:
        return None
    value = 1 / smt_metrics.cpi(counts[0], sum(counts[1]))
    return f"{value:.2f}", value


def _core_cpi(group: Group) -> Cell | None:
    counts = _counts(group, "cores")
    if counts is None:
        return None
    value = smt_metrics.core_cpi(*counts)
    return f"{value:.2f}", value


def _throttled(group: Group) -> Cell | None:
    told = [count for sample in group.samples if (count := sample.get("throttled")) is not None]
    return (f"{sum(told)}", sum(told)) if told else None


def _stolen(group: Group) -> Cell | None:
    told = [share for sample in group.samples if (share := sample.get("steal")) is not None]
    if not told:
        return None
    mean, most = sum(told) / len(told), max(told)
    return (conclusion.percent(mean) if most - mean < 0.001 else f"{conclusion.percent(mean)}, up to {conclusion.percent(most)}"), mean


# Column -> its title, and the figure.
COLUMNS: dict[str, tuple[str, t.Callable[[Group], Cell | None]]] = {
    "used": ("CPUs used", _used),
    "achieved": ("work by used CPU", _achieved),
    "by_usage": ("room by usage", _room("by_usage")),
    "real": ("real room", _room("real")),
    "frequency": ("MHz", _frequency),
    "ipc": ("IPC of a thread", _ipc),
    "core_cpi": ("CPI of a core", _core_cpi),
    "throttled": ("throttled", _throttled),
    "stolen": ("stolen", _stolen),
}


def _why_not_counted(result: host_comparisons.Result) -> str:
    reasons = list(dict.fromkeys(reason for sample in result["samples"] if (reason := (sample.get("perf") or {}).get("reason"))))
    return "; ".join(reasons[:MOST_REASONS]) or "the samples carry none"


ABSENCES: dict[str, tuple[str, t.Callable[[host_comparisons.Result], str]]] = {
    "used": ("usage of the CPUs", lambda _result: "the samples carry none"),
    "frequency": ("frequency", lambda _result: "neither cpufreq nor /proc/cpuinfo tells it on this host"),
    "ipc": ("cycles and instructions", _why_not_counted),
    "throttled": ("throttling", lambda _result: "this host shows no counter of it (thermal_throttle)"),
    "stolen": ("stolen time", lambda _result: "the samples carry none"),
}
