# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""CPU usage against work: what usage promises and what there is, on made machines whose second threads add nothing,
a quarter, or everything.
"""

import itertools
import random
import re

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import usage
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import (
    telemetry as telemetry_part,
    workloads as workloads_part,
)
from result_maker import accepted, compared

# More than two: on a machine of two cores, one worker per core is measured as two workers on two cores.
CORES = 4
LEVELS = (0.25, 0.5, 0.75, 1.0)


def machine(second_threads, blocks=6, scatter=0.002):
    """A result of own_levels on a host of four cores with two threads each,
    whose second threads add so much work to that of the first.

    A worker alone does 100 a second and is busy for its level of the time. Two on one core do 100 x (1 +
    second_threads) at most.
    """
    document = result_maker.result(shape=(1, CORES, 2), blocks=1)
    template, workload = document["samples"][0], document["plan"]["workloads"][0]
    parameter = {"name": "load", "unit": "of each CPU", "values": list(LEVELS), "per_worker": True}
    workload.update(name="own_levels", title="integer work at rising load", parameter=parameter)
    chance, metric = random.Random(4), workload["primary"]
    document["samples"] = []
    spots = (("one_per_core", CORES), ("all_threads", 2 * CORES))
    for block, (placement, workers), level in itertools.product(range(blocks), spots, LEVELS):
        most = 100 if workers == CORES else 50 * (1 + second_threads)
        rate = min(100 * level, most)
        # The core does the same work in more time of its threads when both run.
        busy = min(1.0, rate / most) if workers > CORES else level
        usage_of = {str(cpu): busy if cpu < workers else 0.0 for cpu in range(2 * CORES)}
        value = workers * rate * (1 + chance.uniform(-scatter, scatter))
        sample = {**template, "workload": "own_levels", "placement": placement, "arm": "smt_on", "parameter": level}
        sample.update(block=block, index=len(document["samples"]))
        sample["metrics"] = {metric: {**template["metrics"][metric], "value": value}}
        sample["telemetry"] = {**template["telemetry"], "cpu_usage": usage_of}
        document["samples"].append(sample)
    return document


def found(document):
    result = accepted(document)
    kinds = usage.of_workload(result, result.samples, "own_levels")
    return {(placement, parameter): one for (placement, _arm, parameter), one in kinds.items()}


def test_usage_promises_more_than_second_threads_give():
    # Nothing where siblings share one CPU, a quarter, and without anything shared usage is right.
    for second_threads in (0.0, 0.25, 1.0):
        half = found(machine(second_threads))["one_per_core", 1.0]
        assert half.share == pytest.approx(0.5) and half.by_usage.value == pytest.approx(1.0)
        assert half.real.low <= second_threads <= half.real.high < second_threads + 0.01


def test_a_time_has_no_headroom_and_no_usage_is_no_row():
    document = machine(0.25)
    primary = document["plan"]["workloads"][0]["primary"]
    document["plan"]["workloads"][0]["metrics"][primary]["better"] = "lower"
    for sample in document["samples"]:
        sample["metrics"][primary]["better"] = "lower"
    assert {(one.rate, one.achieved, one.by_usage, one.real) for one in found(document).values()} == {
        (None, None, None, None)
    }
    for sample in document["samples"]:
        sample["telemetry"] = {**sample["telemetry"], "cpu_usage": {}}
    assert found(document) == {}


@pytest.mark.parametrize(
    ("second_threads", "said"),
    [
        (0.0, r"room for 0 to 0\.[0-9] % more of such work, not for 100 % as usage says"),
        (0.25, r"does 80 % of .* room for 25 % more of such work, not for 100 % as usage says"),
        (1.0, None),
    ],
)
def test_the_page_says_how_much_room_is_left_where_usage_says_otherwise(second_threads, said):
    document = machine(second_threads)
    document["plan"]["workloads"][0]["parameter"] = None
    document["samples"] = [
        {**sample, "parameter": None} for sample in document["samples"] if sample["parameter"] == LEVELS[-1]
    ]
    analysis = result_maker.analysed(document)
    lines = [line for one in workloads_part.workloads(analysis) for line in one["smt_metrics"]]
    rooms = [(name, reads) for name, _value, reads in lines if name == "room left"]
    assert len(rooms) == (said is not None)
    for _name, reads in rooms:
        assert re.search(said, reads) and "CPU usage is 50 %" in reads, reads


def test_only_the_full_load_is_compared():
    """Below it twice as many workers do twice the work because each is offered as much:
    that says nothing about second threads.
    """
    (one,) = compared(machine(0.25))
    assert (one["effect"], one["parameter"], round(one["ratio"], 2)) == ("smt_yield", 1.0, 1.25)


def clients(rates, used, limit=None, times=None, noise=0.002, blocks=8):
    """Requests of numbers of clients, each with its rate and the usage of all CPUs, None where that was not recorded;
    with a limit in seconds, and the response times in ms.
    """
    requests = {"throughput": {"unit": "requests/s", "better": "higher", "aggregate": "sum"}}
    if times:
        requests["p99"] = {"unit": "ms", "better": "lower", "aggregate": "max"}
    made = {
        "title": "requests",
        "metrics": requests,
        "model": lambda _arm, _spot, placed: [1 / len(placed)] * len(placed),
    }
    document = result_maker.result(
        workloads={"web": made}, shape=(1, CORES, 2), blocks=blocks, noise=noise, names=["all_threads"]
    )
    document["plan"]["workloads"][0].update(
        parameter={"name": "clients", "unit": "clients", "values": sorted(rates), "per_worker": False},
        response_limit=limit,
    )
    samples = []
    for sample in document["samples"]:
        scatter = sample["metrics"]["throughput"]["value"]
        of_arm = 0.8 if sample["arm"] == "smt_off" else 1.0
        for number, rate in rates.items():
            metrics = {"throughput": {"value": rate * scatter * of_arm, "unit": "requests/s", "better": "higher"}}
            if times:
                metrics["p99"] = {"value": times[number], "unit": "ms", "better": "lower"}
            known = {} if used[number] is None else dict.fromkeys(sample["telemetry"]["cpu_usage"], used[number])
            telemetry = {**sample["telemetry"], "cpu_usage": known}
            samples.append({**sample, "parameter": number, "metrics": metrics, "telemetry": telemetry})
    return {**document, "samples": samples}


RISING, FLAT = {20: 200, 40: 400, 60: 600}, {20: 200, 40: 400, 60: 500, 80: 505}
USED = {20: 0.2, 40: 0.4, 60: 0.6, 80: 0.6}


@pytest.mark.parametrize(
    ("rates", "used", "further", "saturated", "room"),
    [
        (RISING, USED, {}, False, 2.0),
        (RISING, USED, {"noise": 0.03}, False, 2.0),
        (FLAT, USED, {}, True, 1.525),
        (FLAT, USED, {"noise": 0.03}, True, 1.525),
        # It falls, it is two loads, or one, and CPUs are full.
        ({20: 200, 40: 400, 60: 500, 80: 300}, USED, {}, True, 1.5),
        ({20: 200, 60: 600}, USED, {}, False, 2.0),
        ({20: 200, 21: 210}, {20: 0.2, 21: 0.21}, {"noise": 0.03}, False, 0.05),
        ({20: 200}, USED, {}, False, 0.0),
        ({20: 200, 60: 400}, {20: 0.2, 60: 0.97}, {}, True, 1.0),
        # The usage of the highest load is not known.
        (FLAT, {**USED, 80: None}, {}, True, 1.525),
        ({**RISING, 80: 800}, {**USED, 80: None}, {}, False, 3.0),
        # A limit is exceeded before the load is saturated, after it, or nowhere.
        (FLAT, USED, {"limit": 0.02, "times": {20: 5, 40: 9, 60: 30, 80: 99}}, False, 1.0),
        (
            {20: 200, 40: 400, 60: 401, 80: 402},
            USED,
            {"limit": 0.02, "times": {20: 5, 40: 9, 60: 15, 80: 99}},
            True,
            1.005,
        ),
        (FLAT, USED, {"limit": 0.2, "times": {20: 5, 40: 9, 60: 30, 80: 99}}, True, 1.525),
    ],
)
def test_room_is_all_there_is_only_where_the_highest_load_is_saturated(rates, used, further, saturated, room):
    result = accepted(clients(rates, used, **further))
    lowest = usage.of_workload(result, result.samples, "web")["all_threads", "smt_on", 20]
    assert lowest.saturated is saturated and lowest.real.value == pytest.approx(room, abs=0.06)


def test_each_arm_is_saturated_by_itself():
    document = clients(RISING, USED)
    for sample in document["samples"]:
        if sample["arm"] == "smt_off" and sample["parameter"] == 60:
            sample["metrics"]["throughput"]["value"] *= 2 / 3
    result = accepted(document)
    used = usage.of_workload(result, result.samples, "web")
    assert {arm: used["all_threads", arm, 20].saturated for arm in ("smt_on", "smt_off")} == {
        "smt_on": False,
        "smt_off": True,
    }


@pytest.mark.parametrize(("rates", "said"), [(RISING, "at least "), (FLAT, "")])
def test_sentence_table_and_results_say_at_least(rates, said):
    analysis = result_maker.analysed(clients(rates, USED))
    statements = conclusion.conclude(analysis)["statements"]
    (room,) = [place for place, words in enumerate(statements) if "by CPU usage there is room" in words]
    decided = next(place for place, words in enumerate(statements) if words.startswith("Leave SMT on"))
    assert decided < room and ("at least" in statements[room]) is bool(said)
    used = analysis.usage["web"]
    table = telemetry_part.table(analysis.result, analysis.samples["web"], analysis.levels, used)
    cells = [row[table["heads"].index("real headroom")][0] for row in table["rows"]]
    assert all(cell.startswith(f"{said}+") for cell in cells if "+" in cell) and any("+" in cell for cell in cells)
    assert {one["saturated"] for one in result_maker.summarised(analysis.result)["usage"]} == {not said}
