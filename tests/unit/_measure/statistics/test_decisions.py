# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a look decides, and how an estimate is corrected that ended a plan early."""

from __future__ import annotations

import math

import night
import numpy
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import (
    decisions,
    early,
    spending,
    verdicts,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.ranks import Paired
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics.spending import Look
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
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
        (6, 0.01, -0.10, verdicts.LOSS),
        (15, 0.005, 0.0, verdicts.EQUIVALENT),
        # An interval that is clear of 0, around an effect within the margin.
        (15, 0.003, 0.009, None),
        (15, 0.06, 0.012, None),
        (15, 0.15, 0.0, None),
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


LOOKS = tuple(spending.Look(blocks, blocks / 28) for blocks in (4, 5, 6, 8, 11, 15, 19, 23, 28))


def ended(drift, plans, source):
    """Estimates of plans with this mean of a block, of deviation 1, that stop when the level of a look is reached:
    (estimate, share kept) each.
    """
    limits = [stage.limit for stage in spending.stages(LOOKS, 0.05)]
    found = []
    for sums in source.normal(drift, 1, (plans, 28)).cumsum(axis=1):
        reached = [abs(sums[look.blocks - 1]) >= limit for look, limit in zip(LOOKS, limits)]
        number = reached.index(True) if any(reached) else len(LOOKS) - 1
        blocks = LOOKS[number].blocks
        p_value = math.erfc(abs(sums[blocks - 1]) / math.sqrt(2 * blocks))
        found.append((sums[blocks - 1] / blocks, early.share_kept(p_value, LOOKS[: number + 1], 0.05)))
    return numpy.array(found)


@pytest.mark.night(after=1)
@pytest.mark.parametrize("drift", [0.5, 0.9])
def test_half_of_the_corrected_estimates_are_below_the_truth(drift):
    plans = night.number(150, 400)
    found = ended(drift, plans, numpy.random.default_rng(11))
    naive, corrected = found[:, 0], found[:, 0] * found[:, 1]
    assert (corrected < drift).mean() == pytest.approx(0.5, abs=1.4 / math.sqrt(plans))
    assert (naive < drift).mean() < (corrected < drift).mean()
    assert abs(corrected.mean() - drift) < abs(naive.mean() - drift)


@pytest.mark.parametrize(("p_value", "looks"), [(0.001, 1), (0.001, 0), (0.0, 9), (0.004, 4)])
def test_a_later_look_is_corrected_towards_no_effect_and_nothing_else_is(p_value, looks):
    kept = early.share_kept(p_value, LOOKS[:looks], 0.05)
    assert 0 < kept < 1 if looks == 4 else kept == 1


def judged(blocks, looks, deciding=True):
    """The comparison of blocks' ratios after looks, and the same without looks."""
    one = [1.0] * len(blocks), blocks, "higher"
    return paired.compare_family([one], looks=[LOOKS[:looks]], deciding=[deciding])[0], paired.compare_family([one])[0]


# Half the work at each block, as of two threads that share a core; and an effect that shows first at the last look.
HALF = [0.478, 0.522, 0.505, 0.461, 0.513, 0.507, 0.498, 0.485, 0.503, 0.501, 0.512]
LATE = [0.90, 1.05, 0.93, 1.04, 0.94, 0.91, 0.96, 0.95, 0.90, 0.96, 0.92]


def test_what_was_found_at_an_earlier_look_or_was_not_looked_at_is_not_corrected():
    """The plan went on for another comparison: this one did not end it at a lucky moment."""
    looked, fixed = judged(HALF, 5)
    assert looked.looks == 5 and looked.ratio == fixed.ratio == pytest.approx(0.5, abs=0.01)
    looked, fixed = judged(LATE, 5, deciding=False)
    assert looked.ratio == fixed.ratio < judged(LATE, 5)[0].ratio < 1


def test_no_correction_leads_out_of_the_interval():
    """Two disturbed blocks hide a large effect from all looks but the last one, where it is clear."""
    looked, fixed = judged([0.56, 0.53, 1.1, 0.65, 1.1, 0.65, 0.61, 0.62, 0.6, 0.61, 0.54, 0.58, 0.54, 0.53, 0.73], 6)
    assert looked.ratio > fixed.ratio and looked.ci_low < looked.ratio <= looked.ci_high
