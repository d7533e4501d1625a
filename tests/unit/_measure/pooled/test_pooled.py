# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of one class as one verdict: what they have in common, when they disagree; and an effect from run to run."""

import math
import random
from dataclasses import replace

import night
import numpy
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import leave_one_out, pooled, series
from scipy import stats


def host(effect, noise=0.01, blocks=6, seed=0, better="higher"):
    """Return the comparison of a host whose blocks' log-ratios scatter by ``noise`` around ``effect``."""
    source = numpy.random.default_rng(seed)
    before, after = numpy.exp(source.normal(0, noise / math.sqrt(2), (2, blocks)))
    after = after * (1 + effect) ** (1 if better == "higher" else -1)
    one = paired.compare(before.tolist(), after.tolist(), better)
    return result_maker.of_a_host(one, paired.sides(before.tolist(), after.tolist(), better, one.ratio))


def combined(*hosts, confidence=0.95):
    (one,) = pooled.combine_family([{f"web{number}": one for number, one in enumerate(hosts)}], 0.01, confidence)
    return one


def moved(one, factor):
    """Return the comparison of a host with another effect and the same noise."""
    return replace(
        one, **{name: getattr(one, name) * factor for name in ("candidate_value", "ratio", "ci_low", "ci_high")}
    )


def test_two_hosts_that_agree_closely_decide_for_their_class_and_one_alone_does_not():
    hosts = [host(0.08, seed=1), host(0.08, seed=2)]
    together, alone = combined(*hosts), combined(hosts[0])
    assert (together.verdict, together.n, together.blocks) == ("gain", 2, 12)
    assert together.ratio == pytest.approx(math.sqrt(hosts[0].ratio * hosts[1].ratio))
    unknown = (alone.ci_low, alone.tau, alone.heterogeneity)
    assert (alone.verdict, *unknown) == ("inconclusive", None, None, None)


def test_hosts_that_differ_widen_the_interval_however_well_each_is_known():
    hosts = [host(effect, noise=0.001, seed=seed) for seed, effect in enumerate((0.02, 0.06, 0.10, 0.14))]
    logs = [math.log(one.ratio) for one in hosts]
    one = combined(*hosts)
    centre, scatter = numpy.mean(logs), numpy.std(logs, ddof=1)
    half = stats.t.ppf(0.975, 3) * scatter / 2
    assert numpy.log([one.ci_low, one.ci_high]) == pytest.approx([centre - half, centre + half])
    assert one.verdict == "inconclusive" and one.tau == pytest.approx(math.expm1(scatter), rel=0.01)


def test_hosts_that_agree_by_luck_are_not_known_better_than_their_blocks_allow():
    noisy = host(0.0, noise=0.08, seed=4)
    one = combined(*(moved(noisy, 1.02 / noisy.ratio) for _same in range(3)))
    error = pooled.standard_error(noisy)
    half = stats.t.ppf(0.975, 15) * error / math.sqrt(3)
    assert math.log(one.ci_high / one.ci_low) / 2 == pytest.approx(half)
    assert one.p_value == pytest.approx(2 * stats.t.sf(math.log(1.02) / (error / math.sqrt(3)), 15))
    assert one.verdict == "inconclusive" and one.tau == 0.0
    # A host of one block is taken to be as noisy as the others.
    alike = moved(noisy, 1.02 / noisy.ratio)
    one = combined(alike, alike, alike, replace(alike, n=1, ci_low=None, ci_high=None))
    assert math.log(one.ci_high / one.ci_low) / 2 == pytest.approx(half * math.sqrt(3 / 4))


def test_a_host_that_claims_to_be_exact_has_no_more_weight_than_the_others():
    hosts = [host(0.0, seed=seed) for seed in range(3)]
    exact = host(0.3, noise=1e-9, seed=9)
    one = combined(*hosts, exact)
    assert math.log(one.ratio) == pytest.approx(numpy.mean([math.log(each.ratio) for each in (*hosts, exact)]))
    assert one.ci_low < 1 < one.ci_high


