# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a result to comparisons and the answer: held against results whose truth is known."""

from __future__ import annotations

import json
import re

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._analysis import (
    comparisons as host_comparisons,
    measures,
    smt_metrics,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import advice, conclusion, wording
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion.of_cautions import cautions
from result_maker import accepted, analysed, compared

GAINING = {"rate": 200.0, "share": 0.40, "unit": "events/s", "title": "loser of sharing"}
EVEN = {"rate": 500.0, "share": 0.5, "unit": "events/s", "title": "sysbench cpu"}


def one(comparisons, effect, placement, workload="gzip"):
    found = [c for c in comparisons if (c["effect"], c["placement"], c["workload"]) == (effect, placement, workload)]
    assert len(found) == 1
    return found[0]


def answered(**arguments):
    result = result_maker.result(**arguments)
    return conclusion.conclude(analysed(result))


def test_the_truth_lies_in_every_interval():
    comparisons = compared(result_maker.result())
    share = result_maker.GZIP["share"]
    truth = {
        ("smt_off", "all_threads"): 1 / (2 * share),
        ("smt_off", "single"): 1.0,
        ("smt_off", "one_per_core"): 1.0,
        ("smt_off", "cores"): 1.0,
        ("smt_off", "same_cpu"): 1.0,
        ("cost_of_sharing", "siblings"): share,
        ("smt_yield", "all_threads"): 2 * share,
        ("cost_of_one_cpu", "same_cpu"): 0.5,
        ("second_core", "cores"): 2.0,
        ("core_yield", "siblings"): 2 * share,
    }
    assert {(c["effect"], c["placement"]) for c in comparisons} == set(truth)
    for (effect, placement), ratio in truth.items():
        comparison = one(comparisons, effect, placement)
        assert comparison["ci_low"] <= ratio * 1.002 and comparison["ci_high"] >= ratio * 0.998, (effect, placement)
        assert comparison["ratio"] == pytest.approx(ratio, rel=0.01)


def test_the_whole_machine_is_compared_though_it_was_measured_under_another_name():
    result = result_maker.result()
    assert result["plan"]["placements"]["smt_off"]["all_threads"]["same_as"] == "one_per_core"
    comparison = host_comparisons.of_smt(compared(result))[0]
    assert comparison["baseline"] == {"arm": "smt_on", "arm_title": "SMT on", "placement": "all_threads"}
    assert comparison["candidate"] == {"arm": "smt_off", "arm_title": "SMT off", "placement": "all_threads"}
    assert comparison["baseline_value"] == pytest.approx(8 * 62.5, rel=0.01)
    assert comparison["candidate_value"] == pytest.approx(4 * 100, rel=0.01)


@pytest.mark.parametrize("share", [0.5, 0.625, 1.0])
def test_on_a_machine_with_one_core_sharing_is_held_against_a_worker_alone(share):
    result = result_maker.result(shape=(1, 1, 2), workloads={"gzip": dict(result_maker.GZIP, share=share)})
    comparisons = compared(result)
    cost = smt_metrics.of_comparison("cost_of_sharing_alone", one(comparisons, "cost_of_sharing_alone", "siblings"))
    assert cost.low <= 1 - share + 0.002 and cost.high >= 1 - share - 0.002
    assert cost.value == pytest.approx(1 - share, abs=0.01)
    assert not [c for c in compared(result_maker.result()) if c["effect"] == "cost_of_sharing_alone"]


def test_latencies_are_not_compared_between_different_numbers_of_workers():
    result = result_maker.result(workloads={"own": result_maker.GZIP})
    result["plan"]["workloads"][0]["metrics"]["throughput"]["aggregate"] = "max"
    assert {c["effect"] for c in compared(result)} == {
        "smt_off",
        "cost_of_sharing",
        "cost_of_one_cpu",
    }
    result["plan"]["workloads"][0]["metrics"]["throughput"]["aggregate"] = "per_job"
    assert {"smt_yield", "second_core"} < {c["effect"] for c in compared(result)}


def test_a_metric_that_is_better_when_lower_is_turned():
    result = result_maker.result(workloads={"own": result_maker.GZIP})
    for sample in result["samples"]:
        sample["metrics"]["throughput"].update(
            value=1000 / sample["metrics"]["throughput"]["value"], better="lower", unit="s"
        )
    result["plan"]["workloads"][0]["metrics"]["throughput"].update(better="lower", unit="s", aggregate="per_job")
    comparison = host_comparisons.of_smt(compared(result))[0]
    assert comparison["ratio"] == pytest.approx(0.8, rel=0.01) and comparison["verdict"] == "loss"
    assert comparison["candidate_value"] > comparison["baseline_value"]


def test_with_smt_off_as_baseline_the_conclusion_is_the_same():
    result = result_maker.result()
    result["arms"] = [result_maker.arm("smt_off", "SMT off", True), result_maker.arm("smt_on", "SMT on", False)]
    usual = result_maker.result()
    assert [one[key] for one in compared(result) for key in ("effect", "ratio", "ci_low", "change", "verdict")] == [
        one[key] for one in compared(usual) for key in ("effect", "ratio", "ci_low", "change", "verdict")
    ]
    assert conclusion.conclude(analysed(result)) == conclusion.conclude(analysed(usual))


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_the_change_is_that_of_the_values_beside_it(better):
    """Where samples scatter, means differ by something else than the estimate by ranks:
    a table must not contradict itself.
    """
    result = result_maker.result(workloads={"own": result_maker.GZIP}, blocks=9, noise=0.2)
    result["plan"]["workloads"][0]["metrics"]["throughput"]["better"] = better
    for sample in result["samples"]:
        sample["metrics"]["throughput"]["better"] = better
        if sample["block"] == 4 and sample["arm"] == "smt_on":
            sample["metrics"]["throughput"]["value"] *= 30
    for found in compared(result):
        quotient = found["candidate_value"] / found["baseline_value"]
        assert (quotient if better == "higher" else 1 / quotient) == pytest.approx(found["ratio"])
        levels = [level.value for level in measures.levels(accepted(result))]
        assert min(levels) / 1.5 < found["baseline_value"] < 1.5 * max(levels)


def test_a_drift_that_dwarfs_the_effect_does_not_show():
    comparison = host_comparisons.of_smt(compared(result_maker.result(workloads={"own": EVEN}, drift=0.5, blocks=20)))[
        0
    ]
    assert comparison["ci_low"] <= 1 <= comparison["ci_high"]


def test_a_failed_sample_drops_its_block_from_its_own_comparisons_alone():
    result = result_maker.result()
    spoilt = next(
        s for s in result["samples"] if (s["placement"], s["arm"], s["block"]) == ("all_threads", "smt_on", 3)
    )
    spoilt.update(ok=False, metrics={}, error="gzip ended with status 1")
    comparisons = compared(result)
    assert {
        (c["effect"], c["placement"]): (c["n"], c["dropped_blocks"]) for c in comparisons if c["dropped_blocks"]
    } == {
        ("smt_off", "all_threads"): (9, 1),
        ("smt_yield", "all_threads"): (9, 1),
    }
    assert cautions.failures(accepted(result)) == [
        {
            "workload": "gzip",
            "placement": "all_threads",
            "arm": "smt_on",
            "arm_title": "SMT on",
            "reason": "gzip ended with status 1",
            "samples": 1,
        }
    ]
    assert any("1 of 100 samples failed" in words for words in conclusion.conclude(analysed(result))["cautions"])


@pytest.mark.parametrize("value", [0, -1, None, -1e-12])
def test_a_value_without_a_ratio_counts_as_failed(value):
    result = result_maker.result(blocks=6)
    for sample in result["samples"]:
        if sample["block"] == 0:
            sample["metrics"]["throughput"]["value"] = value
    assert {c["n"] for c in compared(result)} == {5}
    assert sum(failure["samples"] for failure in cautions.failures(accepted(result))) == 10


@pytest.mark.parametrize("zeros", [0, 1])
def test_a_further_metric_that_was_0_once_is_not_compared(zeros):
    """Its other blocks would be a choice by their values; what decides is compared all the same."""
    metrics = {
        "throughput": {"unit": "1/s", "better": "higher", "aggregate": "sum"},
        "latency": {"unit": "ms", "better": "lower", "aggregate": "max"},
    }
    own = {"title": "own", "metrics": metrics, "model": lambda _arm, _spot, workers: [5.0] * len(workers)}
    own["further"] = lambda arm, _spot: {"latency": 2.0 if arm == "smt_on" else 1.0}
    document = result_maker.result(workloads={"own": own}, names=["all_threads"])
    for sample in [one for one in document["samples"] if one["arm"] == "smt_off"][:zeros]:
        sample["metrics"]["latency"]["value"] = 0.0
    found = {comparison["metric"] for comparison in compared(document)}
    assert ("latency" in found) == (zeros == 0) and "throughput" in found


def test_a_further_metric_that_is_often_0_has_the_mean_of_all_its_samples():
    metrics = {
        "throughput": {"unit": "1/s", "better": "higher", "aggregate": "sum"},
        "errors": {"unit": "errors/s", "better": "lower", "aggregate": "sum"},
        "faults": {"unit": "faults/s", "better": "lower", "aggregate": "sum"},
    }
    own = {"title": "own", "metrics": metrics, "model": lambda _arm, _spot, workers: [5.0] * len(workers)}
    own["further"] = lambda _arm, _spot: {"errors": 0.0, "faults": 0.0}
    document = result_maker.result(workloads={"own": own}, names=["all_threads"], blocks=8)
    for sample in document["samples"]:
        in_block = {"smt_on": 80.0 if sample["block"] == 3 else 0.0, "smt_off": 1.0 + 18 * (sample["block"] % 2)}
        sample["metrics"]["errors"]["value"] = in_block[sample["arm"]]
    failed = next(sample for sample in document["samples"] if sample["arm"] == "smt_on" and sample["block"] == 0)
    failed.update(ok=False, error="exit status 1", metrics={}, workers=[])
    levels = measures.levels(accepted(document))
    assert [(one.arm, one.value, one.low, one.n, one.failed) for one in levels if one.metric == "errors"] == [
        ("smt_on", pytest.approx(80 / 7), None, 7, 1),
        # The mean of the other arm is of the same kind, although it was never 0 there.
        ("smt_off", 10.0, None, 8, 0),
    ]
    assert [(one.arm, one.value, one.failed) for one in levels if one.metric == "faults"] == [
        ("smt_on", 0.0, 1),
        ("smt_off", 0.0, 0),
    ]


def test_pairs_are_by_block_and_not_by_order():
    result = result_maker.result()
    result["samples"].reverse()
    assert compared(result) == compared(result_maker.result())


def test_levels_stand_in_the_order_a_person_reads():
    levels = measures.levels(accepted(result_maker.result()))
    assert [(level.placement, level.arm) for level in levels] == [
        (placement, arm)
        for placement in result_maker.ORDER
        for arm in ("smt_on", "smt_off")
        if (placement, arm) != ("siblings", "smt_off")
    ]
    whole = next(level for level in levels if (level.placement, level.arm) == ("all_threads", "smt_off"))
    assert whole.measured_as == "one_per_core" and whole.low < 400 * 1.005 and whole.high > 400 * 0.995


def test_what_does_not_exist_is_listed_with_its_reason():
    absent = cautions.not_measured(
        accepted(result_maker.result(skipped=[{"workload": "sysbench_cpu", "reason": "sysbench is not installed"}]))
    )
    assert {
        "workload": "sysbench_cpu",
        "placement": None,
        "arm": None,
        "arm_title": None,
        "reason": "sysbench is not installed",
    } in absent
    assert {
        "workload": None,
        "placement": "siblings",
        "arm": "smt_off",
        "arm_title": "SMT off",
        "reason": "no core has two threads that are online, allowed to this process and not isolated",
    } in absent


@pytest.mark.parametrize(
    ("workloads", "noise", "recommendation", "words"),
    [
        (
            {"gzip": result_maker.GZIP},
            0.005,
            "on",
            "Leave SMT on: with every online thread busy, turning it off changes gzip of a fixed stream by −20",
        ),
        (
            {"loser": GAINING},
            0.005,
            "off",
            "Turn SMT off: with every online thread busy, that changes loser of sharing by +25",
        ),
        (
            {"even": EVEN},
            0.001,
            "either",
            (
                "For performance SMT may be on or off here, and with it on the kernel calls this host vulnerable to"
                " mds: with every online thread busy, sysbench cpu stays within 1 % either way."
            ),
        ),
        ({"gzip": result_maker.GZIP, "even": EVEN}, 0.001, "on", "sysbench cpu stays within 1 % either way"),
        ({"gzip": result_maker.GZIP, "loser": GAINING}, 0.005, "by_workload", "It depends on the work"),
        (
            {"even": EVEN},
            0.05,
            "undecided",
            "Not decided: with every online thread busy, sysbench cpu may change by anything from ",
        ),
        (
            {"gzip": result_maker.GZIP, "even": EVEN},
            0.05,
            "undecided",
            "turning it off changes gzip of a fixed stream by −2",
        ),
    ],
)
def test_the_answer_follows_the_evidence(workloads, noise, recommendation, words):
    actual = answered(workloads=workloads, noise=noise)
    assert actual["recommendation"] == recommendation
    assert words in actual["sentence"]
    assert (actual["next"] is not None) == (recommendation == "undecided")


def test_too_few_blocks_decide_nothing_however_large_the_effect():
    for blocks in (1, 2, 3):
        actual = answered(blocks=blocks, noise=0.0001)
        assert actual["recommendation"] == "undecided"
        assert f"has {blocks} block{'s' if blocks > 1 else ''} and needs at least 4" in actual["sentence"]


def test_what_more_to_measure_grows_with_the_square_of_what_is_missing():
    undecided = {"ci_low": 0.96, "ci_high": 1.04, "ratio": 1.0, "margin": 0.01, "n": 10}
    few = advice.blocks_needed(undecided)
    many = advice.blocks_needed({**undecided, "ci_low": 0.92, "ci_high": 1.087})
    assert 10 * 3.5**2 < few < 10 * 4.5**2
    assert many == pytest.approx(4 * few, rel=0.1)
    assert advice.blocks_needed({**undecided, "ci_low": None}) is None


def test_more_blocks_are_not_asked_for_where_they_would_not_help():
    wild = {
        "ci_low": 1e-304,
        "ci_high": 1e304,
        "ratio": 1.0,
        "margin": 0.01,
        "n": 4,
        "metric": "throughput",
        "verdict": "inconclusive",
        "confounded": False,
    }
    assert (
        "measure on a quieter host" in advice.more_to_measure(accepted(result_maker.result(blocks=1)), [wild])["text"]
    )


def test_what_more_to_measure_is_said_in_blocks_and_time():
    needs = answered(workloads={"even": EVEN}, noise=0.05)["next"]
    assert needs.startswith("To decide, measure about ") and "at the 10 s a block took here" in needs


def test_a_host_that_others_keep_busy_is_called_so():
    result = result_maker.result(compared=False, reason="no core of this host has a second thread", shape=(1, 2, 1))
    for sample in result["samples"]:
        for worker in sample["workers"]:
            worker["cpu_seconds"] = 0.3 * worker["wall_seconds"]
    actual = conclusion.conclude(analysed(result))
    busy = (
        "too busy with other work to be measured well (load average before the run: 0.12): in the median a worker got"
        " 30 %"
    )
    assert any(busy in words for words in actual["cautions"])
    assert "tells nothing of sharing a core" in actual["sentence"]


def test_workers_that_share_cpus_or_pause_do_not_make_a_host_busy():
    """Two workers on one CPU get half of it, as do more streams than CPUs,
    and a load level below the highest pauses on purpose.
    """
    levels = {"name": "load", "unit": "of each CPU", "values": [0.25, 1.0], "per_worker": True}
    work = {"work": {**result_maker.GZIP, "model": lambda _arm, _spot, placed: [1.0] * len(placed)}}
    result = result_maker.result(workloads=work, blocks=4, names=["same_cpu", "free_8"], shape=(1, 2, 2))
    own = {"own": result_maker.GZIP}
    paused = result_maker.result(workloads=own, blocks=4, names=["one_per_core"], shape=(1, 2, 2))
    paused["plan"]["workloads"][0]["parameter"] = levels
    for sample in paused["samples"]:
        sample["parameter"] = 0.25
    for document in (result, paused):
        for sample in document["samples"]:
            for worker in sample["workers"]:
                worker["cpu_seconds"] = 0.3 * worker["wall_seconds"]
        assert not any("too busy" in words for words in conclusion.conclude(analysed(document))["cautions"])
    for sample in paused["samples"]:
        sample["parameter"] = 1.0
    assert any("too busy" in words for words in conclusion.conclude(analysed(paused))["cautions"])


def test_cores_that_a_hypervisor_calls_two_and_that_are_one():
    result = result_maker.result(compared=False, reason="no SMT", shape=(1, 2, 1))
    for sample in result["samples"]:
        if sample["placement"] == "cores":
            sample["metrics"]["throughput"]["value"] *= 78.0 / 119.0
    actual = conclusion.conclude(analysed(result))
    assert "Two workers on two cores did 1.31 times" in actual["sentence"]
    assert "as if they shared a core, although the topology calls them two" in actual["sentence"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            {"reason": "switching was not asked for"},
            (
                "As it is now, all threads combined did 1.25 times (1.25 to 1.25) the work of one worker per core (gzip"
                " of a fixed stream). SMT on and off were not compared here: switching was not asked for."
            ),
        ),
        (
            {"reason": "this host has no SMT to switch (smt/control reads notsupported)", "shape": (1, 2, 1)},
            "so they do not share a core.",
        ),
        (
            {"reason": "no core of this host has a second thread.", "shape": (1, 1, 1)},
            "every online thread busy: 100.1 MB/s (99.75 to 100.5). SMT on and off were not compared here: no core of",
        ),
        ({"samples": []}, "Nothing could be measured here"),
        (
            {"reason": "too few blocks to say more", "blocks": 3},
            "too few blocks to say more. 3 of at least 4 blocks say nothing of sharing a core yet.",
        ),
    ],
)
def test_without_a_comparison_the_sentence_says_why(arguments, words):
    actual = answered(compared=False, **arguments)
    assert actual["recommendation"] == "not_compared" and words in actual["sentence"]


