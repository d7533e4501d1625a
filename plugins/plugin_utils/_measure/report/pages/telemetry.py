# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Telemetry of a host's CPUs while a workload ran, by placement and arm: usage, frequency, counters, throttling,
steal time.

A quantity without values has no column; :func:`absent` gives the reason.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult, Sample
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    paired,
    recorded,
    smt_metrics,
    usage,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.measures import Level
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

Key = tuple[str, str, float | None]
# A text and its sort key.
Cell = tuple[str, float]
# Reasons for missing quantities that are listed.
MAX_REASONS = 3
# A core's cycles by instruction are shown as a range where its ends are at least so far apart.
LEAST_RANGE = 1.02


@dataclasses.dataclass(frozen=True)
class Group:
    """The good samples of one placement, arm and parameter value.

    Attributes:
        samples: the samples.
        usage: their CPU usage against the work, or None where it was not recorded.
        nominal_mhz: nominal frequency of the host's CPUs, or None.
    """

    samples: list[Sample]
    usage: usage.Usage | None
    nominal_mhz: float | None


def table(
    result: HostResult,
    samples: t.Sequence[Sample],
    levels: t.Sequence[Level],
    used: t.Mapping[Key, usage.Usage],
) -> dict[str, t.Any] | None:
    """Make the table of a workload's telemetry.

    Args:
        result: from :func:`result_files.load`.
        samples: of one workload.
        levels: from :func:`measures.levels`; the rows have their order.
        used: the workload's usage, from :func:`usage.of_workload`.

    Returns:
        ``{columns, text_columns, heads, rows}``: the names of the columns with any value, the number of text columns
        before them, all titles, and one row of cells ``(text, sort key)`` per placement, arm and parameter value; None
        without telemetry.
    """
    groups = _groups(result, samples, levels, used)
    figures = [{name: value_of(group) for name, (_title, value_of) in COLUMNS.items()} for group in groups.values()]
    columns = [name for name in COLUMNS if any(cells[name] for cells in figures)]
    if not columns:
        return None
    with_parameter = any(parameter is not None for _placement, _arm, parameter in groups)
    heads = ["placement", "arm", *(["parameter"] if with_parameter else []), *(COLUMNS[name][0] for name in columns)]
    rows = []
    for (placement, arm, parameter), cells in zip(groups, figures):
        place = [(placements.title(placement), ""), (recorded.arm_title(result, arm), "")]
        spot = [("", "") if parameter is None else (f"{parameter:g}", parameter)] if with_parameter else []
        rows.append([*place, *spot, *(cells[name] or ("–", "") for name in columns)])
    return {"columns": columns, "text_columns": 2, "heads": heads, "rows": rows}


def absent(result: HostResult, tables: t.Iterable[dict[str, t.Any] | None]) -> list[str]:
    """Return each missing quantity with the reason.

    Args:
        result: from :func:`result_files.load`.
        tables: from :func:`table`, of all workloads.
    """
    present = {name for of_workload in tables if of_workload for name in of_workload["columns"]}
    return [f"{what}: {why(result)}" for name, (what, why) in ABSENCES.items() if name not in present]


def _groups(
    result: HostResult,
    samples: t.Sequence[Sample],
    levels: t.Sequence[Level],
    used: t.Mapping[Key, usage.Usage],
) -> dict[Key, Group]:
    primary = recorded.primary_metrics(result)
    kinds: dict[Key, list[Sample]] = {(level.placement, level.arm, level.parameter): [] for level in levels}
    for sample in samples:
        if recorded.good_value(sample, primary[sample.workload]) is not None:
            kinds.setdefault((sample.placement, sample.arm, sample.parameter), []).append(sample)
    return {
        kind: Group(members, used.get(kind), result.environment.nominal_mhz)
        for kind, members in kinds.items()
        if members
    }


def _used(group: Group) -> Cell | None:
    return None if group.usage is None else (f"{group.usage.cpus:.2f}", group.usage.cpus)


def _achieved(group: Group) -> Cell | None:
    if group.usage is None or group.usage.achieved is None:
        return None
    return wording.number(group.usage.achieved), group.usage.achieved


def _room(which: str) -> t.Callable[[Group], Cell | None]:
    """Return the column of the headroom as a share of the present rate: ``by_usage``, as usage suggests, or ``real``,
    as measured.
    """

    def value_of(group: Group) -> Cell | None:
        room: paired.Span | None = getattr(group.usage, which, None)
        if room is None or room.value is None:
            return None
        ends = " to ".join(wording.signed(1 + end) for end in (room.low, room.high) if end is not None)
        least = "at least " if which == "real" and group.usage and not group.usage.saturated else ""
        return least + wording.signed(1 + room.value) + (f" ({ends})" if ends else ""), room.value

    return value_of


def _by_clock(group: Group) -> Cell | None:
    if group.usage is None or group.usage.rate is None or not group.nominal_mhz:
        return None
    value = group.usage.rate / (group.nominal_mhz / 1000)
    return wording.number(value), value


def _frequency(group: Group) -> Cell | None:
    known = [
        megahertz
        for sample in group.samples
        for megahertz in (recorded.telemetry_of(sample).frequency or {}).values()
        if megahertz
    ]
    return (f"{sum(known) / len(known):.0f}", sum(known) / len(known)) if known else None


