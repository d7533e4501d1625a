# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page of one host."""

from __future__ import annotations

import json
import shlex
import statistics as plain_statistics
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import goals
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.facts import Facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border.host_result import HostResult, Sample
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    recorded,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Ratio
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import text as report_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import (
    answer as answer_part,
    arms as arms_part,
    telemetry as telemetry_part,
    workloads as workloads_part,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages.workloads import (
    MAX_ROWS_DRAWN,
    MAX_SAMPLES_SHOWN,
    short,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.summary import Summary
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import charts, frame, wording

MAX_CPUS_DRAWN = 256

# Name of a column, and whether it holds numbers.
SAMPLE_HEADS = (
    ("order", True),
    ("block", True),
    ("workload", False),
    ("placement", False),
    ("arm", False),
    ("value", True),
    ("unit", False),
    ("wall s", True),
    ("steal", True),
    ("started", False),
    ("worked", False),
)


def render(summary: Summary, alone: bool) -> str:
    """Render the page.

    Args:
        summary: of the host.
        alone: whether there is no overview page to link to.
    """
    analysis, result, comparisons = summary.analysis, summary.result, summary.analysis.comparisons
    several = len(result.arms) > 2
    of_smt, of_others = analysis.of_smt, analysis.of_other_arms
    within = (
        []
        if several
        else [comparison for comparison in comparisons if comparison.kind == "arm" and comparison.is_most_load]
    )
    of_smt, of_others = (
        [comparison for comparison in group if several or not comparison.is_most_load] for group in (of_smt, of_others)
    )
    main, among = (
        (arms_part.against_baseline(summary), arms_part.among_others(summary))
        if several
        else ([*of_smt, *of_others], [])
    )
    # With few workloads no table says more than what the curves of streams have in theirs.
    workloads = workloads_part.workloads(analysis)
    by_streams = {workload["workload"] for workload in workloads if workload["streams"]}
    between_arms = [comparison for comparison in comparisons if comparison.kind == "arm"]
    deciding = [
        comparison
        for comparison in between_arms
        if comparison.primary
        and comparison not in within
        and not (comparison.workload in by_streams and workloads_part.is_of_streams(comparison))
    ]
    # Where the whole machine was not compared, the picture is of what the conclusion is about then.
    main = main or host_comparisons.at_widest(deciding)
    shown = set(map(id, [*main, *among])) | (
        set() if several else {(True, comparison.placement) for comparison in of_smt}
    )
    sides = report_text.SIDES_OF_SMT if of_smt and not of_others and not several else report_text.SIDES_OF_ARMS
    baseline, *candidates = (recorded.arm_title(result, name) for name in host_comparisons.in_order(result))
    opening, rest = answer_part.opening(summary.conclusion.statements)
    further = [comparison for comparison in between_arms if not comparison.primary]
    return frame.render(
        "host.html.j2",
        result=result,
        summary=summary,
        conclusion=summary.conclusion,
        opening=opening,
        rest=rest,
        alone=alone,
        main=main,
        among=among,
        within=within,
        main_charts=(
            arms_part.forests(main)
            if several
            else [forest([report_text.ratio_row(row.title, row) for row in main], main, sides)]
        ),
        compared=f"{'each other arm' if several else candidates[0]} against {baseline}" if candidates else None,
        several=several,
        why_not=recorded.why_not_compared(result),
        sides=sides,
        others=[
            comparison
            for comparison in deciding
            if id(comparison) not in shown and (comparison.is_of_smt, comparison.placement) not in shown
        ],
        further=further,
        further_chart=_of_further(further, several),
        busy=" or ".join(dict.fromkeys(placements.title(comparison.placement) for comparison in main)),
        question=report_text.question(summary),
        concluded=report_text.conclusion_title(summary),
        of_smt_alone=report_text.is_of_smt_alone(summary),
        exposure=arms_part.exposures(summary),
        factors=arms_part.of_factors(summary.factors, analysis.settings[0]),
        effects=_effects(comparisons),
        workloads=workloads,
        machine=_machine(result),
        usage=_usage(result),
        sequence=_sequence(result),
        others_used=result.environment.busy and result.environment.busy.others,
        absent=telemetry_part.absent(result, [workload["telemetry"] for workload in workloads]) if workloads else [],
        settings=_settings(result),
        command=_command(result),
        own=_own_commands(result),
        sample_heads=SAMPLE_HEADS,
        samples=[
            _sample_cells(result, place, sample) for place, sample in enumerate(result.samples[:MAX_SAMPLES_SHOWN])
        ],
        facts=json.dumps(parts.plain(result.facts), indent=1, sort_keys=True, ensure_ascii=False),
    )


def forest(
    rows: t.Sequence[charts.RatioRow],
    comparisons: t.Sequence[Ratio],
    sides: tuple[str, str] = report_text.SIDES_OF_SMT,
) -> charts.Picture | None:
    """Draw the forest plot of these rows with its alternative text; None without rows."""
    rows = rows[:MAX_ROWS_DRAWN]
    if not rows:
        return None
    summary = "; ".join(row.said() for row in rows[:20])
    return charts.forest(rows, comparisons[0].margin, sides, f"Change with its interval: {summary}")


def _of_further(further: t.Sequence[Comparison], several: bool) -> charts.Picture | None:
    """Draw the comparisons of arms by other metrics, where they are about the whole machine."""
    widest = host_comparisons.at_widest(further, every_metric=True)
    rows = [
        report_text.ratio_row(
            f"{comparison.title}, {comparison.metric}{', ' + comparison.candidate.arm_title if several else ''}",
            comparison,
        )
        for comparison in widest
    ]
    return forest(rows, widest, ("worse", "better"))


def _effects(comparisons: t.Sequence[Comparison]) -> list[dict[str, t.Any]]:
    """Return the comparisons between placements, by effect, each with its chart: of the primary metrics first."""
    groups = []
    for effect in host_comparisons.EFFECTS:
        group = sorted(
            (comparison for comparison in comparisons if comparison.effect == effect),
            key=lambda comparison: not comparison.primary,
        )
        if group:
            several = len({(pair.candidate.placement, pair.baseline.placement) for pair in group}) > 1
            # A metric of another direction would take the numbers from the axis; the table has it.
            directions = {comparison.better for comparison in group if comparison.primary} or {group[0].better}
            rows = []
            for comparison in (
                comparison for comparison in group if comparison.primary or {comparison.better} == directions
            ):
                parts_of_label = [
                    comparison.title,
                    *([] if comparison.primary else [comparison.metric]),
                    *([placements.title(comparison.candidate.placement)] if several else []),
                ]
                rows.append(report_text.ratio_row(", ".join(parts_of_label), comparison))
            groups.append(
                {
                    "title": wording.capital(report_text.compared_placements(group[0], several)),
                    "comparisons": group,
                    "several": several,
                    "chart": forest(rows, group, ("worse", "better")),
                }
            )
    return groups


def _sequence(result: HostResult) -> charts.Picture | None:
    """Draw each good sample in order, relative to the median of its kind."""
    kinds: dict[tuple[t.Any, ...], list[float]] = {}
    primary = recorded.primary_metrics(result)
    good = [
        (place, (sample.workload, sample.placement, sample.arm, sample.parameter), value)
        for place, sample in enumerate(result.samples)
        if (value := recorded.good_value(sample, primary[sample.workload])) is not None
    ]
    for _place, kind, value in good:
        kinds.setdefault(kind, []).append(value)
    titles = {kind: recorded.arm_title(result, kind[2]) for kind in kinds}
    medians = {kind: plain_statistics.median(values) for kind, values in kinds.items()}
    rows = [
        charts.Deviation(place, short(value / medians[kind] - 1), titles[kind])
        for place, kind, value in good[:MAX_SAMPLES_SHOWN]
    ]
    if len(rows) < 4:
        return None
    widest = max(abs(row.deviation) for row in rows)
    return charts.sequence(
        rows,
        [arm.title for arm in result.arms],
        f"{len(rows)} samples in the order taken; the farthest from the median of its kind by"
        f" {wording.percent(widest)}",
    )


def _sample_cells(result: HostResult, place: int, sample: Sample) -> list[t.Any]:
    """Return a sample's row of the table: numbers (shown with six digits), texts, or a text with its sort key."""
    metric = sample.metrics.get(recorded.declaration(result, sample.workload).primary)
    value, steal, wall = (
        metric.value if metric else None,
        recorded.telemetry_of(sample).steal,
        sample.wall_seconds,
    )
    parameter = sample.parameter
    return [
        place if sample.index is None else sample.index,
        sample.block,
        sample.workload if parameter is None else f"{sample.workload}, {parameter:g}",
        placements.title(sample.placement),
        recorded.arm_title(result, sample.arm),
        "none" if value is None else short(value),
        metric.unit if metric else "",
        "unknown" if wall is None else short(wall),
        "unknown" if steal is None else [wording.percent(steal), steal],
        sample.started or "unknown",
        "yes" if sample.ok else f"no: {sample.error or 'no reason given'}",
    ]


# The machine


def _cores_by_node(facts: Facts) -> list[tuple[str, list[tuple[int, ...]]]]:
    """Group cores with their CPUs by memory node where it is known."""
    cores = facts.core_cpus
    nodes = {name: set(recorded.cpus_of(cpus)) for name, cpus in facts.nodes.items()}
    by_node = [(f"node {name}", [core for core in cores if core[0] in cpus]) for name, cpus in nodes.items()]
    by_node = [(name, members) for name, members in by_node if members]
    placed = {core for _name, members in by_node for core in members}
    rest = [core for core in cores if core not in placed]
    return by_node + ([("cores", rest)] if rest else [])


def _machine(result: HostResult) -> dict[str, t.Any]:
    facts = result.facts
    groups = _cores_by_node(facts)
    count = sum(len(core) for _name, cores in groups for core in cores)
    chart = None
    if 0 < count <= MAX_CPUS_DRAWN:
        sockets, cores = facts.sockets, sum(len(of_node) for _name, of_node in groups)
        packages = "unknown packages" if sockets is None else wording.counted(sockets, "package")
        counts = f"{packages}, {wording.counted(cores, 'core')}, {wording.counted(count, 'CPU')}"
        chart = charts.topology(
            groups,
            set(recorded.cpus_of(facts.cpus.offline)),
            f"The machine: {counts}; the table has each core",
        )
    return {
        "groups": groups,
        "chart": chart,
        "cpus": facts.cpus,
        "disagreement": facts.disagreement,
    }


def _usage(result: HostResult) -> dict[str, t.Any] | None:
    """Return the mean usage of each CPU by placement and arm, in the order of the machine, with the charts."""
    sums: dict[tuple[str, str], dict[str, list[float]]] = {}
    for sample in result.samples:
        if sample.ok:
            by_cpu = sums.setdefault((sample.placement, sample.arm), {})
            for cpu, share in (recorded.telemetry_of(sample).cpu_usage or {}).items():
                if share is not None:
                    by_cpu.setdefault(cpu, []).append(share)
    means = {
        key: {cpu: short(sum(shares) / len(shares)) for cpu, shares in by_cpu.items()}
        for key, by_cpu in sums.items()
        if by_cpu
    }
    groups = _cores_by_node(result.facts)
    machine = [str(cpu) for _name, cores in groups for core in cores for cpu in core]
    measured = {cpu for by_cpu in means.values() for cpu in by_cpu}
    cpus = [cpu for cpu in machine if cpu in measured] + sorted(measured - set(machine))
    if not cpus:
        return None
    labels = [f"{placements.title(placement)}, {recorded.arm_title(result, arm)}" for placement, arm in means]
    rows = [
        charts.Share(label, cpu, share)
        for label, by_cpu in zip(labels, means.values())
        for cpu, share in by_cpu.items()
    ]
    small = len(cpus) <= MAX_CPUS_DRAWN
    chart = (
        charts.usage_map(rows, cpus, "Mean usage of each CPU in each placement; the table has the numbers")
        if small
        else None
    )
    return {
        "cpus": cpus,
        "lines": [
            {"label": label, "shares": [by_cpu.get(cpu) for cpu in cpus]}
            for label, by_cpu in zip(labels, means.values())
        ],
        "chart": chart,
        "maps": _maps(result, groups, means) if small and groups else [],
    }


def _maps(
    result: HostResult,
    groups: t.Sequence[tuple[str, t.Sequence[tuple[int, ...]]]],
    means: dict[tuple[str, str], dict[str, float]],
) -> list[tuple[str, charts.Picture]]:
    """Draw the machine with each core's usage, every thread busy, for each arm."""
    pictures = []
    everything = {cpu for _name, cores in groups for core in cores for cpu in core}
    for arm in result.arms:
        placement = recorded.sampled_as(result, placements.ALL_THREADS, arm.name)
        by_cpu = means.get((placement, arm.name))
        if by_cpu:
            usage = {
                int(cpu): share for cpu, share in by_cpu.items() if cpu.isascii() and cpu.isdigit() and len(cpu) < 8
            }
            title = f"{placements.title(placements.ALL_THREADS)}, {arm.title}"
            pictures.append(
                (
                    title,
                    charts.topology(
                        groups, everything - set(usage), f"The machine with {title}: mean usage of each CPU", usage
                    ),
                )
            )
    return pictures


# How to repeat it


def _settings(result: HostResult) -> list[tuple[str, str]]:
    """Return settings and environment as pairs of texts."""
    plan = {
        name: value
        for name, value in parts.plain(result.plan).items()
        if name not in ("workloads", "placements", "decided", "switches") and value is not None
    }
    plan["looks"] = ", ".join(str(look.blocks) for look in result.plan.looks or ()) or "none"
    pairs = [
        *sorted(plan.items()),
        *sorted(parts.plain(result.environment).items()),
        ("collection_version", result.collection_version),
    ]
    return [
        (name.replace("_", " "), "unknown" if value is None else value if isinstance(value, str) else json.dumps(value))
        for name, value in pairs
    ]


def _command(result: HostResult) -> str:
    """Return the command line that repeats this measurement, except for what :func:`_own_commands` names."""
    command = ["ansible-playbook", "threadwise.smt.smt_eval", "-i", "INVENTORY", "--limit", result.host]
    # The baseline comes first. Where nothing was compared, the arm measured is not one of those asked for, unless it
    # alone was.
    measured_first = recorded.asked_arms(result)
    asked = [
        arm.name for arm in (measured_first if recorded.is_compared(result) else result.arms_left_out or result.arms)
    ]
    command += ["-e", f"smt_eval_arms={','.join(asked)}"]
    if result.plan.boots:
        allowed_by = sorted({arm.allowed_by for arm in map(catalogue.find, asked) if arm and arm.allowed_by})
        given = [
            f"smt_eval_boots={result.plan.boots}",
            "smt_boot_reboot_ok=true",
            *(f"{variable}=true" for variable in allowed_by),
        ]
        command += [word for assignment in given for word in ("-e", assignment)]
    measured = [workload.name for workload in result.plan.workloads or ()]
    command += ["-e", json.dumps({"smt_eval_workloads": [name for name in measured if name in BUILT_IN]})]
    names = list(dict.fromkeys(name for by_name in (result.plan.placements or {}).values() for name in by_name))
    if names and tuple(names) != placements.DEFAULT:
        command += ["-e", json.dumps({"smt_eval_placements": names})]
    if result.plan.goal not in (None, goals.DECISION) and not result.plan.boots:
        command += ["-e", f"smt_eval_goal={result.plan.goal}"]
    for variable, field in (
        ("budget", "seconds_budget"),
        ("sample_seconds", "sample_seconds"),
        ("settle_seconds", "settle_seconds"),
    ):
        value = getattr(result.plan, field)
        if isinstance(value, (int, float)):
            command += ["-e", f"smt_eval_{variable}={value}"]
    return shlex.join(command)


def _own_commands(result: HostResult) -> list[str]:
    """Return the workloads that are not of the collection: their declaration is needed to repeat the measurement."""
    return [workload.name for workload in result.plan.workloads or () if workload.name not in BUILT_IN]
