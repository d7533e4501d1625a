# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""summary.md: the conclusions with their numbers, for a pull request."""

from __future__ import annotations

import re

from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import measures, recorded
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions.cautions import (
    Failure,
    Missing,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import text as report_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats.base import (
    Ending,
    Format,
    HostReport,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording


def plain(text: str) -> str:
    """Escape text for Markdown: no markup, no HTML, no mention of users."""
    text = re.sub(r"\s+", " ", text)
    text = re.sub(r"([\\`*_{}\[\]<>()#+!|~&-])", r"\\\1", text)
    # GitHub turns @name into a notification and www. and http: into links even without markup; not so what is code.
    return re.sub(r"(@|www(?=\.)|https?(?=:)|ftp(?=:))(?=\S)", r"`\1`", text, flags=re.IGNORECASE)


def code(text: str) -> str:
    """Format a name as code in Markdown, whatever it contains; safe within a table."""
    text = re.sub(r"\s+", " ", text).replace("|", "\uff5c")
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else "` `"


def _host(host: HostReport) -> str:
    """Format the conclusion for a host with its numbers, for a pull request."""
    summary = host.summary
    concluded = summary.conclusion
    lines = [
        f"## {code(summary.result.host)}: {plain(report_text.question(summary))}",
        "",
        f"**{plain(concluded.sentence)}**",
        "",
        plain(concluded.basis),
        "",
    ]
    sentences = [
        *filter(None, [concluded.next]),
        *concluded.cautions,
        *concluded.costs,
        recorded.restored(summary.result),
    ]
    lines += [f"- {plain(sentence)}" for sentence in sentences]
    lines.append("")
    if summary.analysis.comparisons:
        lines += ["| workload | compared | change | verdict | blocks |", "|---|---|---|---|---|"]
        for comparison in summary.analysis.comparisons:
            title = ", ".join(filter(None, [comparison.title, report_text.metric(comparison)]))
            cells = [
                title,
                report_text.compared(comparison),
                wording.change_and_interval(comparison.change),
            ]
            lines.append(f"| {' | '.join(map(plain, [*cells, report_text.verdict(comparison)]))} | {comparison.n} |")
        lines.append("")
    if len(summary.result.arms) < 2:
        lines += _measured(host)
    if summary.exposure:
        lines += ["What each arm leaves open of the kernel's list of vulnerabilities:", ""]
        lines += [f"- {plain(arm.title)}: {plain(arm.text)} ({arm.basis})" for arm in summary.exposure]
        lines.append("")
    missing: list[Missing | Failure] = [*summary.not_measured, *summary.failures]
    if missing:
        lines += ["Not measured:", ""]
        lines += [f"- {plain(', '.join(report_text.key_parts(entry)))}: {plain(entry.reason)}" for entry in missing]
        lines.append("")
    return "\n".join(lines) + "\n"


def _measured(host: HostReport) -> list[str]:
    """Format the values of a run that compared no arms: they are all that it found."""
    lines = ["| workload | metric | placement | value | blocks |", "|---|---|---|---|---|"]
    for level in host.summary.analysis.levels:
        measure = measures.describe_workload(host.result, level.workload, level.parameter, level.metric)
        value, low, high = (wording.number(end) for end in (level.value, level.low, level.high))
        shown = value if level.value is None else f"{value} {measure.unit}"
        interval = "" if level.low is None else f" ({low} to {high})"
        cells = [measure.title, level.metric, placements.title(level.placement), f"{shown}{interval}"]
        lines.append(f"| {' | '.join(map(plain, cells))} | {level.n} |")
    return [*lines, ""] if host.summary.analysis.levels else []


def _tail(ending: Ending) -> str:
    """Format what holds for each hardware class of several hosts, and list the unused result files."""
    lines = []
    several = [group for group in ending.classes if group.hosts > 1]
    if several:
        lines += [
            "## By hardware class",
            "",
            "| class | workload | hosts | change | verdict | its hosts |",
            "|---|---|---|---|---|---|",
        ]
        for group in several:
            rows = [
                *([unlike.title, str(unlike.hosts), "", "", unlike.sentence] for unlike in group.refused),
                *(
                    [
                        workload.title,
                        str(workload.n),
                        wording.change_and_interval(workload.change),
                        report_text.verdict(workload),
                        workload.sentence,
                    ]
                    for workload in group.workloads
                ),
            ]
            name = code(group.hardware_class or "unknown")
            lines += [f"| {name} | {' | '.join(map(plain, cells))} |" for cells in rows]
        lines.append("")
    if ending.refused:
        lines += ["## Refused", "", *(f"- {code(entry.file)}: {plain(entry.reason)}" for entry in ending.refused), ""]
    return "\n".join(lines)


FORMAT = Format(
    name="summary.md",
    about="a pull request or a ticket",
    sign=re.compile(rb"\A# What was evaluated, by host\n"),
    head="# What was evaluated, by host\n\n",
    host=_host,
    tail=_tail,
)