def test_the_plan_compared_but_no_pair_is_left():
    actual = answered(samples=[])
    assert (
        actual["recommendation"] == "not_compared"
        and "no block has good samples with every online thread busy on both sides" in actual["sentence"]
    )


def test_costs_and_cautions():
    result = result_maker.result(outcome="interrupted", message="lost the host.")
    result["environment"]["hypervisor"] = "kvm"
    result["samples"][0]["telemetry"]["steal"] = 0.25
    actual = conclusion.conclude(analysed(result))
    assert any(re.search("a worker's work changes by −3[78]", words) for words in actual["costs"])
    assert any("vulnerable to mds;" in words for words in actual["costs"]) and not any(
        "meltdown" in words for words in actual["costs"]
    )
    cautions = " ".join(actual["cautions"])
    assert (
        "The run was interrupted: lost the host. What" in cautions
        and "up to 25 % of the CPU time" in cautions
        and "guest (kvm)" in cautions
    )


@pytest.mark.parametrize(
    ("share", "text"), [(0.2, "20 %"), (0.013, "1.3 %"), (0.02, "2 %"), (0.0, "0 %"), (1.5, "150 %")]
)
def test_percent(share, text):
    assert wording.percent(share) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.8, "−20 %"), (1.013, "+1.3 %"), (1.0, "±0 %"), (1.0001, "±0 %"), (2.5, "+150 %")]
)
def test_signed(ratio, text):
    assert wording.signed(ratio) == text


