# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What work costs in CPU seconds and joules."""

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons as host_comparisons,
    costs,
    host_analysis,
    measures,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from result_maker import accepted


def served(unit="requests/s", better="higher", aggregate="sum", seconds=(0.6, 0.4), **declared):
    """Workers that do 10 units a second each in 0.8 s, for more CPU seconds with SMT on than with it off."""
    workload = {
        "title": "service",
        "metrics": {"primary": {"unit": unit, "better": better, "aggregate": aggregate}},
        # As much work with half of the workers.
        "model": lambda arm, _spot, placed: [10.0 if arm == "smt_on" else 20.0] * len(placed),
    }
    document = result_maker.result(
        workloads={"own": workload}, shape=(1, 2, 2), blocks=6, noise=0.002, names=["all_threads"]
    )
    document["plan"]["workloads"][0].update(declared)
    for sample in document["samples"]:
        for worker in sample["workers"]:
            worker["cpu_seconds"] = seconds[0] / 2 if sample["arm"] == "smt_on" else seconds[1]
    return document


def cost_of(document):
    """The CPU seconds per unit of work of each sample by arm, with their unit."""
    found = {}
    for sample in costs.added(accepted(document)).samples:
        if "cpu_by_work" in sample.metrics:
            found.setdefault(sample.arm, []).append(sample.metrics["cpu_by_work"])
    return {arm: (sum(one.value for one in each) / len(each), each[0].unit) for arm, each in found.items()}


def test_the_same_throughput_for_a_third_fewer_cpu_seconds():
    document = served()
    result = costs.added(accepted(document))
    # Four workers of 0.3 s for 32 requests with SMT on, two of 0.4 s with SMT off.
    assert cost_of(document) == {
        "smt_on": (pytest.approx(1.2 / 32, rel=0.01), "CPU s/requests"),
        "smt_off": (pytest.approx(0.8 / 32, rel=0.01), "CPU s/requests"),
    }
    comparisons = host_comparisons.compare_host(result)
    (one,) = [one for one in comparisons if one["metric"] == costs.CPU_BY_WORK]
    assert one["change"] == pytest.approx(-1 / 3, abs=0.01) and (one["verdict"], one["better"]) == ("gain", "lower")
    assert not one["primary"] and one["aggregate"] == "mean_per_job"
    said = conclusion.conclude(host_analysis.HostAnalysis(result))["costs"]
    assert "the same primary, and its CPU seconds per unit of work change by −33." in said[0]
    assert said[0].endswith(": fewer threads are charged for the same time.")
    assert [one.metric for one in measures.levels(result)].count(costs.CPU_BY_WORK) == 2


def test_costs_leave_all_else_as_it_was():
    stored = accepted(studies.overhead())
    without = host_comparisons.compare_host(stored)
    found = host_comparisons.compare_host(costs.added(stored))
    assert [one for one in found if one["metric"] not in costs.METRICS] == without and len(found) > len(without)


def test_time_per_job_costs_the_cpu_time_of_a_job():
    document = studies.threads_2014()
    for sample in document["samples"]:
        cpu, wall = studies.THREADS[sample["placement"]]
        for worker in sample["workers"]:
            worker.update(cpu_seconds=cpu / len(sample["workers"]) / 1000, wall_seconds=wall / 1000)
    found = host_comparisons.compare_host(costs.added(accepted(document)))
    times = {one["effect"]: one["change"] for one in found if one["metric"] == costs.CPU_BY_WORK}
    # Two cores take no more CPU time for a job than one alone, two siblings half as much again.
    assert times["second_core"] == pytest.approx(0.003, abs=0.002)
    assert times["cost_of_sharing"] == pytest.approx(0.52, abs=0.01) == times["core_yield"]


@pytest.mark.parametrize(
    ("declared", "unit", "cost"),
    [
        ({"unit": "MB per second"}, "CPU s/MB", 0.03 * 1.25),
        ({"unit": "1/s"}, "CPU s", 0.03 * 1.25),
        ({"unit": "orders/min"}, "CPU s/orders", 0.03 * 1.25 * 60),
        # A time of a job by its declaration.
        ({"unit": "s", "better": "lower", "aggregate": "per_job"}, "CPU s/job", 0.3),
    ],
)
def test_units_of_work(declared, unit, cost):
    assert cost_of(served(**declared))["smt_on"] == (pytest.approx(cost, rel=0.01), unit)


@pytest.mark.parametrize(
    "declared",
    [
        # No rate, no time, and a time that is none of a job.
        {"unit": "users"},
        {"unit": "points", "better": "lower"},
        {"unit": "ms", "better": "lower", "aggregate": "max"},
        # Each worker may say the rate of all.
        {"aggregate": "mean"},
        # A server's CPU time is none of the workers'.
        {"server": True},
    ],
)
def test_where_the_work_or_its_cpu_time_is_not_known_there_is_no_cost(declared):
    assert cost_of(served(**declared)) == {}


def test_one_worker_without_its_cpu_time_leaves_its_sample_without_a_cost():
    document = served()
    document["samples"][0]["workers"][1]["cpu_seconds"] = None
    document["samples"][1]["workers"][0]["wall_seconds"] = None
    found = costs.added(accepted(document)).samples
    assert ["cpu_by_work" in sample.metrics for sample in found] == [False, False] + [True] * (len(found) - 2)


def test_joules_per_unit_of_work():
    # The energy is that of the machine, whoever did the work.
    document = served(server=True)
    for sample in document["samples"]:
        sample["telemetry"]["joules"] = 64.0 if sample["arm"] == "smt_on" else 48.0
    document["samples"][0]["telemetry"]["joules"] = None
    result = costs.added(accepted(document))
    assert ["joules_by_work" in sample.metrics for sample in result.samples] == [False] + [True] * 11
    (one,) = [one for one in host_comparisons.compare_host(result) if not one["primary"]]
    assert (one["metric"], one["unit"], one["n"], one["dropped_blocks"]) == ("joules_by_work", "J/requests", 5, 1)
    assert one["change"] == pytest.approx(-0.25, abs=0.01) and one["baseline_value"] == pytest.approx(2, rel=0.01)
