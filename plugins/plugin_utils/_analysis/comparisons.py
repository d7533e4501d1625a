# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The comparisons of one host's result, with their verdicts.

A comparison pairs two keys (workload, placement, arm, parameter value) block by block; the parameter (clients, load) is set only for workloads that
are measured at several of its values. A block without a good sample on one side is dropped from that comparison alone, and counted. Ratios are
candidate / baseline, turned so that above 1 is better whichever direction the metric has.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary.arms import AS_FOUND, SMT_OFF, SMT_ON
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import paired

Result = dict[str, t.Any]
Comparison = dict[str, t.Any]
Key = tuple[str, str, str, float | None]
# kind, effect, placement, then (placement, arm) of baseline and candidate
Pair = tuple[str, str, str, tuple[str, str], tuple[str, str]]

CONDITIONS = (SMT_ON, SMT_OFF, AS_FOUND)

WHOLE_MACHINE = "all_threads"
# In display order, from one worker to all CPUs; streams and unknown placements follow.
PLACEMENTS = ("single", "same_cpu", "siblings", "cores", "one_per_core", WHOLE_MACHINE, "unpinned")
STREAMS = re.compile(r"streams_([0-9]{1,4})\Z")

PLACEMENT_TITLES = {
    "single": "one worker alone",
    "same_cpu": "two workers on one CPU",
    "siblings": "two workers on one core",
    "cores": "two workers on two cores",
    "one_per_core": "one worker per core",
    WHOLE_MACHINE: "every online thread busy",
    "unpinned": "as many workers, not pinned",
}
# From all CPUs to one worker: settings other than SMT are compared at the widest measured placement. Streams rank before two workers.
WIDEST_FIRST = (WHOLE_MACHINE, "unpinned", "one_per_core", "streams", "cores", "siblings", "same_cpu", "single")
# Names of changes that concern SMT.
CHANGES_OF_SMT = (None, "none", "smt_runtime", "smt_boot")

# (candidate, baseline) placements -> name of the effect that their comparison measures.
PLACEMENT_PAIRS = {
    ("siblings", "cores"): "cost_of_sharing",
    ("all_threads", "one_per_core"): "smt_yield",
    ("same_cpu", "cores"): "cost_of_one_cpu",
    ("cores", "single"): "second_core",
    # For machines with a single core.
    ("siblings", "single"): "cost_of_sharing_alone",
}
# Effects whose sides have different numbers of workers: they need a metric that adds up over workers.
UNEQUAL_SIDES = ("smt_yield", "second_core", "cost_of_sharing_alone")
ADDING_UP = ("sum", workload_metrics.PER_JOB)


def compare_host(result: Result, margin: float = 0.01, confidence: float = 0.95) -> list[Comparison]:
    """Compute every comparison that a host's samples allow.

    Args:
        result: a document accepted by :func:`result_files.load`.
        margin: effects within this share of 1 count as none.
        confidence: family-wise confidence of the verdicts, from 0.5 to 0.9999.

    Returns:
        One ``{workload, title, metric, unit, better, kind, effect, placement, confounded, baseline, candidate, baseline_value, candidate_value,
        dropped_blocks, ...fields of smt_compare}`` each, with ``point`` for a workload with a parameter. ``effect`` is ``smt_off`` or, for
        another setting, ``policy`` when arms are compared, else a value of :data:`PLACEMENT_PAIRS`; ``baseline`` and ``candidate`` are
        ``{condition, placement}``. The workloads of one effect and placement form one family for the correction.
    """
    samples = _by_key(result)
    # Across boots only whole boots are paired.
    of_change = _by_key(result, "pair") if (result["change"].get("boots") or 0) > 1 else samples
    families = [_family(result, of_change if pair[0] == "change" else samples, pair, margin, confidence) for pair in _pairs(result, samples)]
    return [comparison for family in families for comparison in family]