MEASURED = {
    "cpus": "0-7",
    "singles": "",
    "unclear": "",
    "rounds": 9,
    "seconds": 3.0,
    "confidence": 0.95,
    "measured_at": "2026-01-02T03:04:05Z",
    "ratios": [],
}


@pytest.mark.parametrize(
    ("measured", "actual"),
    [
        (
            {"agrees_with_kernel": False, "pairs": ["0-1"]},
            "By measuring, CPUs 0-1 share a core; the kernel says otherwise.",
        ),
        ({"agrees_with_kernel": True, "pairs": []}, None),
        ({"agrees_with_kernel": None, "pairs": []}, "is not clear"),
        (None, "was not measured"),
    ],
)
def test_whether_a_guests_siblings_can_be_believed_is_said(measured, actual):
    result = result_maker.result()
    result["facts"]["measured"] = measured and {**MEASURED, **measured}
    result["environment"]["hypervisor"] = "kvm"
    cautions = conclusion.conclude(analysed(result))["cautions"]
    assert (actual in cautions[0]) if actual else not cautions


def test_what_a_process_that_asks_for_too_much_got_is_said():
    result = result_maker.result(
        observations=[
            {"arm": "as_found", "asked_bytes": 365 * 2**20, "overcommit_test": {"outcome": "oom_killed"}},
            {"arm": "overcommit_strict", "asked_bytes": 365 * 2**20, "overcommit_test": {"outcome": "enomem"}},
            {"arm": "overcommit_strict", "asked_bytes": None, "overcommit_test": None},
            {"arm": "x", "overcommit_test": {"outcome": "?"}},
        ]
    )
    result["arms"].append(result_maker.arm("overcommit_strict", "strict overcommit", False))
    result["arms"].append(result_maker.arm("as_found", "as found", False))
    actual = [words for words in conclusion.conclude(analysed(result))["costs"] if "365 MiB" in words]
    assert (
        len(actual) == 2
        and "as found: it was promised them, and killed" in actual[0]
        and "strict overcommit: it was refused at once (ENOMEM)" in actual[1]
    )