def counts(samples: t.Iterable[Sample], which: str) -> tuple[float, list[float]] | None:
    """Return the summed cycles of all these threads or cores, and the instructions of each.

    Args:
        samples: the samples.
        which: ``cpus`` or ``cores``.
    """
    counted = [
        (counters.cycles, counters.instructions)
        for sample in samples
        if (perf := recorded.telemetry_of(sample).perf)
        for counters in (perf.cpus if which == "cpus" else perf.cores).values()
        if counters.cycles is not None
        and counters.cycles >= 1
        and counters.instructions is not None
        and counters.instructions >= 1
    ]
    return (sum(cycles for cycles, _done in counted), [done for _cycles, done in counted]) if counted else None


def _ipc(group: Group) -> Cell | None:
    counted = counts(group.samples, "cpus")
    if counted is None:
        return None
    value = 1 / smt_metrics.cpi(counted[0], sum(counted[1]))
    return f"{value:.2f}", value


def _share(part: str, name: str) -> t.Callable[[Group], Cell | None]:
    """Return the column of a share of threads' cycles (``stalls``) or issue slots (``topdown``): the mean over threads,
    each by its cycles.
    """

    def value_of(group: Group) -> Cell | None:
        known = [
            (counters.cycles, share)
            for sample in group.samples
            if (perf := recorded.telemetry_of(sample).perf)
            for counters in perf.cpus.values()
            if counters.cycles is not None and counters.cycles >= 1
            if (share := getattr(getattr(counters, part), name, None)) is not None
        ]
        if not known:
            return None
        mean = sum(cycles * share for cycles, share in known) / sum(cycles for cycles, _share in known)
        return wording.percent(mean), mean

    return value_of


def _core_cpi(group: Group) -> Cell | None:
    """Return the cell of a core's cycles by instruction. The cycles of a core are those of its busiest thread if the
    others ran at the same time, and more if they took turns, which counters of threads do not tell: a range.
    """
    counted = counts(group.samples, "cores")
    if counted is None:
        return None
    low = smt_metrics.core_cpi(*counted)
    high = low * _turns(group)
    return f"{low:.2f}" if high < LEAST_RANGE * low else f"{low:.2f} to {high:.2f}", low


def _turns(group: Group) -> float:
    """Return how many times the cycles of the busiest threads their cores may have run: threads that are busy for
    shares a and b of the time keep a core busy for at least the larger share, and at most a + b.
    """
    most = least = 0.0
    for sample in group.samples:
        telemetry = recorded.telemetry_of(sample)
        for core, counted in (telemetry.perf.cores if telemetry.perf else {}).items():
            shares = [share for cpu in core.split(",") if (share := (telemetry.cpu_usage or {}).get(cpu))]
            if counted.cycles and shares:
                least += counted.cycles
                most += counted.cycles * min(1.0, sum(shares)) / min(1.0, max(shares))
    return most / least if least else 1.0


def _throttled(group: Group) -> Cell | None:
    known = [count for sample in group.samples if (count := recorded.telemetry_of(sample).throttled) is not None]
    return (f"{sum(known)}", sum(known)) if known else None


def _stolen(group: Group) -> Cell | None:
    known = [share for sample in group.samples if (share := recorded.telemetry_of(sample).steal) is not None]
    if not known:
        return None
    mean, most = sum(known) / len(known), max(known)
    return (
        wording.percent(mean) if most - mean < 0.001 else f"{wording.percent(mean)}, up to {wording.percent(most)}"
    ), mean


# Column -> its title and the function for a cell.
COLUMNS: dict[str, tuple[str, t.Callable[[Group], Cell | None]]] = {
    "used": ("CPUs used", _used),
    "achieved": ("work by used CPU", _achieved),
    "by_usage": ("headroom by usage", _room("by_usage")),
    "real": ("real headroom", _room("real")),
    "by_clock": ("rate by nominal GHz", _by_clock),
    "frequency": ("MHz", _frequency),
    "ipc": ("IPC of a thread", _ipc),
    "core_cpi": ("CPI of a core", _core_cpi),
    "frontend_stalled": ("front end stalled", _share("stalls", "frontend_stalled")),
    "backend_stalled": ("back end stalled", _share("stalls", "backend_stalled")),
    "retiring": ("slots retiring", _share("topdown", "retiring")),
    "bad_speculation": ("slots of bad speculation", _share("topdown", "bad_speculation")),
    "frontend_bound": ("slots front-end bound", _share("topdown", "frontend_bound")),
    "backend_bound": ("slots back-end bound", _share("topdown", "backend_bound")),
    "throttled": ("throttled, in all", _throttled),
    "stolen": ("stolen", _stolen),
}


def _why_not_counted(result: HostResult) -> str:
    reasons = list(
        dict.fromkeys(
            reason
            for sample in result.samples
            if (perf := recorded.telemetry_of(sample).perf) and (reason := perf.reason)
        )
    )
    return "; ".join(reasons[:MAX_REASONS]) or "the samples have none"


ABSENCES: dict[str, tuple[str, t.Callable[[HostResult], str]]] = {
    "used": ("usage of the CPUs", lambda _result: "the samples have none"),
    "by_clock": (
        "nominal frequency",
        lambda _result: "neither the kernel nor the model's name has it on this host (smt_eval_nominal_ghz)",
    ),
    "frequency": ("frequency", lambda _result: "neither cpufreq nor /proc/cpuinfo has it on this host"),
    "ipc": ("cycles and instructions", _why_not_counted),
    "throttled": ("throttling", lambda _result: "this host has no counter for it (thermal_throttle)"),
    "stolen": ("steal time", lambda _result: "the samples have none"),
}