def test_hosts_that_are_decided_on_both_sides_of_the_margin_disagree():
    gains = {"gain": ["web0", "web1", "web2", "web3"]}
    for hosts, verdict, said in (
        (((0.05, 0.003), (-0.05, 0.003)), "hosts_disagree", {"gain": ["web0"], "loss": ["web1"]}),
        (((0.05, 0.003), (0.0, 0.003)), "hosts_disagree", {"gain": ["web0"], "equivalent": ["web1"]}),
        # They differ, and say the same; or one of them is not decided.
        ([(effect, 0.003) for effect in (0.05, 0.10, 0.06, 0.07)], "gain", gains),
        (((0.05, 0.003), (-0.01, 0.02)), "inconclusive", {"gain": ["web0"]}),
    ):
        one = combined(*(host(*given, seed=seed) for seed, given in enumerate(hosts)))
        assert one.heterogeneity.p_adjusted < 0.05 and (one.verdict, one.said) == (verdict, said)


def test_a_difference_that_may_be_chance_is_no_disagreement():
    # One of the two is just beyond the margin and the other within it.
    gains, equal = (host(0.0, noise=0.005, seed=seed) for seed in (1, 2))
    gains = replace(moved(gains, 1.0125 / gains.ratio), verdict="gain")
    equal = replace(moved(equal, 1.0075 / equal.ratio), verdict="equivalent")
    one = combined(gains, equal)
    assert len(one.said) == 2 and one.heterogeneity.p_adjusted > 0.05 and one.verdict != "hosts_disagree"


def test_the_test_for_differences_is_welchs():
    hosts = [host(0.02, noise=0.01, blocks=4, seed=1), host(0.04, noise=0.03, blocks=5, seed=2)]
    values = [(math.log(one.ratio), pooled.standard_error(one) * math.sqrt(one.n), one.n) for one in hosts]
    expected = stats.ttest_ind_from_stats(*values[0], *values[1], equal_var=False)
    found = combined(*hosts).heterogeneity
    assert found.p_value == pytest.approx(expected.pvalue) and found.q == pytest.approx(expected.statistic**2)


def test_many_workloads_find_no_more_by_chance():
    hosts = [host(0.08, seed=1), host(0.08, seed=2)]
    unsure = {"web0": host(0.0, noise=0.05, seed=3), "web1": host(0.0, noise=0.05, seed=5)}
    alone = combined(*hosts)
    first = pooled.combine_family([{"web0": hosts[0], "web1": hosts[1]}, *[unsure] * 9])[0]
    assert alone.verdict == "gain" and first.verdict == "inconclusive"
    assert first.p_value == alone.p_value
    assert first.p_adjusted == pytest.approx(min(1.0, 10 * alone.p_value))
    assert first.interval_confidence == pytest.approx(0.995) and first.ci_low < alone.ci_low


def test_few_hosts_need_as_many_blocks_as_a_verdict_does():
    few = "inconclusive"
    for hosts, blocks, verdict in ((2, 3, few), (3, 3, few), (3, 4, "gain"), (4, 1, "gain"), (4, 3, "gain")):
        one = combined(*(host(0.2, noise=0.001, blocks=blocks, seed=seed) for seed in range(hosts)))
        assert one.verdict == verdict
        assert ("blocks each for a verdict" in one.method) == (verdict == few)


def test_exchanged_sides_give_the_reciprocal():
    effects = (0.02, 0.03, 0.05, 0.04, 0.03, 0.06)
    hosts = [host(effect, seed=seed) for seed, effect in enumerate(effects)]
    one, other = combined(*hosts), combined(*(one.turned() for one in hosts))
    assert (one.verdict, other.verdict) == ("gain", "loss")
    ends = [other.ratio, other.ci_low, other.ci_high]
    assert ends == pytest.approx([1 / one.ratio, 1 / one.ci_high, 1 / one.ci_low])
    lower = combined(*(host(effect, seed=seed, better="lower") for seed, effect in enumerate(effects)))
    assert lower.verdict == "gain" and lower.ratio > 1
    with pytest.raises(paired.SampleError, match="differ in which direction is better"):
        combined(hosts[0], host(0.05, better="lower"))


