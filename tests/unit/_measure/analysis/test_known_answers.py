# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures that others published, and what the derived measures must read from them (docs/measures.md names the
sources).
"""

import math

import pytest
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    paired as paired_module,
    smt_metrics,
    usage,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from result_maker import accepted, analysed, compared


def test_hp_streams_on_four_cores():
    for test, percent in (("none", 15), ("inner", 47)):
        on, off = studies.HP[test]
        # A stream's rate is the inverse of its time. Up to one stream a core it makes no difference.
        assert all(abs(off[n] / on[n] - 1) < 0.01 for n in range(4))
        # The gain in time of switching off, as the paper gives it.
        assert round(100 * smt_metrics.gain_of_switching_off(1 / on[4], 1 / off[4])) == percent


def test_users_under_the_response_time_limit():
    with_ht = smt_metrics.most_clients({550: 0.3, 650: 1.99}, 2.0)
    without = smt_metrics.most_clients({550: 1.99, 650: math.inf}, 2.0)
    assert (with_ht, without) == (650, 550)
    assert round(100 * (smt_metrics.smt_yield(with_ht, without) - 1)) == 18


@pytest.mark.parametrize(
    ("each", "alone", "shares"),
    [
        # Pythian 2014: MB/s of each stream.
        (59.5, 119, "cpu"),
        (78.0, 119, "core"),
        (119, 119, "nothing"),
        # Measuring Intel Hyper-Thread overhead, 2016.
        (60, 100, "core"),
        (70, 100, "core"),
        # Linux: CPU, core, HyperThread, 2014: by wall times in ms, the average of two threads.
        *((1 / wall, 1 / 10_716, shares) for shares, wall in (("core", 16_324), ("nothing", 10_750), ("cpu", 21_475))),
    ],
)
def test_what_two_virtual_cpus_share_although_the_kernel_says_nothing(each, alone, shares):
    assert smt_metrics.what_two_share(each, alone) == shares


@pytest.mark.parametrize(
    ("both", "each", "alone", "of_own_core", "gain", "cost"),
    [(2 * 78.0, 78.0, 119, 119, 1.31, 0.34), (2 / 16_324, 1 / 16_324, 1 / 10_716, 1 / 10_750, 1.31, 0.34)],
)
def test_yield_of_a_shared_core(both, each, alone, of_own_core, gain, cost):
    assert round(smt_metrics.smt_yield(both, alone), 2) == gain
    assert round(smt_metrics.cost_of_sharing(each, of_own_core), 2) == cost


def test_pythian_two_placements_by_verdict():
    unpinned = [float(rate) for rate, count in studies.PYTHIAN_FREE.items() for _time in range(count)]
    comparison = paired_module.compare(unpinned, [78.0] * 40)
    assert comparison["verdict"] == "loss"
    cost = smt_metrics.of_comparison("cost_of_sharing", {**comparison, "better": "higher"})
    assert cost.low < cost.value < cost.high and cost.value == pytest.approx(1 / 3, abs=0.01)
    # Of one block there is no interval.
    single = {**paired_module.compare([100], [60]), "better": "higher"}
    assert smt_metrics.of_comparison("cost_of_sharing", single) == smt_metrics.SmtMetric(
        "cost of sharing", pytest.approx(0.4), None, None, (pytest.approx(-0.4), None, None)
    )


# Linux: CPU, core, HyperThread, 2014.
def test_cpu_time_grows_on_siblings_and_wall_time_alone_on_one_cpu():
    document = studies.threads_2014()
    found = {
        (one["effect"], one["metric"]): (one["candidate_value"] / one["baseline_value"], one["verdict"])
        for one in compared(document)
        if one["kind"] == "placement"
    }
    for effect, metric, ratio, verdict in (
        ("cost_of_sharing", "cpu_time", 1.52, "loss"),
        ("cost_of_sharing", "wall_time", 1.52, "loss"),
        ("cost_of_one_cpu", "cpu_time", 1.00, "equivalent"),
        ("cost_of_one_cpu", "wall_time", 2.00, "loss"),
        # Two cores take the CPU time of two jobs.
        ("second_core", "cpu_time", 1.00, "equivalent"),
    ):
        assert found[effect, metric] == (pytest.approx(ratio, abs=0.01), verdict), (effect, metric)
    # A sum of it is not compared between one worker and two.
    document["plan"]["workloads"][0]["metrics"]["cpu_time"]["aggregate"] = "sum"
    effects = {one["effect"] for one in compared(document) if one["metric"] == "cpu_time"}
    assert effects == {"cost_of_sharing", "cost_of_one_cpu"}


# Measuring Intel Hyper-Thread overhead, 2016.
def test_a_quarter_more_throughput_at_more_than_half_as_much_again_of_latency():
    assert smt_metrics.smt_yield(5, 4) == 1.25
    document = studies.overhead()
    on = {
        one["metric"]: host_comparisons.turned(one) for one in compared(document) if one["placement"] == "all_threads"
    }
    rate, latency = on["throughput"], on["latency"]
    assert rate["ratio"] == pytest.approx(1.25, rel=0.005)
    assert latency["candidate_value"] / latency["baseline_value"] == pytest.approx(1.6, rel=0.005)
    assert (rate["verdict"], latency["verdict"]) == ("gain", "loss")
    found = conclusion.conclude(analysed(document))
    assert found["recommendation"] == "on" and "latency changes by −37.4 % (−37.6 to −37.3 %), b" in found["costs"][0]


def test_core_cpi_of_two_threads():
    cycles, instructions = 1_000_000, (750_000, 500_000)
    assert [round(smt_metrics.cpi(cycles, count), 2) for count in instructions] == [1.33, 2.0]
    assert round(smt_metrics.core_cpi(cycles, instructions), 2) == 0.80
    assert round(1 / smt_metrics.cpi(1_424_306_903_878, 550_084_970_527), 2) == 0.39


def test_fourteen_more_requests_by_usage_and_four_in_truth():
    # The blog's sketch gives the two differences; a core that serves 6 requests at 30 % usage and 10 at most has them.
    room = smt_metrics.headroom(6, 0.3, 10)
    assert (round(room["by_usage"]), round(room["real"])) == (14, 4)
    result = accepted(studies.arm())
    light = next(one for one in usage.of_workload(result, result.samples, "requests").values() if one.parameter == 0.3)
    assert light.rate * light.by_usage.value == pytest.approx(14, rel=0.01)
    assert light.rate * light.real.value == pytest.approx(4, rel=0.02)
    assert light.real.low < 4 / 6 < light.real.high < light.by_usage.low


@pytest.mark.parametrize(
    ("figure", "given"),
    [
        (smt_metrics.cost_of_sharing, (0, 1)),
        (smt_metrics.smt_yield, (1, math.nan)),
        (smt_metrics.gain_of_switching_off, (None, 1)),
        (smt_metrics.achievement_rate, (1, True)),
        (smt_metrics.core_cpi, (1, [])),
        (smt_metrics.headroom, (1, 1.5, 2)),
        *((smt_metrics.most_clients, (given, 1)) for given in ({}, {1: "2"})),
    ],
)
def test_figures_that_are_none_are_refused(figure, given):
    with pytest.raises(smt_metrics.SmtMetricsError):
        figure(*given)
