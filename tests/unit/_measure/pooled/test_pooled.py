# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of one class as one verdict: what they have in common, how they differ, and when they disagree."""

from __future__ import annotations

import math

import night
import numpy
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import paired
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import leave_one_out, pooled
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import wording
from scipy import stats


def host(effect, noise=0.01, blocks=6, seed=0, better="higher"):
    """Return the comparison of a host whose blocks' log-ratios scatter by ``noise`` around ``effect``."""
    source = numpy.random.default_rng(seed)
    before, after = numpy.exp(source.normal(0, noise / math.sqrt(2), (2, blocks)))
    after = after * (1 + effect) ** (1 if better == "higher" else -1)
    one = paired.compare(before.tolist(), after.tolist(), better)
    baseline, candidate = paired.sides(before.tolist(), after.tolist(), better, one["ratio"])
    return {**one, "baseline_value": baseline, "candidate_value": candidate, "better": better, "confounded": False}


def combined(*hosts, confidence=0.95):
    (one,) = pooled.combine_family([{f"web{number}": one for number, one in enumerate(hosts)}], 0.01, confidence)
    return one


def moved(one, factor):
    """Return the comparison of a host with another effect and the same noise."""
    return {
        **one,
        "candidate_value": one["candidate_value"] * factor,
        **{name: one[name] * factor for name in ("ratio", "ci_low", "ci_high")},
    }


def test_two_hosts_that_agree_closely_decide_for_their_class_and_one_alone_does_not():
    hosts = [host(0.08, seed=1), host(0.08, seed=2)]
    together, alone = combined(*hosts), combined(hosts[0])
    assert (together["verdict"], together["n"], together["blocks"]) == ("gain", 2, 12)
    assert together["ratio"] == pytest.approx(math.sqrt(hosts[0]["ratio"] * hosts[1]["ratio"]))
    unknown = (alone["ci_low"], alone["tau"], alone["heterogeneity"])
    assert (alone["verdict"], *unknown) == ("inconclusive", None, None, None)


def test_hosts_that_differ_widen_the_interval_however_well_each_is_known():
    hosts = [host(effect, noise=0.001, seed=seed) for seed, effect in enumerate((0.02, 0.06, 0.10, 0.14))]
    logs = [math.log(one["ratio"]) for one in hosts]
    one = combined(*hosts)
    centre, scatter = numpy.mean(logs), numpy.std(logs, ddof=1)
    half = stats.t.ppf(0.975, 3) * scatter / 2
    assert numpy.log([one["ci_low"], one["ci_high"]]) == pytest.approx([centre - half, centre + half])
    assert one["verdict"] == "inconclusive" and one["tau"] == pytest.approx(math.expm1(scatter), rel=0.01)


def test_hosts_that_agree_by_luck_are_not_known_better_than_their_blocks_allow():
    noisy = host(0.0, noise=0.08, seed=4)
    one = combined(*(moved(noisy, 1.02 / noisy["ratio"]) for _same in range(3)))
    error = pooled.standard_error(noisy)
    half = stats.t.ppf(0.975, 15) * error / math.sqrt(3)
    assert math.log(one["ci_high"] / one["ci_low"]) / 2 == pytest.approx(half)
    assert one["p_value"] == pytest.approx(2 * stats.t.sf(math.log(1.02) / (error / math.sqrt(3)), 15))
    assert one["verdict"] == "inconclusive" and one["tau"] == 0.0


def test_a_host_of_one_block_is_taken_to_be_as_noisy_as_the_others():
    noisy = host(0.0, noise=0.08, seed=4)
    alike = moved(noisy, 1.02 / noisy["ratio"])
    one = combined(alike, alike, alike, {**alike, "n": 1, "ci_low": None, "ci_high": None})
    half = stats.t.ppf(0.975, 15) * pooled.standard_error(noisy) / math.sqrt(4)
    assert math.log(one["ci_high"] / one["ci_low"]) / 2 == pytest.approx(half)


def test_a_host_that_claims_to_be_exact_has_no_more_weight_than_the_others():
    hosts = [host(0.0, seed=seed) for seed in range(3)]
    exact = host(0.3, noise=1e-9, seed=9)
    one = combined(*hosts, exact)
    assert math.log(one["ratio"]) == pytest.approx(numpy.mean([math.log(each["ratio"]) for each in (*hosts, exact)]))
    assert one["ci_low"] < 1 < one["ci_high"]


@pytest.mark.parametrize(
    ("hosts", "verdict", "said"),
    [
        # They are decided on both sides of the margin.
        (((0.05, 0.003), (-0.05, 0.003)), "hosts_disagree", {"gain": ["web0"], "loss": ["web1"]}),
        (((0.05, 0.003), (0.0, 0.003)), "hosts_disagree", {"gain": ["web0"], "equivalent": ["web1"]}),
        # They differ, and say the same; or one of them is not decided.
        (
            tuple((effect, 0.003) for effect in (0.05, 0.10, 0.06, 0.07)),
            "gain",
            {"gain": ["web0", "web1", "web2", "web3"]},
        ),
        (((0.05, 0.003), (-0.01, 0.02)), "inconclusive", {"gain": ["web0"]}),
    ],
)
def test_hosts_that_are_decided_on_both_sides_of_the_margin_disagree(hosts, verdict, said):
    one = combined(*(host(*given, seed=seed) for seed, given in enumerate(hosts)))
    assert one["heterogeneity"]["p_adjusted"] < 0.05 and (one["verdict"], one["said"]) == (verdict, said)


