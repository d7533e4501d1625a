# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host's test is the controller's, to the last digit."""

from __future__ import annotations

import math

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._statistics import ranks, student, verdicts
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import paired
from hypothesis import given, settings, strategies as st
from scipy import special

LEVELS = (0.05, 0.0157, 0.0001)


def on_both(before, after, better, level):
    """Centre and limits of the host and of the controller."""
    return ranks.Paired(before, after, better).interval(level), paired.interval(before, after, better, level)


def noise(kind, blocks):
    """Series of logarithms: even, on a coarse clock, with bursts, with drift."""
    steps = st.floats(-0.05, 0.05)
    return {
        "even": st.lists(steps, min_size=blocks, max_size=blocks),
        "coarse": st.lists(st.integers(-3, 3).map(lambda step: step / 100), min_size=blocks, max_size=blocks),
        "bursts": st.lists(st.one_of(steps, st.floats(0.5, 3.0)), min_size=blocks, max_size=blocks),
        "drift": (
            st.lists(steps, min_size=blocks, max_size=blocks).map(
                lambda values: [value + 0.01 * place for place, value in enumerate(values)]
            )
        ),
    }[kind]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize("kind", ["even", "coarse", "bursts", "drift"])
def test_host_and_controller_say_the_same(kind, better, data):
    blocks = data.draw(st.integers(verdicts.MIN_BLOCKS, 40))
    before = [100 * math.exp(value) for value in data.draw(noise(kind, blocks))]
    after = [103 * math.exp(value) for value in data.draw(noise(kind, blocks))]
    for level in LEVELS:
        host, controller = on_both(before, after, better, level)
        if blocks >= verdicts.MIN_BLOCKS_RANKED:
            assert host[0] == controller[0]
        # Student's quantile is in them where ranks give no bound.
        assert host == pytest.approx(controller, rel=1e-11, abs=1e-15)


def test_they_agree_where_there_are_more_pairs_than_can_be_looked_at():
    before = [100 + (block * 37 % 101) / 10 for block in range(1100)]
    after = [101 + (block * 53 % 97) / 10 for block in range(1100)]
    assert len(before) ** 2 > ranks.MAX_PAIRS
    host, controller = on_both(before, after, "higher", 0.01)
    assert host == pytest.approx(controller, rel=1e-11)


@pytest.mark.parametrize("freedom", [1, 2, 3, 5, 9, 27, 100, 999])
@pytest.mark.parametrize("level", [1e-12, 1e-6, 0.0157, 0.05, 0.5, 0.9])
def test_students_t_is_that_of_scipy(freedom, level):
    value = (
        float(special.stdtrit(freedom, 1 - level / 2)) if level > 1e-9 else -float(special.stdtrit(freedom, level / 2))
    )
    assert student.quantile(level, freedom) == pytest.approx(value, rel=1e-9)
    assert student.p_value(value, freedom) == pytest.approx(2 * special.stdtr(freedom, -value), rel=1e-10)
    assert student.p_value(-value, freedom) == student.p_value(value, freedom)


def test_an_infinite_statistic_has_no_p_value_above_zero():
    assert student.p_value(math.inf, 5) == 0
    assert student.p_value(0.0, 5) == 1
