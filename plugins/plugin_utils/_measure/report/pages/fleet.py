# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The overview page of a run: results by hardware class, conspicuous hosts,
and a table of all hosts with sorting and filtering.
"""

from __future__ import annotations

import collections
import typing as t
from urllib.parse import quote

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.comparisons import Comparison
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import pooled
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import (
    fleet_answer,
    hardware_classes,
    text as report_text,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats.base import Refused
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import (
    host as host_page,
    workloads as workloads_part,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import charts, frame, wording

NAME = "index.html"
# Rows of the table that are HTML; the browser adds the others from the page's data.
FIRST_ROWS = 100
# Up to so many hosts have their own line in the chart.
MAX_HOSTS_DRAWN = 20
# Workloads beyond this number are only in the hosts' pages and in comparisons.csv.
MAX_COLUMNS = 12
# Hosts that are named in a list.
MAX_NAMED = 20
# With more different texts a column has no links that filter by it.
MAX_CHOICES = 12


def render(
    rows: t.Sequence[hardware_classes.Row],
    refused: t.Sequence[Refused],
    classes: t.Sequence[hardware_classes.HardwareClass],
) -> str:
    """Render the page.

    Args:
        rows: of all hosts; those that need attention are shown first.
        refused: result files that are not in the report.
        classes: of these hosts, from :func:`hardware_classes.by_class`.
    """
    outliers = {host for group in classes for workload in group.workloads for host in workload.outliers}
    rows = sorted(rows, key=lambda row: _attention(row, outliers))
    counts = collections.Counter(row.title for row in rows)
    order = [*report_text.RECOMMENDATION_TITLES.values(), *sorted(counts)]
    titles = {key: hardware_classes.title(workload) for row in rows for key, workload in row.workloads.items()}
    table = [_cells(row, list(titles)[:MAX_COLUMNS], row.host in outliers) for row in rows]
    return frame.render(
        "run.html.j2",
        rows=rows,
        refused=refused,
        counts={title: counts[title] for title in order if counts[title]},
        sentences=fleet_answer.sentences(rows),
        choices=_choices(table),
        classes=classes,
        question=_question(rows),
        compared=hardware_classes.compared(rows),
        charts=_charts(rows, classes),
        heads=_heads(list(titles.values())[:MAX_COLUMNS]),
        table=table,
        first_rows=FIRST_ROWS,
        left_out=max(0, len(titles) - MAX_COLUMNS),
        runs=sorted({row.run for row in rows}),
        most_named=MAX_NAMED,
        notable=_notable(rows, classes),
        disagreeing=_disagreeing(classes),
        detailed=[row for row in rows if len(rows) <= MAX_HOSTS_DRAWN],
    )


def _attention(row: hardware_classes.Row, outliers: t.Container[str]) -> tuple[bool, ...]:
    """Return the order of a host: not as it was before, then not completed, then unlike its class."""
    return (
        row.restored is not False,
        row.outcome != "failed",
        row.outcome == "completed",
        row.host not in outliers,
    )


def _choices(table: t.Sequence[t.Sequence[t.Any]]) -> list[tuple[str, list[tuple[str, int]]]]:
    """Return what the table can be filtered by: column -> its texts with their numbers of hosts, where they differ."""
    choices = []
    for name, column in (("put back", -2), ("run", -3), ("conclusion", 1)):
        texts = (row[column] if isinstance(row[column], str) else row[column][0] for row in table)
        counts = collections.Counter(text.removesuffix(" *") for text in texts)
        if 1 < len(counts) <= MAX_CHOICES:
            choices.append((name, sorted(counts.items(), key=lambda pair: pair[::-1])))
    return choices


def _question(rows: t.Sequence[hardware_classes.Row]) -> str:
    subjects = hardware_classes.subjects(rows)
    others = [*hardware_classes.beside_smt(rows), *filter(None, subjects)]
    does = "does" if len(others) == 1 else "do"
    questions = [
        *(["Should SMT be on?"] if not subjects or None in subjects else []),
        *([f"What {does} {' and '.join(others)} do?"] if others else []),
    ]
    return " ".join(questions)


def _charts(
    rows: t.Sequence[hardware_classes.Row], classes: t.Sequence[hardware_classes.HardwareClass]
) -> list[tuple[str, charts.Picture]]:
    """Return a title and a chart for each subject, with SMT off against on apart from other arms of the same runs."""
    pictures = []
    for subject in hardware_classes.subjects(rows):
        members = (
            [row for row in rows if row.subject == subject],
            [group for group in classes if group.subject == subject],
        )
        kinds: list[tuple[str | None, tuple[str, str], str]] = [
            (arms.SMT_OFF, report_text.SIDES_OF_SMT, "SMT off against SMT on"),
            (arms.SMT_ON, report_text.SIDES_OF_SMT[::-1], "SMT on against SMT off"),
            (None, report_text.SIDES_OF_ARMS, f"{subject or 'other arms'} against the baseline"),
        ]
        for side, sides, title in kinds:
            chart = _chart(*members, sides, side)
            if chart:
                pictures.append((title, chart))
    return pictures


def _chart(
    rows: t.Sequence[hardware_classes.Row],
    classes: t.Sequence[hardware_classes.HardwareClass],
    sides: tuple[str, str],
    side_of_smt: str | None,
) -> charts.Picture | None:
    """Draw few hosts one by one, many as the spread of each class: what is of this side of SMT against the other, or,
    for None, all else.
    """

    def side_of(workload: Comparison | hardware_classes.Workload, of_smt: bool) -> str | None:
        return workload.effect if of_smt else None

    hosts = [
        (row.host, comparison)
        for row in rows
        for comparison in row.workloads.values()
        if side_of(comparison, comparison.is_of_smt) == side_of_smt
    ]
    # With several arms a line has to say which one it is of.
    named = len({comparison.effect for _host, comparison in hosts}) < 2
    if len(rows) <= MAX_HOSTS_DRAWN:
        lines = [
            report_text.ratio_row(
                f"{host}: {comparison.title if named else hardware_classes.title(comparison)}", comparison
            )
            for host, comparison in hosts
        ]
        return host_page.forest(lines, [comparison for _host, comparison in hosts], sides)
    shown = [
        (group, comparison)
        for group in classes
        for comparison in group.workloads
        if side_of(comparison, comparison.of_smt) == side_of_smt
    ][: workloads_part.MAX_ROWS_DRAWN]
    if not shown:
        return None
    drawn = [
        report_text.ratio_row(
            f"{group.hardware_class or 'unknown class'}: {comparison.name if named else comparison.title}",
            comparison,
            f", {wording.counted(len(comparison.ratios), 'host')}",
            comparison.ratios,
        )
        for group, comparison in shown
    ]
    summary = "; ".join(row.said() for row in drawn[:20])
    return charts.spread(
        drawn, shown[0][1].margin, sides, f"Change of each host, by hardware class and workload: {summary}"
    )


def _heads(titles: t.Sequence[str]) -> list[tuple[str, bool]]:
    """Return the columns' names; none of them is numeric."""
    names = (
        "host",
        "conclusion",
        *titles,
        "hardware class",
        "vulnerable by SMT",
        "next boot",
        "run",
        "put back",
        "stands out",
    )
    return [(name, False) for name in names]


