# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a result to comparisons: held against results whose truth is known; of many arms, which with which."""

import itertools
import json

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    measures,
    paired,
    recorded,
    smt_metrics,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions import cautions
from result_maker import accepted, analysed, compared

EVEN = {"even": {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}}
OWN = {"own": result_maker.GZIP}


def of_smt(document):
    return analysed(document).of_smt[0].described()


def declared(document):
    """What a document says of its workload's metric."""
    return document["plan"]["workloads"][0]["metrics"]["throughput"]


def test_the_truth_lies_in_every_interval_whatever_the_order_of_samples_and_arms():
    document = result_maker.result()
    comparisons = compared(document)
    share = result_maker.GZIP["share"]
    truth = dict.fromkeys([("smt_off", name) for name in ("single", "one_per_core", "cores", "same_cpu")], 1.0)
    truth.update({("smt_off", "all_threads"): 1 / (2 * share), ("cost_of_sharing", "siblings"): share})
    truth.update({("smt_yield", "all_threads"): 2 * share, ("core_yield", "siblings"): 2 * share})
    truth.update({("cost_of_one_cpu", "same_cpu"): 0.5, ("second_core", "cores"): 2.0})
    found = {(one["effect"], one["placement"]): one for one in comparisons}
    assert found.keys() == truth.keys() and len(found) == len(comparisons)
    for key, ratio in truth.items():
        assert found[key]["ci_low"] <= ratio * 1.002 and found[key]["ci_high"] >= ratio * 0.998, key
        assert found[key]["ratio"] == pytest.approx(ratio, rel=0.01)
    # Pairs are by block, and with SMT off as baseline the conclusion is the same.
    document["samples"].reverse()
    assert compared(document) == comparisons
    other = result_maker.result()
    other["arms"] = [result_maker.arm("smt_off", "SMT off", True), result_maker.arm("smt_on", "SMT on", False)]
    for one, before in zip(compared(other), comparisons, strict=True):
        assert all(one[key] == before[key] for key in ("effect", "ratio", "ci_low", "change", "verdict"))
    assert conclusion.conclude(analysed(other)) == conclusion.conclude(analysed(document))


def test_on_a_machine_with_one_core_sharing_is_held_against_a_worker_alone():
    share, result = result_maker.GZIP["share"], result_maker.result(shape=(1, 1, 2))
    (one,) = [one for one in analysed(result).comparisons if one.effect == "cost_of_sharing_alone"]
    cost = smt_metrics.of_comparison(one.effect, one.aggregate, one)
    assert cost.low <= 1 - share + 0.002 and cost.high >= 1 - share - 0.002
    assert cost.value == pytest.approx(1 - share, abs=0.01)


def test_latencies_are_not_compared_between_different_numbers_of_workers():
    result = result_maker.result(workloads=OWN)
    declared(result)["aggregate"] = "max"
    assert {one["effect"] for one in compared(result)} == {"smt_off", "cost_of_sharing", "cost_of_one_cpu"}
    declared(result)["aggregate"] = "per_job"
    assert {"smt_yield", "second_core"} < {one["effect"] for one in compared(result)}


def test_a_metric_that_is_better_when_lower_is_turned():
    result = result_maker.result(workloads=OWN)
    for sample in result["samples"]:
        metric = sample["metrics"]["throughput"]
        metric.update(value=1000 / metric["value"], better="lower", unit="s")
    declared(result).update(better="lower", unit="s", aggregate="per_job")
    one = of_smt(result)
    assert one["ratio"] == pytest.approx(0.8, rel=0.01) and one["verdict"] == "loss"
    assert one["candidate_value"] > one["baseline_value"]


def test_a_failed_sample_drops_its_block_from_its_own_comparisons_alone():
    result = result_maker.result()
    key = ("all_threads", "smt_on", 3)
    (spoilt,) = [one for one in result["samples"] if (one["placement"], one["arm"], one["block"]) == key]
    spoilt.update(ok=False, metrics={}, error="gzip ended with status 1")
    dropped = {(c["effect"], c["placement"]): (c["n"], c["dropped_blocks"]) for c in compared(result)}
    affected = {key: counts for key, counts in dropped.items() if counts[1]}
    assert affected == {("smt_off", "all_threads"): (9, 1), ("smt_yield", "all_threads"): (9, 1)}
    (failure,) = cautions.failures(accepted(result))
    assert (failure.arm_title, failure.reason, failure.samples) == ("SMT on", "gzip ended with status 1", 1)