def named(*hosts):
    return {f"web{number}": one for number, one in enumerate(hosts)}


@pytest.mark.parametrize("place", [0, 2, 4])
def test_the_host_that_alone_turns_a_verdict_is_named_wherever_it_stands(place):
    def quiet(effect, seed):
        one = host(0.0, noise=0.0005, seed=seed)
        return replace(moved(one, (1 + effect) / one.ratio), verdict="inconclusive")

    hosts = [quiet(effect, seed) for seed, effect in enumerate((0.006, 0.0105, 0.0095, 0.008))]
    assert combined(*hosts).verdict == "inconclusive"
    hosts.insert(place, quiet(0.018, 9))
    one = combined(*hosts)
    assert one.verdict == "gain" and set(one.turned_by.values()) == {"inconclusive"}
    assert f"web{place}" in one.turned_by and one.more_hosts >= 1
    said = leave_one_out.sentence(one.verdict, one.turned_by, one.more_hosts, one.n)
    assert f"web{place}" in said and "without it the other 4 say not decided; it takes about " in said


def test_of_two_hosts_each_alone_turns_what_both_say_and_of_five_none():
    one = combined(*(host(0.08, noise=0.003, seed=seed) for seed in range(5)))
    assert (one.verdict, one.turned_by, one.more_hosts) == ("gain", {}, None) and one.turns == ""
    one = combined(host(0.08, noise=0.003, seed=1), host(0.08, noise=0.003, seed=2))
    assert (one.verdict, one.turned_by) == ("gain", {"web0": "inconclusive", "web1": "inconclusive"})
    assert "so each of web0 and web1 is needed for this; it take" in one.turns


@pytest.mark.parametrize(("lie", "place"), [(1e-300, 0), (1e-9, 3), (0.5, 6), (2.0, 0), (1e9, 3), (1e300, 6)])
def test_six_honest_hosts_are_not_overruled_by_a_seventh(lie, place):
    hosts = [host(-0.057, noise=0.003, seed=seed) for seed in range(6)]
    ratio = min(max(lie, 1e-90), 1e90)
    liar = replace(
        host(0.0, noise=0.003, seed=8), **dict.fromkeys(("ratio", "ci_low", "ci_high", "candidate_value"), ratio)
    )
    one = combined(*hosts[:place], liar, *hosts[place:])
    assert one.verdict in ("loss", "inconclusive", "hosts_disagree")
    if one.verdict == "inconclusive":
        assert one.turned_by == {f"web{place}": "loss"} and one.more_hosts is None
        assert one.turns == f"web{place} alone keeps this open: without it the other 6 say loss."


def test_a_host_has_no_part_in_the_others_correction_by_workloads_of_its_own():
    honest = named(*(host(0.03, noise=0.005, seed=seed) for seed in range(5)))
    alone, *_own = pooled.combine_family([honest, *({"liar": host(0.5, seed=seed)} for seed in range(100))])
    assert alone == pooled.combine_family([honest])[0]
    assert pooled.shared([alone, *_own]) == [alone] and pooled.shared(_own) == _own


@pytest.mark.night(after=2)
@pytest.mark.parametrize("effect", [0.0105, 0.03, 0.0, 0.006])
def test_of_many_hosts_those_are_found_that_leaving_out_each_one_finds(effect, monkeypatch):
    for seed in range(night.number(3, 6)):
        source = numpy.random.default_rng(seed)
        factors = numpy.exp(effect + source.normal(0, 0.01, 60))
        hosts = named(*(moved(host(0.0, noise=0.004, seed=n % 7), float(of)) for n, of in enumerate(factors)))
        (fast,) = pooled.combine_family([hosts])
        monkeypatch.setattr(leave_one_out, "ALL_TRIED", 100)
        monkeypatch.setattr(leave_one_out, "FEW_BLOCKS", 0)
        (each,) = pooled.combine_family([hosts])
        monkeypatch.undo()
        assert bool(fast.turned_by) == bool(each.turned_by) and set(fast.turned_by) <= set(each.turned_by)