def _cells(row: hardware_classes.Row, keys: t.Sequence[str], outlier: bool) -> list[t.Any]:
    """Return a host's row of the table: each cell a text, or a text with its sort key, class and link."""
    restored = {True: "yes", False: "NO", None: "unknown"}[row.restored]
    return [
        [row.host, row.host, "", quote(row.page)],
        row.title + (" *" if _contested(row) else ""),
        *(_change(row.workloads.get(key)) for key in keys),
        row.hardware_class or "unknown",
        (
            "unknown"
            if row.vulnerable is None
            else [", ".join(row.vulnerable) or "none", len(row.vulnerable), "loss" if row.vulnerable else ""]
        ),
        {True: ["otherwise", "1", "inconclusive"], False: "as now", None: "unknown"}[row.reboot_required],
        row.outcome,
        [restored, restored, "loss" if restored == "NO" else ""],
        "outlier" if outlier else "",
    ]


def _contested(row: hardware_classes.Row) -> bool:
    """Return whether performance chooses one side while another reason points to the other."""
    return row.recommendation in (conclusion.ON, conclusion.OFF) and not row.agreed


def _change(effect: Comparison | None) -> t.Any:
    return "not compared" if effect is None else [effect.in_words, round(effect.change.value, 6), effect.verdict]


def _disagreeing(classes: t.Sequence[hardware_classes.HardwareClass]) -> list[str]:
    """Return a sentence for each comparison in which the hosts of a class disagree, about what it is or what it says,
    or that one host alone turns.
    """
    return [
        f"{group.hardware_class or 'unknown class'}, {title}: {sentence}"
        for group in classes
        for title, sentence in [
            *((unlike.title, unlike.sentence) for unlike in group.refused),
            *(
                (workload.title, workload.sentence)
                for workload in group.workloads
                if workload.verdict == pooled.HOSTS_DISAGREE or workload.turned_by
            ),
        ]
    ]


def _notable(
    rows: t.Sequence[hardware_classes.Row], classes: t.Sequence[hardware_classes.HardwareClass]
) -> list[tuple[str, list[str]]]:
    """Return what needs attention, each a title and the hosts that it concerns."""
    unlike: dict[str, list[str]] = {}
    for group in classes:
        for workload in group.workloads:
            for host, ratio in workload.outliers.items():
                unlike.setdefault(host, []).append(
                    f"{workload.title} {wording.change_of_ratio(ratio, workload.better)}, its class"
                    f" {wording.change_of(workload.change)}"
                )
    left = [
        f"{row.host}: {'; '.join(row.differences) or 'no details were left'}" for row in rows if row.restored is False
    ]
    return [
        (title, hosts)
        for title, hosts in (
            ("not as it was before", left),
            ("did not complete", [row.host for row in rows if row.outcome != "completed"]),
            (
                "left something open that neither more blocks nor more hosts tell",
                [f"{row.host}: {row.sentence}" for row in rows if row.incomplete or row.unable],
            ),
            ("would boot with other SMT arguments than now", [row.host for row in rows if row.reboot_required]),
            (
                "share cores otherwise than the kernel says",
                [f"{row.host}: {row.disagreement}" for row in rows if row.disagreement],
            ),
            (
                "unlike the other hosts of their class",
                [f"{host} ({'; '.join(ratios)})" for host, ratios in unlike.items()],
            ),
        )
        if hosts
    ]
