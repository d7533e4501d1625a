# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filter smt_compare and the statistics behind it."""

import json
import math
import sys

import night
import numpy
import pytest
import yaml
from ansible.errors import AnsibleFilterError
from ansible_collections.threadwise.smt.plugins.filter.smt_compare import smt_compare
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from hypothesis import given, settings, strategies as st

ENDS = ("ratio", "ci_low", "ci_high")
RATES = st.floats(min_value=1e-3, max_value=1e6)


@st.composite
def two_sides(draw):
    """Two sides of up to 12 blocks, each with one to three values a side."""
    blocks = draw(st.integers(min_value=paired.MIN_BLOCKS, max_value=12))
    side = st.lists(st.lists(RATES, min_size=1, max_size=3), min_size=blocks, max_size=blocks)
    return draw(side), draw(side)


def noisy(blocks, ratio, deviation=0.01, seed=7):
    """ABBA blocks of log-normal times, after / before = ratio."""
    source = numpy.random.default_rng(seed)
    before, after = numpy.exp(source.normal(0, deviation, (2, blocks, 2)))
    return (100 * before).tolist(), (100 * ratio * after).tolist()


def test_what_the_filter_returns_is_documented_and_plain():
    result = smt_compare(*noisy(14, 1.03))
    assert set(yaml.safe_load(sys.modules[smt_compare.__module__].RETURN)["_value"]["contains"]) == set(result)
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert {type(value) for value in result.values()} <= {float, int, str}
    assert (result["n"], result["margin"], result["confidence"]) == (14, 0.01, 0.95)
    assert result["ci_low"] < result["ratio"] < result["ci_high"]


def test_verdict_follows_the_way_the_metric_points():
    for ratio, verdicts in ((1.03, ("gain", "loss")), (0.97, ("loss", "gain")), (1.0, ("equivalent",) * 2)):
        higher, lower = (smt_compare(*noisy(28, ratio), better=better) for better in ("higher", "lower"))
        assert (higher["verdict"], lower["verdict"]) == verdicts
        assert (higher["ratio"], 1 / lower["ratio"]) == pytest.approx((ratio, ratio), abs=0.005)


def test_what_noise_or_the_margin_hides_is_not_called():
    result = smt_compare(*noisy(8, 1.01, 0.1))
    assert result["verdict"] == "inconclusive" and result["minimum_detectable"] > 0.05
    # An effect within the margin is no gain however sure, and one barely clear of none is not called.
    sides = noisy(200, 1.006)
    result = smt_compare(*sides, margin=0.007)
    assert result["ci_low"] > 1 and result["verdict"] == "inconclusive"
    assert [smt_compare(*sides, margin=margin)["verdict"] for margin in (0.02, 0.001)] == ["equivalent", "gain"]
    result = smt_compare(*noisy(14, 1.02, 0.02, seed=17))
    assert 1 < result["ci_low"] < 1.0025 and result["ratio"] > 1.01 and result["verdict"] == "inconclusive"


def test_a_burst_or_a_drift_far_larger_than_the_effect_is_taken_out():
    before, after = noisy(14, 1.03)
    calm = smt_compare(before, after)
    before[5][1] *= 10
    burst = smt_compare(before, after)
    assert burst["ratio"] == pytest.approx(calm["ratio"], abs=0.005) and burst["verdict"] == "gain"
    drift = numpy.linspace(1, 2, 14)[:, None]
    result = smt_compare(*((numpy.array(side) * drift).tolist() for side in noisy(14, 1.03, 0.005)))
    assert result["verdict"] == "gain" and result["ratio"] == pytest.approx(1.03, abs=0.01)


def test_samples_without_any_scatter_and_few_blocks_which_are_never_called():
    for blocks in (1, 3):
        result = smt_compare([100.0] * blocks, [50.0] * blocks)
        assert result["verdict"] == "inconclusive" and f"at least {paired.MIN_BLOCKS} blocks" in result["method"]
        assert (result["ci_low"] is None) == (blocks == 1)
    for blocks in (4, 5, 14):
        assert smt_compare([100] * blocks, [100] * blocks)["verdict"] == "equivalent"
        result = smt_compare([100] * blocks, [103] * blocks)
        assert [result[name] for name in (*ENDS, "verdict")] == [1.03, 1.03, 1.03, "gain"]


def test_a_coarse_clock_bounds_what_is_known():
    # Most blocks tie, and one tick is 4 %: an interval of no width would say more than the clock does.
    before, after = [50.0] * 13 + [52.0], [50.0] * 14
    result = smt_compare(before, after, better="lower")
    assert result["ci_high"] / result["ci_low"] == pytest.approx(1.04, abs=0.001)
    assert result["verdict"] == "inconclusive"


