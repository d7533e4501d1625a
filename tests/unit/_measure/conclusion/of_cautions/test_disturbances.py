# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one arm alone had beside its work, and typical values, means and tails that say opposite things."""

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion.of_cautions import disturbances, spread
from result_maker import analysed

QUIET = {"throttled": 0, "frequency": {"0": 2900.0}}


def cautions(disturbed, cpu_seconds=None, **telemetry):
    """The cautions where ``disturbed`` chooses the samples that had something beside their work."""
    document = result_maker.result(shape=(1, 4, 2))
    for sample in document["samples"]:
        chosen = disturbed(sample)
        sample["telemetry"].update({**QUIET, **(telemetry if chosen else {})})
        for worker in sample["workers"] if chosen and cpu_seconds else ():
            worker["cpu_seconds"] = cpu_seconds
    analysis = analysed(document)
    found = list(disturbances.cautions(analysis.result, analysis.comparisons))
    assert set(found[:3]) <= set(conclusion.conclude(analysis).cautions)
    return found


@pytest.mark.parametrize(
    ("change", "clause"),
    [
        ({"steal": 0.09}, "with SMT off the hypervisor took 9 % of the CPU time, with SMT on 0 %"),
        ({"throttled": 3}, "with SMT off cores were throttled in 100 % of the samples, with SMT on in 0 %"),
        ({"frequency": {"0": 2100.0}}, "with SMT off the CPUs ran at 2100 MHz, with SMT on at 2900"),
        ({"cpu_seconds": 0.6}, "with SMT off other processes used 1.0 CPUs, with SMT on 0.1"),
        ({"cpu_seconds": 0.6}, "with SMT off a worker got 75 % of its CPU's time, with SMT on 99 %"),
    ],
)
def test_what_one_arm_alone_had(change, clause):
    found = cautions(lambda sample: sample["arm"] == "smt_off", **change)
    assert found[0].startswith("gzip of a fixed stream, SMT off against SMT on with ") and clause in found[0], found


@pytest.mark.parametrize("change", [{"steal": 0.3}, {"throttled": 5}, {"frequency": {"0": 1e3}}, {}])
def test_what_is_not_of_one_arm_is_no_caution_of_a_comparison(change):
    assert cautions(lambda _sample: True, **change) == []
    assert cautions(lambda sample: (sample["arm"], sample["block"]) == ("smt_off", 0), throttled=1) == []
    # Each idle CPU is busy for 2 %, and with SMT on there are twice as many of them.
    analysis = analysed(result_maker.result(shape=(2, 24, 2), blocks=4, names=("single", "all_threads")))
    assert not disturbances.cautions(analysis.result, analysis.comparisons)


def test_work_of_others_is_seen_where_workers_end_at_different_times():
    """A busy process takes what the workers leave that were done first, and each of these had a CPU for itself."""
    document = result_maker.result(blocks=6, noise=0.002, shape=(1, 2, 2), names=["all_threads"])
    for sample in document["samples"]:
        for place, worker in enumerate(sample["workers"]):
            worker["wall_seconds"] = worker["cpu_seconds"] = 1.2 if place < len(sample["workers"]) / 2 else 0.4
        sample["telemetry"]["cpu_usage"] = dict.fromkeys(sample["telemetry"]["cpu_usage"], 0.9)
    used = disturbances.work_of_others(result_maker.accepted(document))
    assert used is not None and used > 0.5


def answers(typical, tail=(9.0, 9.0), slow=0, slowest=3.2, blocks=12):
    """Answers with SMT on and off: their typical values, their tails, and how many blocks of SMT off are slow."""
    aggregates = (("latency_median", "mean"), ("latency_p99", "max"))
    workload = {
        "title": "answers of my service",
        "metrics": {name: {"unit": "ms", "better": "lower", "aggregate": of} for name, of in aggregates},
        "model": lambda arm, _spot, placed: [typical[arm == "smt_off"]] * len(placed),
        "further": lambda arm, _spot: {"latency_p99": tail[arm == "smt_off"]},
    }
    usual = {"shape": (1, 2, 2), "noise": 0.002, "names": ["all_threads"]}
    document = result_maker.result(workloads={"service": workload}, blocks=blocks, **usual)
    for sample in [one for one in document["samples"] if one["arm"] == "smt_off"][:slow]:
        sample["metrics"]["latency_median"]["value"] = slowest
    return document


def test_a_typical_value_that_falls_while_the_mean_or_the_tail_rises():
    document = answers((1.205, 1.170), slow=2)
    (found,) = spread.find(analysed(document).comparisons)
    assert found.against == "mean" and found.change == pytest.approx(-0.028, abs=0.004)
    assert found.against_change == pytest.approx(0.252, abs=0.005)
    _of_each, caution = conclusion.conclude(analysed(document)).cautions
    assert "the typical latency_median falls by 2.8 %, the mean rises by 25 %." in caution
    (found,) = spread.find(analysed(answers((1.2, 1.1), tail=(3.0, 3.3))).comparisons)
    assert (found.metric, found.against) == ("latency_median", "latency_p99")
    assert found.change < 0 < found.against_change == pytest.approx(0.1, abs=0.01)


def test_what_agrees_is_not_named():
    # The tail and the mean rise with the typical value, or by less than the margin.
    assert spread.find(analysed(answers((1.1, 1.2), tail=(3.0, 3.3), slow=2)).comparisons) == []
    assert spread.find(analysed(answers((1.2, 1.1), tail=(3.0, 3.01))).comparisons) == []
    # One slow block leaves the typical value undecided, or the mean on its side.
    assert spread.find(analysed(answers((1.2, 1.1), slow=1, blocks=40)).comparisons) == []