@pytest.mark.parametrize("value", [0, None, -1e-12])
def test_a_value_without_a_ratio_counts_as_failed(value):
    result = result_maker.result(blocks=6)
    for sample in result["samples"]:
        if sample["block"] == 0:
            sample["metrics"]["throughput"]["value"] = value
    assert {one["n"] for one in compared(result)} == {5}
    assert sum(failure.samples for failure in cautions.failures(accepted(result))) == 10


def with_further(**values):
    """A workload whose further metrics have these values in each arm."""
    rate = {"throughput": {"unit": "1/s", "better": "higher", "aggregate": "sum"}}
    further = {name: {"unit": f"{name}/s", "better": "lower", "aggregate": "max"} for name in values}
    own = {"title": "own", "metrics": {**rate, **further}, "model": lambda _arm, _spot, workers: [5.0] * len(workers)}
    own["further"] = lambda arm, _spot: {name: value[arm == "smt_off"] for name, value in values.items()}
    return result_maker.result(workloads={"own": own}, names=["all_threads"], blocks=8)


def test_a_further_metric_that_was_0_once_is_not_compared():
    """Its other blocks would be a choice by their values; what decides is compared all the same."""
    document = with_further(latency=(2.0, 1.0))
    assert "latency" in {one["metric"] for one in compared(document)}
    document["samples"][0]["metrics"]["latency"]["value"] = 0.0
    found = {one["metric"] for one in compared(document)}
    assert "latency" not in found and "throughput" in found


def test_a_further_metric_that_is_often_0_has_the_mean_of_all_its_samples():
    document = with_further(errors=(0.0, 0.0), faults=(0.0, 0.0))
    for sample in document["samples"]:
        in_block = {"smt_on": 80.0 if sample["block"] == 3 else 0.0, "smt_off": 1.0 + 18 * (sample["block"] % 2)}
        sample["metrics"]["errors"]["value"] = in_block[sample["arm"]]
    failed = next(sample for sample in document["samples"] if sample["arm"] == "smt_on" and sample["block"] == 0)
    failed.update(ok=False, error="exit status 1", metrics={}, workers=[])
    levels = {(one.metric, one.arm): one for one in measures.levels(accepted(document))}
    # The mean of the other arm is of the same kind, although it was never 0 there.
    expected = {("errors", "smt_on"): (pytest.approx(80 / 7), None, 7, 1), ("errors", "smt_off"): (10.0, None, 8, 0)}
    expected[("faults", "smt_on")] = (0.0, None, 7, 1)
    found = {key: (of.value, of.low, of.n, of.failed) for key, of in levels.items()}
    assert {key: found[key] for key in expected} == expected


def test_what_does_not_exist_is_listed_with_its_reason():
    skipped = [{"workload": "sysbench_cpu", "reason": "sysbench is not installed"}]
    absent = cautions.not_measured(accepted(result_maker.result(skipped=skipped)))
    found = {(one.workload, one.placement, one.arm): one.reason for one in absent}
    assert found["sysbench_cpu", None, None] == "sysbench is not installed"
    assert "no core has two threads" in found[None, "siblings", "smt_off"]


def looked(blocks, *looks, **options):
    """A result whose plan looked after these numbers of blocks, of 28 that were possible."""
    result = result_maker.result(blocks=blocks, **options)
    result["plan"].update(goal="decision", looks=[{"blocks": count, "share": count / 28} for count in looks])
    results.parse(json.dumps(result), "host1")
    return result


def test_an_interval_of_a_plan_that_looked_holds_for_all_looks():
    once, looked_at = (of_smt(looked(8, *looks, noise=0.02)) for looks in ((), (4, 5, 6, 8)))
    assert (once["looks"], looked_at["looks"]) == (0, 4)
    assert looked_at["interval_confidence"] > once["interval_confidence"]
    assert looked_at["ci_high"] / looked_at["ci_low"] > once["ci_high"] / once["ci_low"]
    assert looked_at["p_value"] == once["p_value"] and looked_at["p_adjusted"] > once["p_adjusted"]


