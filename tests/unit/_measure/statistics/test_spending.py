# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When looks are planned, and their levels: held against published constants, and against simulated sums."""

from __future__ import annotations

import math

import numpy
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import (
    distributions,
    schedule,
    spending,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.spending import Look

PLANNED = tuple(Look(blocks, blocks / 28) for blocks in (4, 5, 6, 8, 11, 15, 19, 23, 28))
PLANS = 50_000


def test_the_limits_are_those_that_are_published(monkeypatch):
    """Five equal looks at 5 % with the spending function of Lan and DeMets that resembles Pocock's boundary, as in
    Jennison and Turnbull (2000) and in R's gsDesign.
    """
    spending._stage.cache_clear()
    monkeypatch.setattr(spending, "spent", lambda alpha, share: alpha * math.log1p((math.e - 1) * share))
    stages = spending.stages(tuple(Look(count, count / 5) for count in range(1, 6)), 0.05)
    spending._stage.cache_clear()
    limits = [stage.limit / math.sqrt(count) for count, stage in enumerate(stages, 1)]
    assert limits == pytest.approx([2.438, 2.427, 2.410, 2.397, 2.386], abs=2e-3)


@pytest.mark.night(after=1)
@pytest.mark.parametrize("alpha", [0.05, 0.0125])
def test_all_looks_together_are_wrong_as_often_as_they_may(alpha):
    limits = [distributions.normal_quantile(level / 2) for level in spending.levels(PLANNED, alpha)]
    sums = numpy.random.default_rng(7).normal(size=(PLANS, 28)).cumsum(axis=1)
    beyond = [abs(sums[:, look.blocks - 1]) / math.sqrt(look.blocks) > limit for look, limit in zip(PLANNED, limits)]
    for count, look in enumerate(PLANNED, 1):
        spent = numpy.any(beyond[:count], axis=0).mean()
        assert spent == pytest.approx(alpha * look.share**1.5, abs=4 * math.sqrt(alpha / PLANS)), look


@pytest.mark.parametrize("count", [1, 4])
def test_the_p_value_for_all_looks_is_the_level_turned_round(count):
    looks = PLANNED[:count]
    for alpha in (1e-13, 0.05, 0.3):
        assert spending.adjusted(spending.levels(looks, alpha)[-1], looks) == pytest.approx(alpha, rel=5e-3), alpha
    assert [spending.adjusted(certain, looks) for certain in (0.0, 1.0)] == [0.0, 1.0]


@pytest.mark.parametrize(
    ("total", "step", "places"),
    [
        (28, 1, [4, 5, 6, 8, 11, 15, 19, 23, 28]),
        (30, 1, [4, 5, 6, 8, 11, 15, 19, 23, 28, 30]),
        (48, 4, [4, 8, 12, 16, 20, 24, 28, 36, 44, 48]),
        (12, 3, [6, 9, 12]),
        (3, 1, []),
    ],
)
def test_looks_are_at_the_first_number_of_blocks_from_each_place_on(total, step, places):
    planned = schedule.Schedule()
    assert [done for done in range(step, total + 1, step) if planned.take(done, total - done)] == places
    assert [look.blocks for look in planned.looks] == places
    assert [look.share for look in planned.looks] == pytest.approx([place / total for place in places])


def test_the_share_ends_at_1_however_the_forecast_changed():
    planned = schedule.Schedule()
    assert all(planned.take(*done) for done in ((4, 24), (5, 23), (6, 60), (8, 58), (11, 2), (13, 0)))
    shares = [look.share for look in planned.looks]
    assert shares == sorted(set(shares)) and shares[2] == pytest.approx(5 / 28 + 23 / 28 / 61) and shares[-1] == 1