def primary(comparisons: t.Iterable[Comparison]) -> list[Comparison]:
    """Return the comparisons of the whole machine (every online thread busy), SMT off against SMT on."""
    return [one for one in comparisons if one["effect"] == "smt_off" and one["placement"] == WHOLE_MACHINE]


def of_policy(comparisons: t.Iterable[Comparison]) -> list[Comparison]:
    """Return each workload's comparison of a setting other than SMT, such as the memory policy, at the widest measured placement."""
    widest: dict[tuple[str, float | None], Comparison] = {}
    for one in sorted((one for one in comparisons if one["effect"] == "policy"), key=lambda one: _narrowness(one["placement"])):
        widest.setdefault((one["workload"], one.get("point")), one)
    return list(widest.values())


def _narrowness(placement: str) -> tuple[int, int]:
    streams = STREAMS.match(placement)
    if streams:
        return WIDEST_FIRST.index("streams"), -int(streams.group(1))
    return (WIDEST_FIRST.index(placement) if placement in WIDEST_FIRST else len(WIDEST_FIRST)), 0


def policy_of(change: dict[str, t.Any]) -> str | None:
    """Return the name of the setting other than SMT that a run switched or was to switch.

    Args:
        change: the ``change`` of a result.

    Returns:
        The name, or None for a run that concerns SMT.
    """
    if change["compared"]:
        return None if (change.get("after") or SMT_OFF) == SMT_OFF else change["after"]
    return None if change.get("name") in CHANGES_OF_SMT else change["name"]


def placement_title(name: str) -> str:
    """Return the display name of a placement."""
    if name in PLACEMENT_TITLES:
        return PLACEMENT_TITLES[name]
    match = STREAMS.match(name)
    return f"{match.group(1)} stream{'' if match.group(1) == '1' else 's'}" if match else name


def sides(result: Result) -> tuple[str, str] | None:
    """Return the arms before and after the change that a result compares, or None when nothing was switched."""
    change = result["change"]
    return (change.get("before") or SMT_ON, change.get("after") or SMT_OFF) if change["compared"] else None


def sampled_as(result: Result, placement: str, condition: str) -> str:
    """Return the placement whose samples stand for ``placement``: the plan measures the same set of CPUs only once."""
    spots = ((result["plan"].get("placements") or {}).get(condition)) or {}
    same = (spots.get(placement) or {}).get("same_as")
    return same if isinstance(same, str) else placement


def good_value(sample: dict[str, t.Any]) -> float | None:
    """Return the metric of a successful sample, else None; also None for values that are not above zero or are implausibly large."""
    if not sample["ok"] or not sample["metric"]:
        return None
    value = sample["metric"]["value"]
    return float(value) if value is not None and paired.LEAST <= value <= paired.MOST else None


def cpus_of(text: t.Any) -> tuple[int, ...]:
    """Return the CPUs of a kernel CPU list, or none for a value that is not one."""
    try:
        return cpulist.parse(text) if isinstance(text, str) else ()
    except cpulist.CpuListError:
        return ()


def cores_of(facts: dict[str, t.Any]) -> list[tuple[int, ...]]:
    """Return the CPUs of each core, as far as the host's facts have them."""
    return [core for core in map(cpus_of, facts.get("sibling_groups") or []) if core]


def point_of(sample: dict[str, t.Any]) -> float | None:
    """Return the parameter value at which a sample was taken, or None for a workload without a parameter."""
    return (sample.get("point") or {}).get("value")


def _by_key(result: Result, unit: str = "block") -> dict[Key, dict[int, list[float]]]:
    """Group the values of good samples by key and block; a block with failed samples only has an empty list.

    Args:
        result: a document accepted by :func:`result_files.load`.
        unit: the field that groups samples: ``block``, or ``pair`` (of boots).
    """
    found: dict[Key, dict[int, list[float]]] = {}
    for sample in result["samples"]:
        blocks = found.setdefault((sample["workload"], sample["placement"], sample["condition"], point_of(sample)), {})
        values = blocks.setdefault(sample["block"] if sample.get(unit) is None else sample[unit], [])
        value = good_value(sample)
        if value is not None:
            values.append(value)
    return found


