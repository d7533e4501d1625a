# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes threadwise-smt.json, the dashboard of a fleet for Grafana 11.6 and later, with grafana-foundation-sdk.

usage: dashboard.py > threadwise-smt.json

It shows what smt_compliance, smt_pull and smt_usage leave for node_exporter's textfile collector, and what
examples/prometheus-rules.yml makes of that.
"""

from __future__ import annotations

import itertools
import pathlib
import runpy
import sys

from grafana_foundation_sdk.builders import bargauge, common as common_builders, stat, table, timeseries
from grafana_foundation_sdk.builders.dashboard import (
    Dashboard,
    DatasourceVariable,
    FieldColor,
    QueryVariable,
    Row,
    ThresholdsConfig,
)
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common, dashboard
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = dashboard.DataSourceRef(type_val="prometheus", uid="${datasource}")
# Each host that is shown. A host whose class is not known has an empty one, which "All" has to match.
HOSTS = 'job=~"$job", hardware_class=~"$hardware_class", host=~"$host"'
# Metrics of pulls and of usage know no class, and usage has the name of its target for a host.
PULLS, MACHINES, MACHINE = 'job=~"$job", host=~"$host"', 'job=~"$job"', 'job=~"$job", instance="$instance"'
DAY = 86400
LAST = common_builders.ReduceDataOptions().calcs(["lastNotNull"])
# The one table of the collection.
TABLE = pathlib.Path(__file__).resolve().parents[2] / "plugins/plugin_utils/_keep/fleet/status.py"
STATUSES = {status: status.row for status in runpy.run_path(str(TABLE))["Status"] if status.row.color}
NOT_FINE = [status for status, row in STATUSES.items() if not row.is_fine]
NEED_ACTION, BESIDE_DRIFT = "|".join(NOT_FINE), "|".join(status for status in NOT_FINE if status != "drifted")
# A host with a waiver may differ: what the alert leaves out is left out here.
DRIFTED = (
    f"threadwise_smt_drifted{{{HOSTS}}}"
    f' unless on (job, instance, host) threadwise_smt_status{{{HOSTS}, status="waived"}} == 1'
)
# The last check of a week, because a host that is gone has no current value.
AGE = f"time() - max by (host) (max_over_time(threadwise_smt_checked_timestamp_seconds{{{HOSTS}}}[7d]))"
NEVER = (
    f"max by (host) (threadwise_smt_status{{{HOSTS}}})"
    f" unless on (host) max_over_time(threadwise_smt_checked_timestamp_seconds{{{HOSTS}}}[7d])"
)

Panel = stat.Panel | table.Panel | timeseries.Panel | bargauge.Panel


def by_class(expression: str) -> str:
    """Give what is summed up by hardware class a name where the class is not known: a series without one has none."""
    return f'label_replace({expression}, "hardware_class", "unknown", "hardware_class", "")'


def query(expression: str, legend: str = "", name: str = "A") -> Dataquery:
    """What is asked once, about now: a value that has gone must not stand there as if it were the present one."""
    return Dataquery().expr(expression).legend_format(legend).ref_id(name).datasource(SOURCE).instant()


def series(expression: str, legend: str, name: str = "A") -> Dataquery:
    """What is asked for the whole time that is shown."""
    return query(expression, legend, name).range()


def steps(*bounds: tuple[float, str], base: str = "green") -> ThresholdsConfig:
    """Colours from these values on."""
    known = [dashboard.Threshold(value=None, color=base)]
    known += [dashboard.Threshold(value=value, color=color) for value, color in bounds]
    return ThresholdsConfig().mode(dashboard.ThresholdsMode.ABSOLUTE).steps(known)


def fixed(color: str) -> list[dashboard.DynamicConfigValue]:
    """Return the property of a series that always has this colour."""
    return [dashboard.DynamicConfigValue(id_val="color", value={"mode": "fixed", "fixedColor": color})]


def number(
    title: str, about: str, expression: str, thresholds: ThresholdsConfig, unit: str = "short", none: str = "no data"
) -> stat.Panel:
    """One number of now."""
    return (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .with_target(query(expression))
        .unit(unit)
        .no_value(none)
        .thresholds(thresholds)
        .color_mode(common.BigValueColorMode.VALUE)
        .graph_mode(common.BigValueGraphMode.NONE)
        .reduce_options(LAST)
        .height(4)
        .span(3)
    )


def lines(title: str, about: str, *queries: Dataquery, unit: str = "short") -> timeseries.Panel:
    """Values over time."""
    return (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .targets(list(queries))
        .unit(unit)
        .min(0)
        .fill_opacity(10)
        .show_points(common.VisibilityMode.NEVER)
        .tooltip(common_builders.VizTooltipOptions().mode(common.TooltipDisplayMode.MULTI))
        .height(8)
        .span(12)
    )


def bars(title: str, about: str, expression: str, legend: str, color: str, span: int = 6) -> bargauge.Panel:
    """A number of hosts for each of some names."""
    return (
        bargauge.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .with_target(query(expression, legend))
        .unit("short")
        .decimals(0)
        .min(0)
        .no_value("none")
        .thresholds(steps((1, color)))
        .color_scheme(FieldColor().mode(dashboard.FieldColorModeId.THRESHOLDS))
        .orientation(common.VizOrientation.HORIZONTAL)
        .display_mode(common.BarGaugeDisplayMode.BASIC)
        .reduce_options(LAST)
        .height(8)
        .span(span)
    )


def rows(
    title: str, about: str, columns: dict[str, str], *queries: Dataquery, none: str = "none", span: int = 6
) -> table.Panel:
    """A table of now, of exactly these fields under these names, in this order."""
    panel = (
        table.Panel()
        .title(title)
        .description(about)
        .datasource(SOURCE)
        .targets([one.format(PromQueryFormat.TABLE) for one in queries])
        .no_value(none)
        .align(common.FieldTextAlignment.AUTO)
        .height(8)
        .span(span)
    )
    if len(queries) > 1:
        panel = panel.with_transformation(dashboard.DataTransformerConfig("merge", options={}))
    return panel.with_transformation(
        dashboard.DataTransformerConfig("filterFieldsByName", options={"include": {"names": list(columns)}})
    ).with_transformation(
        dashboard.DataTransformerConfig(
            "organize",
            options={
                "excludeByName": {},
                "indexByName": {field: place for place, field in enumerate(columns)},
                "renameByName": columns,
            },
        )
    )


def unit(panel: table.Panel, column: str, name: str, thresholds: ThresholdsConfig | None = None) -> table.Panel:
    """Give a column its unit, and colours from some values on."""
    known = [dashboard.DynamicConfigValue(id_val="unit", value=name)]
    if thresholds:
        known += [
            dashboard.DynamicConfigValue(id_val="thresholds", value=thresholds.build()),
            dashboard.DynamicConfigValue(id_val="custom.cellOptions", value={"type": "color-text"}),
        ]
    return panel.override_by_name(column, known)


def now() -> list[Panel]:
    """The state of the fleet in numbers."""
    bad = steps((1, "red"))
    return [
        number(
            "Hosts",
            "Hosts with a status. One without is among the silent hosts for a week.",
            f"count(threadwise_smt_status{{{HOSTS}}})",
            steps(base="text"),
        ),
        number(
            "Compliant",
            "Share of hosts that comply with their policy. A host that a waiver excuses does not comply.",
            f"avg(threadwise_smt_compliant{{{HOSTS}}})",
            steps((0.9, "yellow"), (1, "green"), base="red"),
            "percentunit",
        ),
        number(
            "Need action",
            "Hosts that have drifted, have a bad policy, whose status is unknown, or that cannot be reached.",
            f'sum(threadwise_smt_status{{{HOSTS}, status=~"{NEED_ACTION}"}} or 0 * threadwise_smt_status{{{HOSTS}}})',
            bad,
        ),
        number(
            "Silent hosts",
            "Hosts that nobody has checked for two days, among them those that are gone, for a week.",
            f"sum(({AGE} > bool {2 * DAY}) or ({NEVER}))",
            bad,
        ),
        number(
            "Pending reboots",
            "Hosts whose next boot has other arguments about SMT than the running kernel.",
            f"sum(threadwise_smt_reboot_pending{{{HOSTS}}})",
            steps((1, "yellow")),
        ),
        number(
            "Stale decisions",
            "Hosts whose policy is a decision of evaluations (auto) that is to be measured again. It is in force.",
            f"sum(threadwise_smt_decision_stale{{{HOSTS}}})",
            steps((1, "yellow")),
            none="no decisions",
        ),
        number(
            "Wrong CPU counts",
            "Programs that believe in the number of CPUs from before a change of SMT.",
            f"sum(threadwise_smt_services_wrong{{{HOSTS}}})",
            steps((1, "yellow")),
        ),
        number(
            "Pulls that failed",
            "Hosts of smt_pull that were not judged under the newest commit of their repository.",
            f"sum(threadwise_smt_pull_success{{{PULLS}}} == bool 0)",
            steps((1, "yellow")),
            none="no pulls",
        ),
    ]


def compliance() -> list[Panel]:
    """Compliance over time, and which hosts need action."""
    statuses = lines(
        "Hosts by status",
        "Each host has one status. bad_policy: no policy, or none that is valid; unknown: the host answered, and its"
        " status cannot be determined.",
        series(f"sum by (status) (threadwise_smt_status{{{HOSTS}}})", "{{status}}"),
    ).stacking(common_builders.StackingConfig().mode(common.StackingMode.NORMAL).group("A"))
    for status, row in STATUSES.items():
        statuses = statuses.override_by_name(status.value, fixed(row.color))
    host = {"host": "Host", "hardware_class": "Hardware class"}
    return [
        statuses.decimals(0).fill_opacity(60),
        lines(
            "Compliant by hardware class",
            "Share of each class's hosts that comply. unknown: hosts whose class is not known.",
            series(by_class(f"avg by (hardware_class) (threadwise_smt_compliant{{{HOSTS}}})"), "{{hardware_class}}"),
            unit="percentunit",
        ).max(1),
        bars(
            "Drift by hardware class",
            "Hosts that have drifted in any aspect, without those that a waiver excuses.",
            by_class(f"sum by (hardware_class) (max by (job, instance, host, hardware_class) ({DRIFTED}))"),
            "{{hardware_class}}",
            "red",
        ),
        rows(
            "Drifted hosts",
            "What differs from the policy: running (the kernel now), configured (the next boot), memory and"
            " memory_configured. smt_compliance.json has the reasons and what to do.",
            {**host, "aspect": "What differs"},
            query(f"({DRIFTED}) == 1"),
        ),
        unit(
            rows(
                "Waivers",
                "When the waiver of a host ends. A host that still differs then has drifted.",
                {**host, "Value": "Ends"},
                query(f"sort(1000 * threadwise_smt_waiver_end_timestamp_seconds{{{HOSTS}}})"),
            ),
            "Ends",
            "dateTimeFromNow",
        ),
        rows(
            "Hosts that need action beside drift",
            "A policy that is not valid, a status that cannot be determined, and hosts that did not respond.",
            {**host, "status": "Status"},
            query(f'threadwise_smt_status{{{HOSTS}, status=~"{BESIDE_DRIFT}"}} == 1'),
        ),
    ]


def checks() -> list[Panel]:
    """How old is what is shown, and what waits."""
    old = steps((DAY, "yellow"), (2 * DAY, "red"))
    host = {"host": "Host", "hardware_class": "Hardware class"}
    return [
        lines(
            "Age of the last check",
            "Files for node_exporter stay when nobody writes them: what is above is as old as this.",
            series(f"max(time() - threadwise_smt_checked_timestamp_seconds{{{HOSTS}}})", "oldest"),
            series(f"quantile(0.5, time() - threadwise_smt_checked_timestamp_seconds{{{HOSTS}}})", "median", "B"),
            unit="s",
        ),
        unit(
            rows(
                "Longest without a check",
                "The 20 hosts that were checked longest ago, of the last week. A host that was never checked is not"
                " among them, and has the status unreachable, bad_policy or unknown.",
                {"host": "Host", "Value": "Age"},
                query(f"topk(20, {AGE})"),
            ),
            "Age",
            "s",
            old,
        ),
        rows(
            "Pending reboots",
            "Hosts that wait for a reboot that changes their boot arguments about SMT.",
            host,
            query(f"threadwise_smt_reboot_pending{{{HOSTS}}} == 1"),
        ),
        bars(
            "Stale decisions by hardware class",
            "Hosts whose decision is to be measured again: another kernel, other mitigations, or too old. Evaluate"
            " hosts of the class again.",
            by_class(f"sum by (hardware_class) (threadwise_smt_decision_stale{{{HOSTS}}})"),
            "{{hardware_class}}",
            "yellow",
            8,
        ),
        rows(
            "Programs with a wrong number of CPUs",
            "How many programs of the host believe in the number of CPUs from before a change. smt_compliance.json"
            " names them; smt_runtime_consumers lets them follow.",
            {**host, "Value": "Programs"},
            query(f"sort_desc(threadwise_smt_services_wrong{{{HOSTS}}} > 0)"),
            span=8,
        ),
        bars(
            "Hosts by commit of their policy",
            "Of smt_pull: the commit that is enforced, and newer ones that were refused.",
            f"count by (use, commit) (threadwise_smt_pull_commit_info{{{PULLS}}})",
            "{{use}} {{commit}}",
            "blue",
            8,
        ),
    ]


def cores() -> list[Panel]:
    """True use of cores beside CPU usage."""
    names = {
        "A": ("usage", "usage", "CPU usage"),
        "B": ("work_low", "ratio", "Work, at least"),
        "C": ("work_high", "ratio", "Work, at most"),
        "D": ("room_by_usage", "ratio", "Room by usage"),
        "E": ("room_low", "ratio", "Room, at least"),
        "F": ("room_high", "ratio", "Room, at most"),
    }

    def rule(letter: str) -> str:
        kind = names[letter][0]
        return f"threadwise_smt:{kind}:{'rate5m' if kind == 'usage' else 'ratio'}"

    def of_machine(*letters: str) -> list[Dataquery]:
        return [series(f"{rule(letter)}{{{MACHINE}}}", names[letter][2], letter) for letter in letters]

    most = f"topk(20, max by (job, instance) (threadwise_smt:work_low:ratio{{{MACHINES}}}))"
    full = steps((0.7, "yellow"), (0.8, "red"))
    fullest = rows(
        "Fullest machines",
        "The 20 machines that do the largest share of the work that they can do, beside what CPU usage says of them."
        " Room is more work of the same kind, as a share of what is done now.",
        {"instance": "Machine", **{f"Value #{letter}": known[2] for letter, known in names.items()}},
        *(
            query(f"max by (job, instance) ({rule(letter)}{{{MACHINES}}}) and on (job, instance) {most}", name=letter)
            for letter in names
        ),
        none="no data: examples/prometheus-rules.yml and smt_usage are needed",
        span=24,
    ).sort_by([common_builders.TableSortByFieldState().display_name("Work, at least").desc(True)])
    for letter, known in names.items():
        fullest = unit(fullest, known[2], "percentunit", full if letter in "ABC" else None)
    work = lines(
        "Work that $instance does, beside its CPU usage",
        "Work as a share of what all cores can do, between two limits. Two busy siblings do less than two cores, which"
        " CPU usage does not know: 57 % of usage can be 80 % of the work.",
        *of_machine("A", "B", "C"),
        unit="percentunit",
    )
    room = lines(
        "Room that $instance has left",
        "More work of the same kind, as a share of what is done now: 1 is as much again.",
        *of_machine("D", "E", "F"),
        unit="percentunit",
    )
    return [
        fullest,
        work.max(1).override_by_name(
            "Work, at most", [dashboard.DynamicConfigValue(id_val="custom.fillBelowTo", value="Work, at least")]
        ),
        room,
    ]


def variable(name: str, label: str, metric: str, about: str) -> QueryVariable:
    """A choice of several values of a label of a metric, all of them at first, the empty one included."""
    return (
        QueryVariable(name)
        .label(label)
        .description(about)
        .datasource(SOURCE)
        .query(f"label_values({metric}, {name})")
        .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        .multi(True)
        .include_all(True)
        .all_value(".*")
        .current(dashboard.VariableOption(selected=True, text=["All"], value=["$__all"]))
    )


def fleet() -> Dashboard:
    """Put the dashboard together."""
    board = (
        Dashboard("SMT of the fleet")
        .uid("threadwise-smt")
        .description("Policy, drift and true use of cores, from what threadwise.smt leaves for node_exporter.")
        .tags(["smt", "threadwise"])
        .time("now-7d", "now")
        .refresh("5m")
        .timezone("browser")
        .tooltip(dashboard.DashboardCursorSync.CROSSHAIR)
        .with_variable(
            DatasourceVariable("datasource").label("Prometheus").type("prometheus").description("Where metrics are.")
        )
        .with_variable(
            variable(
                "job",
                "Job",
                '{__name__=~"threadwise_smt_status|threadwise_smt_sibling_info"}',
                "Jobs of Prometheus whose targets have the files of this collection.",
            )
        )
        .with_variable(
            variable(
                "hardware_class",
                "Hardware class",
                'threadwise_smt_status{job=~"$job"}',
                "Hosts whose class is not known, such as those that never responded, are shown with All alone.",
            )
        )
        .with_variable(
            variable("host", "Host", 'threadwise_smt_status{job=~"$job", hardware_class=~"$hardware_class"}', "")
        )
        .with_variable(
            QueryVariable("instance")
            .label("Machine")
            .description("The target of Prometheus whose use of cores is shown.")
            .datasource(SOURCE)
            .query('label_values(threadwise_smt:work_low:ratio{job=~"$job"}, instance)')
            .refresh(dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(dashboard.VariableSort.ALPHABETICAL_ASC)
        )
    )
    parts = {
        "Now": now(),
        "Compliance": compliance(),
        "Checks, and what waits": checks(),
        "True use of cores": cores(),
    }
    # Grafana wants a number of its own for each panel.
    numbers = itertools.count(1)
    for title, panels in parts.items():
        board = board.with_row(Row(title).id(next(numbers)))
        for panel in panels:
            board = board.with_panel(panel.id(next(numbers)))
    return board


def text() -> str:
    """Return the dashboard as a file has it."""
    return JSONEncoder(indent=2, sort_keys=True).encode(fleet().build()) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