# Planned looks


def looked(blocks, *looks, **options):
    """A result whose plan looked after these numbers of blocks, of 28 that were possible."""
    result = result_maker.result(blocks=blocks, **options)
    result["plan"].update(goal="decision", looks=[{"blocks": count, "share": count / 28} for count in looks])
    results.parse(json.dumps(result), "host1")
    return result


def of_arms(result):
    return next(one for one in compared(result) if one["kind"] == "arm" and one["placement"] == "all_threads")


def test_an_interval_of_a_plan_that_looked_holds_for_all_looks():
    once, looked_at = of_arms(looked(8, noise=0.02)), of_arms(looked(8, 4, 5, 6, 8, noise=0.02))
    assert (once["looks"], looked_at["looks"]) == (0, 4)
    assert looked_at["interval_confidence"] > once["interval_confidence"]
    assert looked_at["ci_high"] / looked_at["ci_low"] > once["ci_high"] / once["ci_low"]
    assert looked_at["p_value"] == once["p_value"] and looked_at["p_adjusted"] > once["p_adjusted"]


def test_only_the_comparison_that_the_looks_are_at_is_corrected():
    """The ratios of all others are those of a plan that never looked."""
    even = {"even": EVEN}
    once, looked_at = (compared(looked(8, *looks, noise=0.1, workloads=even, seed=5)) for looks in ((), (4, 5, 6, 8)))
    changed = {
        (one["kind"], one["effect"], one["placement"])
        for before, one in zip(once, looked_at)
        if one["ratio"] != before["ratio"]
    }
    assert changed == {("arm", "smt_off", "all_threads")}


