# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures that others published, and what the derived measures must read from them (docs/measures.md names the
sources).
"""

import math

import pytest
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    paired as paired_module,
    smt_metrics,
    usage,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from result_maker import accepted, analysed, compared


def test_what_two_virtual_cpus_share_although_the_kernel_says_nothing():
    # Pythian 2014: MB/s of each stream.
    assert [smt_metrics.what_two_share(each, 119) for each in (59.5, 78.0, 119)] == ["cpu", "core", "nothing"]
    # Measuring Intel Hyper-Thread overhead, 2016.
    assert [smt_metrics.what_two_share(each, 100) for each in (60, 70)] == ["core", "core"]
    # Linux: CPU, core, HyperThread, 2014: by wall times in ms, the average of two threads.
    found = [smt_metrics.what_two_share(1 / wall, 1 / 10_716) for wall in (16_324, 10_750, 21_475)]
    assert found == ["core", "nothing", "cpu"]


@pytest.mark.parametrize(("each", "alone", "of_own_core"), [(78.0, 119, 119), (1 / 16_324, 1 / 10_716, 1 / 10_750)])
def test_yield_of_a_shared_core(each, alone, of_own_core):
    assert round(smt_metrics.smt_yield(2 * each, alone), 2) == 1.31
    assert round(smt_metrics.cost_of_sharing(each, of_own_core), 2) == 0.34


def test_of_one_block_there_is_no_interval():
    found = smt_metrics.of_comparison("cost_of_sharing", "sum", paired_module.compare([100], [60]))
    assert (found.value, found.low, found.high) == (pytest.approx(0.4), None, None)


# Linux: CPU, core, HyperThread, 2014.
def test_cpu_time_grows_on_siblings_and_wall_time_alone_on_one_cpu():
    document = studies.threads_2014()
    placements = [one for one in compared(document) if one["kind"] == "placement"]
    found = {
        (one["effect"], one["metric"]): (one["candidate_value"] / one["baseline_value"], one["verdict"])
        for one in placements
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
    whole = [one for one in analysed(document).comparisons if one.placement == "all_threads"]
    on = {one.metric: one.turned().described() for one in whole}
    rate, latency = on["throughput"], on["latency"]
    changed = latency["candidate_value"] / latency["baseline_value"]
    assert (rate["ratio"], changed) == pytest.approx((1.25, 1.6), rel=0.005)
    assert (rate["verdict"], latency["verdict"]) == ("gain", "loss")
    assert conclusion.conclude(analysed(document)).recommendation == "on"


def test_fourteen_more_requests_by_usage_and_four_in_truth():
    # The blog's sketch gives the two differences; a core that serves 6 requests at 30 % usage and 10 at most has them.
    room = smt_metrics.headroom(6, 0.3, 10)
    assert (round(room["by_usage"]), round(room["real"])) == (14, 4)
    result = accepted(studies.arm())
    light = next(one for one in usage.of_workload(result, result.samples, "requests").values() if one.parameter == 0.3)
    assert light.rate * light.by_usage.value == pytest.approx(14, rel=0.01)
    assert light.rate * light.real.value == pytest.approx(4, rel=0.02)
    assert light.real.low < 4 / 6 < light.real.high < light.by_usage.low


def test_figures_that_are_none_are_refused():
    refused = {"cost_of_sharing": (0, 1), "smt_yield": (1, math.nan), "gain_of_switching_off": (None, 1)}
    refused.update(achievement_rate=(1, True), core_cpi=(1, []), headroom=(1, 1.5, 2), most_clients=({1: "2"}, 1))
    for figure, given in refused.items():
        with pytest.raises(smt_metrics.SmtMetricsError):
            getattr(smt_metrics, figure)(*given)