def test_a_difference_that_may_be_chance_is_no_disagreement():
    # One of the two is just beyond the margin and the other within it.
    gains, equal = (host(0.0, noise=0.005, seed=seed) for seed in (1, 2))
    gains = {**moved(gains, 1.0125 / gains["ratio"]), "verdict": "gain"}
    equal = {**moved(equal, 1.0075 / equal["ratio"]), "verdict": "equivalent"}
    one = combined(gains, equal)
    assert len(one["said"]) == 2 and one["heterogeneity"]["p_adjusted"] > 0.05 and one["verdict"] != "hosts_disagree"


def test_the_test_for_differences_is_welchs():
    hosts = [host(0.02, noise=0.01, blocks=4, seed=1), host(0.04, noise=0.03, blocks=5, seed=2)]
    values = [(math.log(one["ratio"]), pooled.standard_error(one) * math.sqrt(one["n"]), one["n"]) for one in hosts]
    expected = stats.ttest_ind_from_stats(*values[0], *values[1], equal_var=False)
    found = combined(*hosts)["heterogeneity"]
    assert found["p_value"] == pytest.approx(expected.pvalue) and found["q"] == pytest.approx(expected.statistic**2)


def test_the_test_for_differences_between_three_hosts_takes_into_account_that_six_blocks_tell_little_of_their_noise():
    one = host(0.0, seed=1)
    found = combined(*(moved(one, factor) for factor in (1.0, 1.01, 1.02)))["heterogeneity"]
    # Welch's correction for three hosts of the same noise, which five degrees of freedom tell of each.
    assert found["q"] == pytest.approx(2 * (math.log(1.02) / 2 / pooled.standard_error(one)) ** 2, rel=0.01)
    assert found["p_value"] == pytest.approx(stats.f.sf(found["q"] / 2 / (1 + 1 / 15), 2, 10))


def test_differences_between_several_hosts_are_found_as_often_as_chance_has_it():
    """Hosts without a difference between them: one in twenty of their tests is below 5 %."""
    count = night.number(160, 400)
    pool = [host(0.0, blocks=5, seed=seed) for seed in range(count)]
    p_values = [combined(*pool[start : start + 4])["heterogeneity"]["p_value"] for start in range(0, count, 4)]
    assert 0 < numpy.mean(numpy.array(p_values) < 0.05) <= 0.12


def test_many_workloads_find_no_more_by_chance():
    hosts = [host(0.08, seed=1), host(0.08, seed=2)]
    unsure = {"web0": host(0.0, noise=0.05, seed=3), "web1": host(0.0, noise=0.05, seed=5)}
    alone = combined(*hosts)
    first = pooled.combine_family([{"web0": hosts[0], "web1": hosts[1]}, *[unsure] * 9])[0]
    assert alone["verdict"] == "gain" and first["verdict"] == "inconclusive"
    assert first["p_value"] == alone["p_value"]
    assert first["p_adjusted"] == pytest.approx(min(1.0, 10 * alone["p_value"]))
    assert first["interval_confidence"] == pytest.approx(0.995) and first["ci_low"] < alone["ci_low"]


@pytest.mark.parametrize(
    ("hosts", "blocks", "verdict"),
    [(2, 3, "inconclusive"), (3, 3, "inconclusive"), (3, 4, "gain"), (4, 1, "gain"), (4, 3, "gain")],
)
def test_few_hosts_need_as_many_blocks_as_a_verdict_does(hosts, blocks, verdict):
    one = combined(*(host(0.2, noise=0.001, blocks=blocks, seed=seed) for seed in range(hosts)))
    assert one["verdict"] == verdict
    assert ("blocks each for a verdict" in one["method"]) == (verdict == "inconclusive")


def test_exchanged_sides_give_the_reciprocal():
    effects = (0.02, 0.03, 0.05, 0.04, 0.03, 0.06)
    hosts = [host(effect, seed=seed) for seed, effect in enumerate(effects)]
    turned = [
        {
            **one,
            "baseline_value": one["candidate_value"],
            "candidate_value": one["baseline_value"],
            "ratio": 1 / one["ratio"],
            "ci_low": 1 / one["ci_high"],
            "ci_high": 1 / one["ci_low"],
            "verdict": {"gain": "loss"}.get(one["verdict"], one["verdict"]),
        }
        for one in hosts
    ]
    one, other = combined(*hosts), combined(*turned)
    assert (one["verdict"], other["verdict"]) == ("gain", "loss")
    ends = [other["ratio"], other["ci_low"], other["ci_high"]]
    assert ends == pytest.approx([1 / one["ratio"], 1 / one["ci_high"], 1 / one["ci_low"]])
    lower = combined(*(host(effect, seed=seed, better="lower") for seed, effect in enumerate(effects)))
    assert lower["verdict"] == "gain" and lower["ratio"] > 1
    with pytest.raises(paired.SampleError, match="differ in which direction is better"):
        combined(hosts[0], host(0.05, better="lower"))