def test_without_other_arms_looks_are_at_siblings_against_cores():
    one_arm = {"compared": False, "noise": 0.3, "seed": 5}
    once, looked_at = (compared(looked(8, *looks, **one_arm)) for looks in ((), (4, 5, 6, 8)))
    changed = {
        (one["kind"], one["effect"], one["placement"])
        for before, one in zip(once, looked_at)
        if one["ratio"] != before["ratio"]
    }
    assert changed == {("placement", "cost_of_sharing", "siblings")}


def test_blocks_after_the_last_look_are_a_last_look_that_spends_the_rest():
    """A plan that was ended from outside did not look at its last blocks."""
    result = looked(10, 4, 6)
    assert [(look.blocks, look.share) for look in host_comparisons.looks_at(accepted(result), 10)] == [
        (4, 4 / 28),
        (6, 6 / 28),
        (10, 1.0),
    ]


def test_a_workload_that_rested_has_the_looks_until_then():
    result = looked(8, 4, 5, 6, 8, workloads={"gzip": result_maker.GZIP, "rested": result_maker.GZIP})
    result["samples"] = [sample for sample in result["samples"] if sample["workload"] == "gzip" or sample["block"] < 5]
    found = {
        one["workload"]: one["looks"]
        for one in compared(result)
        if one["kind"] == "arm" and one["placement"] == "all_threads"
    }
    assert found == {"gzip": 4, "rested": 2}


