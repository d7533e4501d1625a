# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The numbers on the terminal: each workload in both arms, its change, interval and verdict, in any width."""

from __future__ import annotations

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._report import hardware_classes, terminal_table

LONG = {**result_maker.GZIP, "share": 0.45, "title": "orders of a shop, with all of its customers at once"}


def lines(width, times=1, **options):
    """The table of the overview's row of a host."""
    both = {"gzip": result_maker.GZIP, "orders": LONG}
    summary = result_maker.summarised(result_maker.result(workloads=both, **options))
    return terminal_table.lines(list(hardware_classes.row(summary, "a.html")["workloads"].values()) * times, width)


def test_a_line_for_each_workload():
    head, *rows = lines(120)
    assert head.split() == ["SMT", "on", "SMT", "off", "change", "interval", "verdict"]
    assert [row.split("  ")[0][:22] for row in rows] == ["gzip of a fixed stream", "orders of a shop, with"]
    assert "MB/s" in rows[0] and " to " in rows[0] and rows[0].endswith("worse")
    assert "  +11.2 %  +11.0 to +11.4 %  " in rows[1] and rows[1].endswith("better") and "...  " in rows[1]
    assert len({row.index(" %  ") for row in rows}) == 1


@pytest.mark.parametrize("width", [60, 40])
def test_a_narrow_terminal_has_more_lines_and_no_longer_ones(width):
    made = lines(width)
    assert max(map(len, made)) <= width and "worse" in " ".join(made) and "SMT off" in " ".join(made)


def test_each_two_arms_have_a_part_and_the_rest_is_counted():
    arms = {"as_found": 1.0, "thp_always": 1.2, "thp_never": 0.9}
    assert len([line for line in lines(120, arms=arms) if line.startswith(" ")]) == 2
    assert lines(120, 11, arms=arms)[-1].startswith("... and ") and terminal_table.lines([], 120) == []


def test_what_a_host_calls_its_work_is_no_escape_of_the_terminal():
    own = {"own": {**result_maker.GZIP, "title": "a\x1b[31mb", "unit": "M\x1b[31mB/s"}}
    summary = result_maker.summarised(result_maker.result(blocks=4, workloads=own))
    shown = terminal_table.lines(list(hardware_classes.row(summary, "a.html")["workloads"].values()), 120)
    assert "\x1b" not in "".join(shown) and "\\x1b[31mB/s" in shown[1]