def _pairs(result: Result, samples: dict[Key, t.Any]) -> list[Pair]:
    """Return the families of comparisons that this result may contain."""
    conditions = {condition for _workload, _placement, condition, _point in samples}
    pairs: list[Pair] = []
    compared = sides(result)
    if compared and set(compared) <= conditions:
        before, after = compared
        effect = "smt_off" if after == SMT_OFF else "policy"
        pairs.extend(("change", effect, placement, (placement, before), (placement, after)) for placement in _placements_of(result, samples, before))
    condition = SMT_ON if SMT_ON in conditions else AS_FOUND
    two_cores = ((result["plan"].get("placements") or {}).get(condition) or {}).get("cores") or {}
    for (candidate, baseline), effect in PLACEMENT_PAIRS.items():
        if effect == "cost_of_sharing_alone" and not two_cores.get("reason"):
            continue
        pairs.append(("placement", effect, candidate, (baseline, condition), (candidate, condition)))
    return pairs


def _placements_of(result: Result, samples: dict[Key, t.Any], before: str) -> list[str]:
    """Return the placements to compare across arms, the whole machine first."""
    planned = (result["plan"].get("placements") or {}).get(before) or {}
    taken = [placement for _workload, placement, condition, _point in samples if condition == before]
    return [WHOLE_MACHINE, *sorted({*planned, *taken} - {WHOLE_MACHINE}, key=lambda name: (_rank(name), name))]


def _family(result: Result, samples: dict[Key, dict[int, list[float]]], pair: Pair, margin: float, confidence: float) -> list[Comparison]:
    """Compare the two sides of a pair for each workload that has both."""
    kind, effect, placement, baseline, candidate = pair
    family, values = [], []
    for workload, point in dict.fromkeys((key[0], key[3]) for key in samples):
        before, after = (samples.get((workload, sampled_as(result, *side), side[1], point)) for side in (baseline, candidate))
        if before is None or after is None or before is after or (effect in UNEQUAL_SIDES and not _adds_up(result, workload)):
            continue
        blocks = sorted(block for block in set(before) & set(after) if before[block] and after[block])
        if not blocks:
            continue
        about = describe_workload(result, workload, point)
        values.append(([before[block] for block in blocks], [after[block] for block in blocks], about["better"]))
        family.append(
            {
                **about,
                "kind": kind,
                "effect": effect,
                "placement": placement,
                "confounded": kind == "change" and bool(result["change"].get("confounded")),
                "baseline": {"condition": baseline[1], "placement": baseline[0]},
                "candidate": {"condition": candidate[1], "placement": candidate[0]},
                "baseline_value": paired.level(values[-1][0])["value"],
                "candidate_value": paired.level(values[-1][1])["value"],
                "dropped_blocks": len(set(before) | set(after)) - len(blocks),
            }
        )
    return [{**one, **judged} for one, judged in zip(family, paired.compare_family(values, margin, confidence))]


def _adds_up(result: Result, name: str) -> bool:
    """Return whether the sum of the workers' values is the total amount of work."""
    return declaration(result, name)["aggregate"] in ADDING_UP


def declaration(result: Result, name: str) -> dict[str, t.Any]:
    """Return the plan's declaration of a workload: at least its name, title, metric, unit, better and aggregate."""
    return next(one for one in result["plan"]["workloads"] if one["name"] == name)


def describe_workload(result: Result, name: str, point: float | None = None) -> dict[str, t.Any]:
    """Return ``{workload, title, metric, unit, better}`` as declared in the plan, with ``point`` where there is one."""
    declared = declaration(result, name)
    title = declared["title"] or name
    if point is not None:
        parameter = declared.get("point") or {}
        title = " ".join([f"{title}, {parameter.get('name') or 'point'} {point:g}", *filter(None, [parameter.get("unit")])])
    at = {} if point is None else {"point": point}
    return {**at, "workload": name, "title": title, **{key: declared[key] for key in ("metric", "unit", "better")}}


