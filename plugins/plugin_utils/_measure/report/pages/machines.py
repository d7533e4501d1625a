# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The page that sets machines beside each other: what each does in all, and by core, CPU, nominal GHz,
licence and unit of money, with SMT on and off.
"""

from __future__ import annotations

import typing as t

from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import costs
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis.of_arms.machines import Capacity
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import hardware_classes
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import frame, wording

NAME = "machines.html"
FIRST_ROWS = 100
# Column -> its title.
FIGURES = {
    "rate": "whole machine",
    "per_core": "per core",
    "per_cpu": "per CPU",
    "per_ghz": "per nominal GHz",
    "per_licence": "per licence",
    "per_money": "per unit of money",
}


def render(rows: t.Sequence[hardware_classes.Row]) -> str:
    """Render the page.

    Args:
        rows: of all hosts, of one run or of several.
    """
    runs = sorted({row.run for row in rows})
    lines = [_line(row, capacity, len(runs) > 1) for row in rows for capacity in row.capacities]
    of_runs = [("run", False)] if len(runs) > 1 else []
    heads = [
        ("machine", False),
        *of_runs,
        ("processor", False),
        ("cores", True),
        ("CPUs", True),
        ("workload", False),
        ("arm", False),
        ("unit", False),
    ]
    return frame.render(
        "machines.html.j2",
        hosts=len({(row.run, row.host) for row in rows}),
        runs=runs,
        heads=[*heads, *((title, True) for title in FIGURES.values())],
        lines=lines,
        first_rows=FIRST_ROWS,
        best=_best(rows, len(runs) > 1),
    )


def _line(row: hardware_classes.Row, capacity: Capacity, with_run: bool) -> list[t.Any]:
    return [
        row.host,
        *([row.run] if with_run else []),
        row.environment.get("cpu_model", "unknown"),
        _count(capacity.cores),
        _count(capacity.cpus),
        capacity.title,
        capacity.arm_title,
        capacity.unit,
        *(_figure(getattr(capacity, name)) for name in FIGURES),
    ]


def _count(value: int | None) -> t.Any:
    return "" if value is None else [str(value), value, ""]


def _figure(value: float | None) -> t.Any:
    """Return a cell; what is not known, such as a price, is an empty one."""
    return "" if value is None else [wording.number(value), float(f"{value:.6g}"), ""]


def _best(rows: t.Sequence[hardware_classes.Row], with_run: bool) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return, for each workload, the machine and arm with the most work by each figure that several of them have."""
    by_workload: dict[tuple[str, str], list[tuple[hardware_classes.Row, Capacity]]] = {}
    for row in rows:
        for capacity in row.capacities:
            by_workload.setdefault((capacity.workload, capacity.unit), []).append((row, capacity))
    winners = []
    for (_name, unit), members in by_workload.items():
        firsts = []
        for name, what in FIGURES.items():
            known = [
                (figure, row, capacity) for row, capacity in members if (figure := getattr(capacity, name)) is not None
            ]
            if len({(row.run, row.host) for _value, row, _capacity in known}) > 1:
                value, row, capacity = max(known, key=lambda entry: entry[0])
                where = f"{row.host} ({row.run})" if with_run else row.host
                # Money buys work, not a rate.
                amount = (costs.rate_of(unit) or (unit,))[0] if name == "per_money" else unit
                firsts.append((what, f"{where}, {capacity.arm_title}: {wording.number(value)} {amount}"))
        if firsts:
            winners.append((members[0][1].title, firsts))
    return winners
