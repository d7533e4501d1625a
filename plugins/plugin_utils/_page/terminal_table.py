# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables for a terminal: of many hosts, and of the numbers of one: each workload in both arms, its change, interval and
verdict.
"""

from __future__ import annotations

import textwrap
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import text as host_text
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording

# With more workloads the rest is counted; the report has all.
MAX_ROWS = 20
# The longest name of a workload in a row, and columns between two cells.
MAX_TITLE, GAP = 40, 2

# The widest column of a table of hosts, beside its last one.
MAX_WIDTH = 48


def of_hosts(columns: tuple[str, ...], rows: t.Iterable[tuple[str, ...]], last: str) -> list[str]:
    """Format rows as lines of a table.

    Args:
        columns: headings; only the last column may be wider than ``MAX_WIDTH``.
        rows: a text for each column, from anybody.
        last: line below the table.
    """
    cells = [columns, *(tuple(map(host_text.visible, row)) for row in rows)]
    widths = [min(MAX_WIDTH, max(len(row[column]) for row in cells)) for column in range(len(columns) - 1)]
    lines = [
        "  ".join([cell[:width].ljust(width) for cell, width in zip(row, widths)] + [row[-1]]).rstrip() for row in cells
    ]
    return [lines[0], "-" * len(lines[0]), *lines[1:], "", last]


def lines(workloads: t.Iterable[t.Any], width: int) -> list[str]:
    """Return the lines of a table, a part for each two arms; none where nothing was compared.

    Args:
        workloads: those of a row of :func:`hardware_classes.row`.
        width: columns of the terminal. Where a row does not fit, each workload has several lines.
    """
    by_arms: dict[tuple[str, str], list[t.Any]] = {}
    chosen = list(workloads)
    for workload in chosen[:MAX_ROWS]:
        by_arms.setdefault((workload.baseline.arm_title, workload.candidate.arm_title), []).append(workload)
    printed: list[str] = []
    for (baseline, candidate), group in by_arms.items():
        heads = ("", baseline, candidate, "change", "interval", "verdict")
        printed += _aligned([heads, *map(_cells, group)], width) or _stacked(heads, map(_cells, group), width)
    more = len(chosen) - MAX_ROWS
    return [*printed, f"... and {wording.counted(more, 'more comparison')}."] if more > 0 else printed


def _cells(workload: t.Any) -> tuple[str, ...]:
    changed, interval = workload.change, "none"
    if changed.low is not None and changed.high is not None:
        low, high = (wording.change_of(changed, end) for end in (changed.low, changed.high))
        interval = f"{low.removesuffix(' %')} to {high}"
    values = (
        f"{wording.number(value)} {workload.unit}".strip()
        for value in (workload.baseline_value, workload.candidate_value)
    )
    name = workload.title if workload.parameter is None else f"{workload.title} ({workload.parameter:g})"
    cells = (name, *values, wording.change_of(changed), interval, wording.VERDICT_TITLES[workload.verdict])
    return tuple(map(host_text.visible, cells))


def _aligned(rows: t.Sequence[tuple[str, ...]], width: int) -> list[str]:
    """Return a line for each row, numbers to the right; none where one does not fit."""
    titles = [textwrap.shorten(row[0], MAX_TITLE, placeholder="...") for row in rows]
    rows = [(title, *row[1:]) for title, row in zip(titles, rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if sum(widths) + GAP * (len(widths) - 1) > width:
        return []
    last = len(widths) - 1
    return [
        (" " * GAP)
        .join(
            cell.ljust(size) if column in (0, last) else cell.rjust(size)
            for column, (cell, size) in enumerate(zip(row, widths))
        )
        .rstrip()
        for row in rows
    ]


def _stacked(heads: tuple[str, ...], rows: t.Iterable[tuple[str, ...]], width: int) -> list[str]:
    """Return each row as a line of its name and further ones of its cells, each within the width."""
    printed = []
    for title, *cells in rows:
        printed += textwrap.wrap(title, width)
        line = ", ".join(f"{head} {cell}" for head, cell in zip(heads[1:], cells))
        printed += textwrap.wrap(line, width, initial_indent="  ", subsequent_indent="  ")
    return printed
