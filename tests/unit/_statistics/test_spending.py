# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The levels of planned looks: held against published constants, and against simulated sums."""

from __future__ import annotations

import math

import numpy
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import run_directory
from ansible_collections.threadwise.smt.plugins.module_utils._statistics import distributions, schedule, spending
from ansible_collections.threadwise.smt.plugins.module_utils._statistics.spending import Look

PLANNED = (4, 5, 6, 8, 11, 15, 19, 23, 28)


def planned(*blocks):
    return tuple(Look(count, count / blocks[-1]) for count in blocks)


@pytest.fixture
def like_pocock(monkeypatch):
    """The spending function of Lan and DeMets that resembles Pocock's boundary."""
    spending._stage.cache_clear()
    monkeypatch.setattr(spending, "spent", lambda alpha, share: alpha * math.log1p((math.e - 1) * share))
    yield
    spending._stage.cache_clear()


def test_the_limits_are_those_that_are_published(like_pocock):
    """Five equal looks at 5 %: 2.438, 2.427, 2.410, 2.397, 2.386,
    as in Jennison and Turnbull (2000) and in R's gsDesign.
    """
    limits = [
        stage.limit / math.sqrt(look.blocks)
        for look, stage in zip(planned(1, 2, 3, 4, 5), spending.stages(planned(1, 2, 3, 4, 5), 0.05))
    ]
    assert limits == pytest.approx([2.438, 2.427, 2.410, 2.397, 2.386], abs=2e-3)


def test_one_look_has_the_whole_level():
    assert spending.levels([Look(10, 1.0)], 0.05) == pytest.approx([0.05], rel=1e-9)
    assert spending.adjusted(0.01, [Look(10, 1.0)]) == pytest.approx(0.01, rel=1e-3)
    assert spending.adjusted(0.01, []) == 0.01


@pytest.mark.parametrize("alpha", [0.05, 0.0125])
def test_all_looks_together_are_wrong_as_often_as_they_may(alpha):
    looks = planned(*PLANNED)
    limits = [distributions.normal_quantile(level / 2) for level in spending.levels(looks, alpha)]
    sums = numpy.random.default_rng(7).normal(size=(200_000, PLANNED[-1])).cumsum(axis=1)
    beyond = [abs(sums[:, look.blocks - 1]) / math.sqrt(look.blocks) > limit for look, limit in zip(looks, limits)]
    assert numpy.any(beyond, axis=0).mean() == pytest.approx(alpha, abs=3 * math.sqrt(alpha / 200_000))
    for count in range(1, len(looks)):
        spent = numpy.any(beyond[:count], axis=0).mean()
        assert spent == pytest.approx(spending.spent(alpha, looks[count - 1].share), abs=4 * math.sqrt(alpha / 200_000))


@pytest.mark.parametrize("alpha", [1e-13, 1e-6, 0.001, 0.05, 0.3])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_the_p_value_for_all_looks_is_the_level_turned_round(alpha, count):
    looks = planned(*PLANNED)[:count]
    assert spending.adjusted(spending.levels(looks, alpha)[-1], looks) == pytest.approx(alpha, rel=5e-3)


@pytest.mark.parametrize("p_value", [0.0, 1.0])
def test_certainty_stays_what_it_is(p_value):
    assert spending.adjusted(p_value, planned(*PLANNED)) == p_value


def test_a_plan_looks_at_fixed_numbers_of_blocks_and_at_its_end():
    looks = schedule.Schedule()
    taken = [blocks for blocks in range(1, 31) if looks.take(blocks, 30 - blocks)]
    assert taken == [*PLANNED, 30]
    assert [look.share for look in looks.looks] == pytest.approx([blocks / 30 for blocks in taken])


def test_the_share_ends_at_1_however_the_forecast_changed():
    looks = schedule.Schedule()
    for blocks, more in ((4, 24), (5, 23), (6, 60), (8, 58), (11, 2), (13, 0)):
        assert looks.take(blocks, more)
    shares = [look.share for look in looks.looks]
    assert shares == sorted(set(shares))
    assert shares[2] == pytest.approx(5 / 28 + 23 / 28 / 61)
    assert shares[-1] == 1


def test_a_plan_of_three_blocks_has_no_look():
    looks = schedule.Schedule()
    assert not any(looks.take(blocks, 3 - blocks) for blocks in (1, 2, 3))


def test_there_are_enough_places_for_the_longest_plan():
    """A result has room for so many blocks of samples of a hundred bytes;
    the last block of a plan is a look wherever it is.
    """
    assert schedule.places()[-1] > run_directory.MAX_BYTES / 100
    assert len(schedule.places()) + 1 == schedule.MAX_LOOKS