MARGIN = 0.01


def simulated(source, runs, change, between):
    """Runs with intervals of their own, of which those from a place on differ by a change; and that place."""
    place = source.randint(1, runs - 1)
    made = []
    for number in range(runs):
        error = source.uniform(0.005, 0.02)
        log = source.gauss(0, math.hypot(error, between)) + (change if number >= place else 0)
        ends = (math.exp(log - 1.96 * error), math.exp(log + 1.96 * error))
        made.append(series.Interval(math.exp(log), *ends, 0.95))
    return made, place


@pytest.mark.parametrize("between", [0.0, 0.01])
@pytest.mark.parametrize("runs", [2, 4, *(pytest.param(runs, marks=pytest.mark.night) for runs in (3, 6, 12, 24))])
def test_on_simulated_runs_a_change_is_found_and_none_is_called_where_there_is_none(runs, between):
    source, count, found = random.Random(runs), 200, 0
    called = sum(bool(series.turns(simulated(source, runs, 0.0, between)[0], MARGIN)) for _again in range(count))
    for _again in range(count):
        made, place = simulated(source, runs, 0.1, between)
        found += any(abs(turn.place - place) <= 1 for turn in series.turns(made, MARGIN))
    # Where five in a hundred are called, more than 17 of 200 are in one of 40 such tests.
    assert called <= 17 and found >= 0.93 * count, (called, found)


def run_of(log, error=0.01):
    return series.Interval(math.exp(log), math.exp(log - 1.96 * error), math.exp(log + 1.96 * error), 0.95)


@pytest.mark.night(after=2)
@pytest.mark.parametrize("parts", [(3, 3, 3), (1, 2, 1), (2, 2, 2), (6, 2, 6), (8, 2, 2)])
def test_a_change_that_is_taken_back_is_found(parts):
    """A release is worse, and the next one is as before: no single place divides the runs."""
    source, count, found = random.Random(sum(parts)), 100, 0
    for _again in range(count):
        logs = [0.0] * parts[0] + [0.1] * parts[1] + [0.0] * parts[2]
        made = [run_of(log + source.gauss(0, 0.01)) for log in logs]
        found += [turn.place for turn in series.turns(made, MARGIN)] == [parts[0], parts[0] + parts[1]]
    assert found >= 90


def test_the_latest_run_holds_has_changed_or_decides_nothing():
    states = {0.01: series.HOLDS, 0.03: series.NOT_DECIDED, 0.04: series.CHANGED}
    for change, state in states.items():
        made = [run_of(0.0, 0.005), run_of(change, 0.005)]
        assert series.standing(made, series.turns(made, MARGIN), MARGIN) == state
    wide = [run_of(0.0, 0.05)] * 2
    assert series.standing(wide, series.turns(wide, MARGIN), MARGIN) == series.NOT_DECIDED
    assert series.standing(made[:1], [], MARGIN) is None, "a single run holds nothing"


def test_two_changes_are_two():
    ratios = (1.0, 1.01, 1.2, 1.21, 1.2, 0.9, 0.91)
    found = series.turns([series.Interval(ratio, ratio * 0.99, ratio * 1.01, 0.95) for ratio in ratios], MARGIN)
    assert [turn.place for turn in found] == [2, 5]
    assert found[0].after == pytest.approx(1.203, abs=0.005) and found[1].before == found[0].after


def test_a_change_below_the_margin_is_none():
    made = [series.Interval(ratio, ratio * 0.9999, ratio * 1.0001, 0.95) for ratio in [1.0] * 10 + [1.008] * 10]
    assert series.turns(made, MARGIN) == [] and len(series.turns(made, 0.0)) == 1
