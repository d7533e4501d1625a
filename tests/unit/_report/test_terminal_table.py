# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers on the terminal: each workload in both arms, its change, interval and verdict, in any width."""

from __future__ import annotations

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import hardware_classes, terminal_table

WORKLOADS = {
    "gzip": result_maker.GZIP,
    "orders": {**result_maker.GZIP, "share": 0.45, "title": "orders of a shop, with all of its customers at once"},
}


def workloads(**options):
    """The workloads of the overview's row of a host."""
    summary = result_maker.summarised(result_maker.result(workloads=WORKLOADS, **options))
    return list(hardware_classes.row(summary, "a.html")["workloads"].values())


def test_a_line_for_each_workload():
    head, *rows = terminal_table.lines(workloads(), 120)
    assert head.split() == ["SMT", "on", "SMT", "off", "change", "interval", "verdict"]
    (gzip, orders) = (row.split("  ") for row in rows)
    assert gzip[0] == "gzip of a fixed stream" and "MB/s" in rows[0] and rows[0].endswith("worse")
    assert "  +11.2 %  +11.0 to +11.4 %  " in rows[1] and rows[1].endswith("better") and orders[0].endswith("...")
    assert " to " in rows[0] and len({row.index(" %  ") for row in rows}) == 1


@pytest.mark.parametrize("width", [60, 40])
def test_a_narrow_terminal_has_more_lines_and_no_longer_ones(width):
    lines = terminal_table.lines(workloads(), width)
    assert max(map(len, lines)) <= width and "worse" in " ".join(lines) and "SMT off" in " ".join(lines)


def test_each_two_arms_have_a_part_and_the_rest_is_counted():
    several = workloads(arms={"as_found": 1.0, "thp_always": 1.2, "thp_never": 0.9})
    heads = [line for line in terminal_table.lines(several, 120) if line.startswith(" ")]
    assert len(heads) == 2
    assert terminal_table.lines(several * 11, 120)[-1].startswith("... and ")
    assert terminal_table.lines([], 120) == []