def levels(result: Result, confidence: float = 0.95) -> list[dict[str, t.Any]]:
    """Summarise each workload in each placement and arm by itself.

    Args:
        result: a document accepted by :func:`result_files.load`.
        confidence: of each interval, from 0.5 to 0.9999.

    Returns:
        ``{workload, placement, condition, point, value, low, high, n, failed, measured_as}`` each, in the plan's order; ``value`` is None when
        every sample failed, ``low`` and ``high`` are None for a single block; ``n`` and ``failed`` count blocks. These intervals include the
        drift from block to block: use the paired comparison to compare two of them.
    """
    samples = _by_key(result)
    found = []
    for workload, placement, condition, point in _planned_keys(result, samples):
        blocks = samples.get((workload, sampled_as(result, placement, condition), condition, point))
        if blocks is None:
            continue
        good = [values for values in blocks.values() if values]
        level = paired.level(good, confidence) if good else {"value": None, "low": None, "high": None, "n": 0}
        found.append(
            {
                "workload": workload,
                "placement": placement,
                "condition": condition,
                "point": point,
                **level,
                "failed": len(blocks) - len(good),
                "measured_as": sampled_as(result, placement, condition),
            }
        )
    return found


def _planned_keys(result: Result, samples: dict[Key, t.Any]) -> list[Key]:
    """Return every planned key, then any other key with samples."""
    points: dict[str, dict[float | None, None]] = {}
    for key in samples:
        points.setdefault(key[0], {})[key[3]] = None
    planned = [
        (workload["name"], placement, condition, point)
        for workload in result["plan"].get("workloads") or []
        for point in points.get(workload["name"], [None])
        for condition, spots in (result["plan"].get("placements") or {}).items()
        for placement in spots
    ]
    workloads = list(dict.fromkeys(key[0] for key in [*planned, *samples]))
    return sorted(dict.fromkeys([*planned, *samples]), key=lambda key: (workloads.index(key[0]), _rank(key[1]), _rank_condition(key[2]), key[:3], key[3] or 0))


def _rank(placement: str) -> tuple[int, int]:
    streams = STREAMS.match(placement)
    if streams:
        return len(PLACEMENTS), int(streams.group(1))
    return (PLACEMENTS.index(placement), 0) if placement in PLACEMENTS else (len(PLACEMENTS) + 1, 0)


def _rank_condition(condition: str) -> int:
    return CONDITIONS.index(condition) if condition in CONDITIONS else len(CONDITIONS)


def failures(result: Result) -> list[dict[str, t.Any]]:
    """Count the failed samples by workload, placement, arm and reason."""
    counts: dict[tuple[str, str, str, str], int] = {}
    for sample in result["samples"]:
        if good_value(sample) is None:
            reason = sample.get("error") or "its value is not a rate or time above zero"
            key = (sample["workload"], sample["placement"], sample["condition"], reason)
            counts[key] = counts.get(key, 0) + 1
    return [{"workload": w, "placement": p, "condition": c, "reason": reason, "samples": count} for (w, p, c, reason), count in counts.items()]


def not_measured(result: Result) -> list[dict[str, t.Any]]:
    """Return what was planned and has no sample as ``{workload, placement, condition, reason}``, where None means all."""
    absent = [
        {"workload": None, "placement": placement, "condition": condition, "reason": spot.get("reason") or "no reason given"}
        for condition, spots in (result["plan"].get("placements") or {}).items()
        for placement, spot in spots.items()
        if spot.get("workers") is None
    ]
    return [{"workload": None, "placement": None, "condition": None, **skip} for skip in result["skipped"]] + absent