@given(two_sides(), st.floats(min_value=1e-6, max_value=1e6), st.sampled_from([0.8, 0.95, 0.99]))
@settings(max_examples=night.number(15, 100), deadline=None)
def test_swapping_the_sides_mirrors_the_result_the_unit_does_not_matter_and_more_confidence_is_no_narrower(
    sides, factor, confidence
):
    one, other = smt_compare(*sides), smt_compare(*reversed(sides))
    assert 0 < one["ci_low"] <= one["ratio"] <= one["ci_high"] < math.inf and smt_compare(*sides) == one
    assert (one["ratio"] * other["ratio"], one["ci_low"] * other["ci_high"]) == (pytest.approx(1), pytest.approx(1))
    assert other["verdict"] == {"gain": "loss", "loss": "gain"}.get(one["verdict"], one["verdict"])
    assert smt_compare(*sides, better="lower") == pytest.approx(other)
    scaled = smt_compare(*[[[value * factor for value in block] for block in side] for side in sides])
    assert [scaled[name] for name in ENDS] == pytest.approx([one[name] for name in ENDS], rel=1e-6)
    wide, narrow = (smt_compare(*sides, confidence=confidence + more) for more in (0.005, 0))
    assert wide["ci_low"] <= narrow["ci_low"] and narrow["ci_high"] <= wide["ci_high"]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ([], [], "before is empty"),
        ([1.0], [1.0, 2.0], "before has 1 blocks and after has 2"),
        ([1.0, True], [1.0, 1.0], "before, block 2: True is not a number"),
        ([[1.0], [math.nan]], [[1.0], [1.0]], "before, block 2: nan is not a finite number"),
        ([[1.0], [1.0]], [[1.0], [0.0]], "after, block 2: 0.0 has no ratio"),
        ([[[1.0]]], [1.0], "nested too deep"),
        ([10**5000], [1.0], "an integer of 16610 bits is not between"),
        ([[1.0] * 60_000] * 2, [1.0], "more than 100000 values"),
        ("x" * 10_000, [1.0], "before is "),
    ],
)
def test_what_cannot_be_compared_is_named(before, after, words):
    with pytest.raises(AnsibleFilterError) as error:
        smt_compare(before, after)
    assert words in str(error.value) and len(str(error.value)) < 300


def test_settings_that_are_none_are_named():
    wrong = {"better": ("more", None, ["higher"]), "margin": (-0.1, 1, math.nan, "0.01"), "confidence": (95, 1.0, True)}
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        with pytest.raises(AnsibleFilterError, match=f"{name} is "):
            smt_compare([1.0], [1.0], **{name: value})


def test_holm_adjusts_as_its_paper_does():
    # The procedure by hand: 0.01 x 4, 0.02 x 3, 0.03 x 2 (not below the one before), 0.04 x 1 (likewise).
    assert paired.holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert paired.holm([0.9, 0.8]) == [1.0, 1.0]
    # It goes on only while it rejects.
    assert paired.holm_levels([0.04, 0.001], 0.05) == [0.05, 0.025]
    assert paired.holm_levels([0.04, 0.03], 0.05) == [0.025, 0.025]


def test_a_family_is_judged_together():
    clear, borderline = noisy(14, 1.05), noisy(14, 1.04, 0.06, seed=2)
    alone = paired.compare(*borderline)
    assert alone.verdict == "gain" and 0.02 < alone.p_value < 0.05
    family = paired.compare_family([(*borderline, "higher"), (*clear, "higher"), (*borderline, "higher")])
    assert [one.verdict for one in family] == ["inconclusive", "gain", "inconclusive"]
    assert family[0].p_adjusted == pytest.approx(2 * alone.p_value)
    assert [one.family for one in family] == [3, 3, 3]
    assert family[1].interval_confidence == pytest.approx(1 - 0.05 / 3)
    assert family[0].ci_low < alone.ci_low and alone.ci_high < family[0].ci_high


def test_minimum_detectable_is_found_in_nine_of_ten():
    source = numpy.random.default_rng(3)
    least = paired.compare(*noisy(14, 1.0, 0.02)).minimum_detectable
    found = 0
    for _time in range(50):
        before, after = numpy.exp(source.normal(0, 0.02, (2, 14, 2)))
        found += paired.compare(before.tolist(), (after * (1 + least)).tolist()).verdict == "gain"
    assert 40 <= found <= 49


def test_level_of_one_side():
    found = paired.level([[98.0, 102.0], 100.0, 101.0, 99.0])
    assert found.low < found.value < found.high and found.n == 4
    assert found.value == pytest.approx(100, abs=0.1)
    assert paired.level([5.0])[:3] == (pytest.approx(5.0), None, None)
    # The 95 % quantile of Student's t with two degrees of freedom is 4.30265 (any table of it).
    found = paired.level([math.exp(value) for value in (1.0, 2.0, 3.0)])
    half = 4.30265 * 1.0 / math.sqrt(3)
    assert tuple(map(math.log, found[:3])) == pytest.approx((2.0, 2.0 - half, 2.0 + half), rel=1e-5)
