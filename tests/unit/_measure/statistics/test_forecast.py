# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What fits into a budget."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import placements
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import forecast

# A second of each: eleven seconds a block, 44 for four blocks. A workload of one worker is decided by that.
COSTS = [
    forecast.Cost("gzip", place, 1.0, place == placements.ALL_THREADS)
    for place in (*placements.NAMES[:-1], "cpus_0_2", "free_3")
] + [forecast.Cost("alone", "single", 1.0, True)]


@pytest.mark.parametrize(
    ("budget", "dropped"),
    [
        (44, ""),
        (40, "remote_memory"),
        (33, "remote_memory packages_2 same_cpu"),
        (16, "remote_memory packages_2 same_cpu single siblings cores one_per_core"),
    ],
)
def test_what_does_not_decide_is_left_out_in_a_fixed_order(budget, dropped):
    assert forecast.left_out(COSTS, 0.0, budget) == dropped.split()


def test_placements_of_users_are_left_out_last_and_what_decides_never():
    found = forecast.left_out(COSTS, 0.0, 0)
    assert set(found[-2:]) == {"cpus_0_2", "free_3"} and placements.ALL_THREADS not in found


def test_a_budget_that_is_too_short_is_named_with_what_would_do():
    deciding = [cost for cost in COSTS if cost.decides][:1]
    assert forecast.too_short(deciding, 2.0, 12) is None and forecast.too_short([], 2.0, 1) is None
    assert forecast.too_short(deciding, 2.0, 11.4) == (
        "11 s are left of the budget, too few for a verdict: a block of what decides takes at least 3.0 s here, so 4"
        " blocks, the least for a verdict, need 12 s and 10 blocks 30 s: give the host a larger budget, fewer"
        " workloads, or shorter samples; nothing was switched"
    )