def test_only_the_comparison_that_the_looks_are_at_is_corrected():
    """The ratios of all others are those of a plan that never looked."""
    switched = {"noise": 0.1, "workloads": EVEN, "names": ["single", "all_threads"]}
    for options, corrected in ((switched, "smt_off"), ({"noise": 0.3, "compared": False}, "cost_of_sharing")):
        once, looked_at = (compared(looked(8, *looks, seed=5, **options)) for looks in ((), (4, 5, 6, 8)))
        changed = [one for before, one in zip(once, looked_at) if one["ratio"] != before["ratio"]]
        assert [one["effect"] for one in changed] == [corrected]


def test_the_looks_at_a_workload_end_with_it_and_those_of_a_plan_with_its_blocks():
    result = looked(8, 4, 5, 6, 8, workloads={"gzip": result_maker.GZIP, "rested": result_maker.GZIP})
    result["samples"] = [one for one in result["samples"] if one["workload"] == "gzip" or one["block"] < 5]
    found = {
        one["workload"]: one["looks"]
        for one in map(host_comparisons.Comparison.described, host_comparisons.of_smt(analysed(result).comparisons))
    }
    assert found == {"gzip": 4, "rested": 2}
    # A plan that was ended from outside did not look at its last blocks: a last look spends the rest.
    looks = host_comparisons.looks_at(accepted(looked(10, 4, 6)), 10)
    assert [(look.blocks, look.share) for look in looks] == [(4, 4 / 28), (6, 6 / 28), (10, 1.0)]


@pytest.mark.parametrize("names", [("cpus_0_1", "cpus_0_2"), ("cpus_0_2", "cpus_0_1")])
def test_of_explicit_cpus_the_first_of_the_plan_is_the_baseline(names):
    """Not the one that comes first in a set, which differs from process to process."""
    found = [one for one in compared(result_maker.result(names=names, blocks=4)) if one["effect"] == "other_cpus"]
    assert {(one["baseline"]["placement"], one["candidate"]["placement"]) for one in found} == {names}


ARMS = {"smt_on": 1.0, "smt_off": 1.0, "isolated": 0.9, "threads_per_core_2": 1.0}
ALL = [*ARMS]


def of_many(**options):
    usual = {"arms": ARMS, "blocks": 6, "shape": (1, 2, 2), "names": ("single", "all_threads")}
    return result_maker.result(**{"workloads": {"gzip": result_maker.GZIP, **EVEN}, **usual, **options})


def of_all_arms(comparisons, placement="all_threads"):
    return [one for one in comparisons if (one["kind"], one["placement"]) == ("arm", placement)]


def pairs(comparisons):
    return list(dict.fromkeys((one["baseline"]["arm"], one["candidate"]["arm"]) for one in comparisons))


def test_all_arms_and_workloads_of_a_placement_are_one_family():
    comparisons = compared(of_many())
    for placement in ("all_threads", "single"):
        found = of_all_arms(comparisons, placement)
        assert pairs(found) == [("smt_on", arm) for arm in ALL[1:]]
        assert len(found) == 6 and {one["family"] for one in found} == {6}
        p_values = [one["p_value"] for one in found]
        assert [one["p_adjusted"] for one in found] == pytest.approx(paired.holm(p_values))


def test_on_demand_the_others_are_compared_among_each_other_in_the_same_family():
    found = of_all_arms(compared(of_many(), compare="all"))
    assert pairs(found) == list(itertools.combinations(ALL, 2))
    assert len(found) == 12 and {one["family"] for one in found} == {12}
    assert found[-2]["effect"] == "threads_per_core_2" and found[-2]["baseline"]["arm"] == "isolated"
    assert found[-2]["ratio"] == pytest.approx(1 / 0.9, rel=0.01)


def test_a_run_concerns_smt_when_it_asks_for_on_and_off():
    for arms, concerned in ((ALL[:2], True), (["as_found"], True), (["smt_on", "isolated"], False)):
        assert recorded.concerns_smt(accepted(of_many(arms=dict.fromkeys(arms, 1.0)))) is concerned