def test_the_page_says_that_the_plan_looked_and_why_it_stopped():
    result = looked(8, 4, 5, 6, 8, noise=0.05, workloads={"even": EVEN})
    result["plan"]["stopped"] = "futile"
    said = conclusion.conclude(analysed(result))
    assert (
        "The plan looked at its samples 4 times; intervals and verdicts hold over all planned looks." in said["basis"]
    )
    assert said["next"].startswith(
        "The plan stopped early: the rest of its budget would hardly have decided this. To decide, measure about "
    )


def test_a_result_of_the_maximum_size_is_not_helped_by_more_blocks():
    result = looked(8, 4, 5, 6, 8, noise=0.05, workloads={"even": EVEN})
    result["plan"]["stopped"] = "size"
    said = conclusion.conclude(analysed(result))["next"]
    assert (
        said.startswith("The result had its maximum size before this was decided: measure fewer workloads")
        and "blocks fit" in said
    )


def test_the_cost_of_switching_is_named():
    result = result_maker.result(blocks=4)
    result["plan"]["switches"] = {"smt_on": {"count": 3, "seconds": 0.412}, "smt_off": {"count": 2, "seconds": 1.5}}
    result["plan"]["settle_seconds"] = 1.0
    said = conclusion.conclude(analysed(result))["costs"]
    assert (
        "A switch took, in the median, 0.41 s to SMT on (3 times) and 1.5 s to SMT off (2 times), and 1 s of pause"
        " after each." in said
    )


@pytest.mark.parametrize("names", [("cpus_0_1", "cpus_0_2"), ("cpus_0_2", "cpus_0_1")])
def test_of_explicit_cpus_the_first_of_the_plan_is_the_baseline(names):
    """Not the one that comes first in a set, which differs from process to process."""
    found = [one for one in compared(result_maker.result(names=names, blocks=4)) if one["effect"] == "other_cpus"]
    assert {(one["baseline"]["placement"], one["candidate"]["placement"]) for one in found} == {names}
