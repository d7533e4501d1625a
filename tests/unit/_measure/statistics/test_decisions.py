# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look decides."""

from __future__ import annotations

import math

import numpy
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import decisions, verdicts
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.ranks import Paired
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.spending import Look
from scipy import stats


def decided(blocks, deviation, effect=0.0, more=20, alpha=0.05):
    """What the looks at a plan say of blocks whose log-ratios have this mean and standard deviation."""
    source = numpy.random.default_rng(1)
    before = numpy.exp(source.normal(0, 0.001, blocks)) * 100
    steps = source.normal(0, 1, blocks)
    steps = (steps - steps.mean()) / steps.std(ddof=1) * deviation + math.log1p(effect)
    comparison = Paired.of_values(before.tolist(), (before * numpy.exp(steps)).tolist(), "higher")
    looks = [Look(count, count / (blocks + more)) for count in (4, 6, 8, 11, 15) if count < blocks]
    return decisions.decide(comparison, [*looks, Look(blocks, blocks / (blocks + more))], alpha, 0.01, more)


@pytest.mark.parametrize(
    ("blocks", "deviation", "effect", "outcome"),
    [
        (4, 0.003, 0.10, verdicts.GAIN),
        (6, 0.01, 0.10, verdicts.GAIN),
        (6, 0.01, -0.10, verdicts.LOSS),
        (15, 0.005, 0.0, verdicts.EQUIVALENT),
        # An interval that is clear of 0, around an effect within the margin.
        (15, 0.003, 0.009, None),
        (15, 0.003, -0.009, None),
        # An effect beyond the margin, in an interval that is not clear of 0.
        (15, 0.06, 0.012, None),
        (15, 0.03, -0.012, None),
        # The rest of the plan may still decide these.
        (15, 0.15, 0.0, None),
        (4, 0.06, 0.0, None),
        (8, 0.01, 0.0, None),
        (11, 0.03, 0.02, None),
    ],
)
def test_each_outcome(blocks, deviation, effect, outcome):
    assert decided(blocks, deviation, effect) == outcome


def test_what_the_rest_cannot_decide_is_futile_and_nothing_is_when_nothing_is_left():
    assert decided(15, 0.15, more=8) == decisions.FUTILE
    # Few blocks may have scattered more than the rest will.
    assert decided(8, 0.04, 0.01, more=4) is None
    assert decided(15, 0.15, more=0) is None and decided(7, 0.15, more=1) is None


def test_more_comparisons_need_more_certainty():
    assert (decided(6, 0.02, 0.06), decided(6, 0.02, 0.06, alpha=0.05 / 40)) == (verdicts.GAIN, None)


def test_the_chance_is_that_of_plans_that_go_on():
    """The predictive probability, held against simulated rests of a plan whose scatter is known."""
    blocks, more, deviation, centre, level, margin = 10, 18, 0.02, 0.006, 0.02, math.log1p(0.01)
    source = numpy.random.default_rng(3)
    truth = centre + source.normal(0, deviation / math.sqrt(blocks), 30_000)
    rest = truth + source.normal(0, deviation / math.sqrt(more), 30_000)
    final = (blocks * centre + more * rest) / (blocks + more)
    half = stats.t.ppf(1 - level / 2, blocks + more - 1) * deviation / math.sqrt(blocks + more)
    called = [verdicts.verdict(mean, mean - half, mean + half, margin) != verdicts.INCONCLUSIVE for mean in final]
    found = decisions.chance(centre, deviation, blocks, more, level, margin)
    assert found == pytest.approx(numpy.mean(called), abs=0.015)


def test_without_scatter_the_chance_is_all_or_nothing():
    assert decisions.chance(0.0, 0.0, 10, 10, 0.05, 0.01) == 1 == decisions.chance(0.05, 0.0, 10, 10, 0.05, 0.01)