def named(*hosts):
    return {f"web{number}": one for number, one in enumerate(hosts)}


def test_what_hosts_declare_is_told_apart_and_what_most_of_them_say_comes_first():
    usual = {"metric": "rate", "unit": "1/s", "better": "higher", "aggregate": "sum"}
    hosts = {"a": {**usual, "better": "lower"}, "b": usual, "c": usual, "d": {**usual, "aggregate": "mean"}}
    assert pooled.declarations(hosts) == {
        ("rate", "1/s", "higher", "sum"): ["b", "c"],
        ("rate", "1/s", "lower", "sum"): ["a"],
        ("rate", "1/s", "higher", "mean"): ["d"],
    }


@pytest.mark.parametrize("place", [0, 2, 4])
def test_the_host_that_alone_turns_a_verdict_is_named_wherever_it_stands(place):
    def quiet(effect, seed):
        one = host(0.0, noise=0.0005, seed=seed)
        return {**moved(one, (1 + effect) / one["ratio"]), "verdict": "inconclusive"}

    hosts = [quiet(effect, seed) for seed, effect in enumerate((0.006, 0.0105, 0.0095, 0.008))]
    assert combined(*hosts)["verdict"] == "inconclusive"
    hosts.insert(place, quiet(0.018, 9))
    one = combined(*hosts)
    assert one["verdict"] == "gain" and set(one["turned_by"].values()) == {"inconclusive"}
    assert f"web{place}" in one["turned_by"] and one["more_hosts"] >= 1
    said = wording.turned(one, one["n"])
    assert f"web{place}" in said and "without it the other 4 say not decided; it takes about " in said


def test_no_host_alone_turns_what_the_others_say_as_well():
    one = combined(*(host(0.08, noise=0.003, seed=seed) for seed in range(5)))
    assert (one["verdict"], one["turned_by"], one["more_hosts"]) == ("gain", {}, None) and wording.turned(one, 5) == ""


def test_of_two_hosts_each_alone_turns_what_both_say():
    one = combined(host(0.08, noise=0.003, seed=1), host(0.08, noise=0.003, seed=2))
    assert (one["verdict"], one["turned_by"]) == ("gain", {"web0": "inconclusive", "web1": "inconclusive"})
    said = wording.turned(one, 2, of_class=True)
    assert said.startswith(
        "One host does not speak for its class, so each of web0 and web1 is needed for this; it take"
    )


@pytest.mark.parametrize(("lie", "place"), [(1e-300, 0), (1e-9, 3), (0.5, 6), (2.0, 0), (1e9, 3), (1e300, 6)])
def test_six_honest_hosts_are_not_overruled_by_a_seventh(lie, place):
    hosts = [host(-0.057, noise=0.003, seed=seed) for seed in range(6)]
    ratio = min(max(lie, 1e-90), 1e90)
    liar = {**host(0.0, noise=0.003, seed=8), **dict.fromkeys(("ratio", "ci_low", "ci_high", "candidate_value"), ratio)}
    one = combined(*hosts[:place], liar, *hosts[place:])
    assert one["verdict"] in ("loss", "inconclusive", "hosts_disagree")
    if one["verdict"] == "inconclusive":
        assert one["turned_by"] == {f"web{place}": "loss"} and one["more_hosts"] is None
        assert wording.turned(one, 7) == f"web{place} alone keeps this open: without it the other 6 say loss."


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
        hosts = named(
            *(
                moved(host(0.0, noise=0.004, seed=number % 7), math.exp(effect + source.normal(0, 0.01)))
                for number in range(60)
            )
        )
        (fast,) = pooled.combine_family([hosts])
        monkeypatch.setattr(leave_one_out, "ALL_TRIED", 100)
        monkeypatch.setattr(leave_one_out, "FEW_BLOCKS", 0)
        (each,) = pooled.combine_family([hosts])
        monkeypatch.undo()
        assert bool(fast["turned_by"]) == bool(each["turned_by"]) and set(fast["turned_by"]) <= set(each["turned_by"])


def test_a_host_that_keeps_the_others_open_by_its_noise_is_named():
    hosts = [host(0.05, noise=0.003, seed=seed) for seed in range(5)]
    assert combined(*hosts)["verdict"] == "gain"
    one = combined(*hosts, {**hosts[0], "ci_low": 1e-9, "ci_high": 1e9, "verdict": "inconclusive"})
    assert (one["verdict"], one["turned_by"], one["more_hosts"]) == ("inconclusive", {"web5": "gain"}, None)
    assert wording.turned(one, 6) == "web5 alone keeps this open: without it the other 5 say better."
