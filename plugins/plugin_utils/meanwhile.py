# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host's CPUs did while a workload ran, by placement and condition: usage, frequency, counters, throttling, stolen time -> rows of its page.

What no sample carries is no column; :func:`absent` says why.
"""

from __future__ import annotations

import typing as t
from statistics import fmean

from ansible_collections.threadwise.smt.plugins.plugin_utils import analysis, answer, charts, derived, words

Sample = t.Dict[str, t.Any]
# A text, and the number that it is sorted by.
Cell = t.Tuple[str, float]
# Of reasons that samples give for what they lack, so many are named.
MOST_REASONS = 3


def table(result: analysis.Result, samples: t.Sequence[Sample], levels: t.Sequence[t.Mapping[str, t.Any]]) -> dict[str, t.Any] | None:
    """What a workload's good samples carry beside its metric.

    :param samples: those of one workload
    :param levels: of :func:`analysis.levels`, whose order the rows have
    :returns: ``{heads, rows}``: the columns that have a value in any row, and a row for each placement, condition and point as cells
        ``[text, what it is sorted by]``; None where no sample carries anything
    """
    kinds: dict[tuple[str, str, float | None], list[Sample]] = {(one["placement"], one["condition"], one["point"]): [] for one in levels}
    for sample in samples:
        if analysis.good_value(sample) is not None:
            kinds.setdefault((sample["placement"], sample["condition"], analysis.point_of(sample)), []).append(sample)
    kinds = {kind: group for kind, group in kinds.items() if group}
    capacities = _capacities(result, kinds)
    figures = [{**{name: figure(group) for name, (_title, figure) in FIGURES.items()}, **_room(group, capacities.get(kind[1]))} for kind, group in kinds.items()]
    columns = [name for name in TITLES if any(one.get(name) for one in figures)]
    if not columns:
        return None
    with_point = any(point is not None for _placement, _condition, point in kinds)
    heads = ["placement", "condition", *(["point"] if with_point else []), *(TITLES[name] for name in columns)]
    rows = []
    for (placement, condition, point), one in zip(kinds, figures):
        place = [(analysis.placement_title(placement), ""), (charts.condition_title(condition), "")]
        spot = [("", "") if point is None else (f"{point:g}", point)] if with_point else []
        rows.append([*place, *spot, *(one.get(name) or ("–", "") for name in columns)])
    return {"heads": heads, "words": 2, "rows": rows}


def absent(result: analysis.Result) -> list[str]:
    """What the samples do not carry, each with the reason."""
    good = [sample for sample in result["samples"] if analysis.good_value(sample) is not None]
    return [f"{what}: {why(good)}" for what, figure, why in ABSENCES if good and figure(good) is None]


def _mean_usage(samples: t.Sequence[Sample]) -> tuple[float, float] | None:
    """Summed usage of the logical CPUs, 1 for one that is busy all the time, and the same as a share of all of them."""
    told = [[share for share in (sample.get("cpu_usage") or {}).values() if share is not None] for sample in samples]
    told = [shares for shares in told if shares]
    return (fmean(map(sum, told)), fmean(map(fmean, told))) if told else None


def _rate(samples: t.Sequence[Sample]) -> float | None:
    """Mean rate of all workers together; None for a metric that is no rate."""
    if any(sample["metric"].get("better") == "lower" for sample in samples):
        return None
    return fmean(value for value in map(analysis.good_value, samples) if value is not None)


def _used(samples: t.Sequence[Sample]) -> Cell | None:
    usage = _mean_usage(samples)
    return usage and (f"{usage[0]:.2f}", usage[0])


def _achieved(samples: t.Sequence[Sample]) -> Cell | None:
    rate, usage = _rate(samples), _mean_usage(samples)
    if rate is None or not usage or not usage[0]:
        return None
    value = derived.achievement_rate(rate, usage[0])
    return words.number(value), value


def _frequency(samples: t.Sequence[Sample]) -> Cell | None:
    told = [megahertz for sample in samples for megahertz in (sample.get("frequency") or {}).values() if megahertz]
    if not told:
        return None
    return f"{fmean(told):.0f}", fmean(told)


def _counts(samples: t.Sequence[Sample], which: str) -> tuple[float, list[float]] | None:
    """Cycles of all these threads or cores in all samples, and the instructions of each."""
    counted = [one for sample in samples for one in ((sample.get("perf") or {}).get(which) or {}).values()]
    counted = [one for one in counted if (one.get("cycles") or 0) > 0 and (one.get("instructions") or 0) > 0]
    return (sum(one["cycles"] for one in counted), [one["instructions"] for one in counted]) if counted else None


def _ipc(samples: t.Sequence[Sample]) -> Cell | None:
    counts = _counts(samples, "cpus")
    if counts is None:
        return None
    value = 1 / derived.cpi(counts[0], sum(counts[1]))
    return f"{value:.2f}", value


def _core_cpi(samples: t.Sequence[Sample]) -> Cell | None:
    counts = _counts(samples, "cores")
    if counts is None:
        return None
    value = derived.core_cpi(*counts)
    return f"{value:.2f}", value


def _throttled(samples: t.Sequence[Sample]) -> Cell | None:
    told = [sample["throttled"] for sample in samples if sample.get("throttled") is not None]
    return (f"{sum(told)}", sum(told)) if told else None


def _stolen(samples: t.Sequence[Sample]) -> Cell | None:
    told = [sample["steal"] for sample in samples if sample.get("steal") is not None]
    if not told:
        return None
    mean, most = fmean(told), max(told)
    return (answer.percent(mean) if most - mean < 0.001 else f"{answer.percent(mean)}, up to {answer.percent(most)}"), mean


def _capacities(result: analysis.Result, kinds: t.Mapping[tuple[str, str, float | None], t.Sequence[Sample]]) -> dict[str, float]:
    """Condition -> the highest rate measured with every thread busy."""
    found: dict[str, float] = {}
    for (placement, condition, _point), samples in kinds.items():
        rate = _rate(samples)
        if rate is not None and placement == analysis.sampled_as(result, analysis.WHOLE_MACHINE, condition):
            found[condition] = max(rate, found.get(condition, 0.0))
    return found


def _room(samples: t.Sequence[Sample], capacity: float | None) -> dict[str, Cell]:
    """How much more work there is room for, as usage suggests and in truth, as shares of the work done."""
    rate, usage = _rate(samples), _mean_usage(samples)
    if rate is None or capacity is None or not usage or not 0 < usage[1] <= 1:
        return {}
    room = derived.headroom(rate, usage[1], capacity)
    return {name: (answer.signed(1 + room[name] / rate), room[name] / rate) for name in ("by_usage", "real")}


# Column -> its title, and the figure from the samples of one kind.
FIGURES: dict[str, tuple[str, t.Callable[[t.Sequence[Sample]], Cell | None]]] = {
    "used": ("CPUs used", _used), "achieved": ("work by used CPU", _achieved), "frequency": ("MHz", _frequency), "ipc": ("IPC of a thread", _ipc),
    "core_cpi": ("CPI of a core", _core_cpi), "throttled": ("throttled", _throttled), "stolen": ("stolen", _stolen),
}
TITLES = {
    "used": FIGURES["used"][0], "achieved": FIGURES["achieved"][0], "by_usage": "room by usage", "real": "real room",
    **{name: title for name, (title, _figure) in FIGURES.items() if name not in ("used", "achieved")},
}


def _why_not_counted(samples: t.Sequence[Sample]) -> str:
    reasons = list(dict.fromkeys(reason for sample in samples if (reason := (sample.get("perf") or {}).get("reason"))))
    return "; ".join(reasons[:MOST_REASONS]) or "the samples carry none"


ABSENCES: tuple[tuple[str, t.Callable[[t.Sequence[Sample]], Cell | None], t.Callable[[t.Sequence[Sample]], str]], ...] = (
    ("usage of the CPUs", _used, lambda _samples: "the samples carry none"),
    ("frequency", _frequency, lambda _samples: "neither cpufreq nor /proc/cpuinfo tells it on this host"),
    ("cycles and instructions", _ipc, _why_not_counted),
    ("throttling", _throttled, lambda _samples: "this host shows no counter of it (thermal_throttle)"),
    ("stolen time", _stolen, lambda _samples: "the samples carry none"),
)
