# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What CPU usage promises and what there is, the figures and telemetry of a host's page, and what work costs."""

import itertools
import random
import re

import pytest
import result_maker
import studies
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import (
    comparisons,
    costs,
    measures,
    usage,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import (
    telemetry as telemetry_part,
    workloads as workloads_part,
)
from result_maker import accepted, analysed, compared

# More than two: on a machine of two cores, one worker per core is measured as two workers on two cores.
CORES = 4
LEVELS = (0.25, 0.5, 0.75, 1.0)


def machine(second_threads, blocks=6, scatter=0.002):
    """A result of own_levels on four cores, whose second threads add so much work to that of the first.

    A worker alone does 100 a second and is busy for its level of the time; two on a core 100 x (1 + this) at most.
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


def test_a_time_has_no_headroom_and_no_usage_is_no_row():
    document = machine(0.25)
    primary = document["plan"]["workloads"][0]["primary"]
    document["plan"]["workloads"][0]["metrics"][primary]["better"] = "lower"
    for sample in document["samples"]:
        sample["metrics"][primary]["better"] = "lower"
    assert {(one.rate, one.achieved, one.by_usage, one.real) for one in found(document).values()} == {(None,) * 4}
    for sample in document["samples"]:
        sample["telemetry"] = {**sample["telemetry"], "cpu_usage": {}}
    assert found(document) == {}


def lines(document):
    """Name -> value and words of the SMT metrics on a host's page."""
    parts = workloads_part.workloads(analysed(document))
    return {name: (value, reads) for one in parts for name, value, reads in one["smt_metrics"]}


def test_cost_yield_and_gain():
    found = {name: value for name, (value, _reads) in lines(result_maker.result(noise=0.0005)).items()}
    assert found["cost of sharing"].startswith("−37.5 % (−37.") and found["SMT yield"].startswith("1.25 (1.25")
    assert found["gain of switching off"].startswith("−20.0 % (−20.")
    times = clients(RISING, USED, times={20: 5, 40: 9, 60: 30})
    assert [of[0] for name, of in lines(times).items() if name.startswith("most clients")] == ["SMT on 40, SMT off 40"]


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
    document["samples"] = [{**one, "parameter": None} for one in document["samples"] if one["parameter"] == LEVELS[-1]]
    found = lines(document)
    assert ("room left" in found) == (said is not None)
    assert said is None or re.search(f"CPU usage is 50 %.*{said}", found["room left"][1])


def test_only_the_full_load_is_compared():
    """Below it twice as many workers do twice the work because each is offered as much."""
    (one,) = compared(machine(0.25))
    assert (one["effect"], one["parameter"], round(one["ratio"], 2)) == ("smt_yield", 1.0, 1.25)


def clients(rates, used, limit=None, times=None, noise=0.002):
    """Requests of numbers of clients, each with its rate and the usage of all CPUs; a limit in seconds, times in ms."""
    requests = {"throughput": {"unit": "requests/s", "better": "higher", "aggregate": "sum"}}
    if times:
        requests["p99"] = {"unit": "ms", "better": "lower", "aggregate": "max"}
    made = {"title": "requests", "metrics": requests, "model": lambda *at: [1 / len(at[2])] * len(at[2])}
    usual = {"shape": (1, CORES, 2), "names": ["all_threads"], "blocks": 8}
    document = result_maker.result(workloads={"web": made}, noise=noise, **usual)
    parameter = {"name": "clients", "unit": "clients", "values": sorted(rates), "per_worker": False}
    document["plan"]["workloads"][0].update(parameter=parameter, response_limit=limit)
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
        (FLAT, USED, {}, True, 1.525),
        # It falls, it is two loads, or one, and CPUs are full.
        ({20: 200, 40: 400, 60: 500, 80: 300}, USED, {}, True, 1.5),
        ({20: 200, 21: 210}, {20: 0.2, 21: 0.21}, {"noise": 0.03}, False, 0.05),
        ({20: 200, 60: 400}, {20: 0.2, 60: 0.97}, {}, True, 1.0),
        # The usage of the highest load is not known.
        (FLAT, {**USED, 80: None}, {}, True, 1.525),
        ({**RISING, 80: 800}, {**USED, 80: None}, {}, False, 3.0),
        # A limit is exceeded before the load is saturated, after it, or nowhere.
        (FLAT, USED, {"limit": 0.02, "times": {20: 5, 40: 9, 60: 30, 80: 99}}, False, 1.0),
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
    assert [used["all_threads", arm, 20].saturated for arm in ("smt_on", "smt_off")] == [False, True]


@pytest.mark.parametrize(("rates", "said"), [(RISING, "at least "), (FLAT, "")])
def test_sentence_table_and_results_say_at_least(rates, said):
    analysis = result_maker.analysed(clients(rates, USED))
    statements = conclusion.conclude(analysis).statements
    (room,) = [place for place, words in enumerate(statements) if "by CPU usage there is room" in words]
    decided = next(place for place, words in enumerate(statements) if words.startswith("Leave SMT on"))
    assert decided < room and ("at least" in statements[room]) is bool(said)
    used = analysis.usage["web"]
    made = telemetry_part.table(analysis.result, analysis.samples["web"], analysis.levels, used)
    cells = [row[made["heads"].index("real headroom")][0] for row in made["rows"]]
    assert all(cell.startswith(f"{said}+") for cell in cells if "+" in cell) and any("+" in cell for cell in cells)
    assert {one["saturated"] for one in result_maker.summarised(analysis.result)["usage"]} == {not said}


def table(document):
    result = accepted(document)
    used = usage.of_workload(result, result.samples, result.samples[0].workload)
    return telemetry_part.table(result, result.samples, measures.levels(result), used)


def rows(document):
    """(placement, arm) -> column -> what it is sorted by."""
    made = table(document)
    return {(row[0][0], row[1][0]): dict(zip(made["heads"], [cell[1] for cell in row])) for row in made["rows"]}


def test_usage_promises_more_room_than_there_is():
    actual = rows(result_maker.result(noise=0, shape=(1, 4, 2), blocks=4))
    one_per_core, all_threads = actual["one worker per core", "SMT on"], actual["every online thread busy", "SMT on"]
    # Four of eight CPUs are busy, so usage promises about as much again; the second threads add a quarter.
    assert one_per_core["CPUs used"] == pytest.approx(4.08)
    assert one_per_core["headroom by usage"] == pytest.approx(8 / 4.08 - 1)
    assert (one_per_core["real headroom"], all_threads["real headroom"]) == (pytest.approx(0.25), 0)
    # Constant without SMT, falling with load with it.
    assert one_per_core["work by used CPU"] == pytest.approx(400 / 4.08)
    assert all_threads["work by used CPU"] == pytest.approx(500 / 8)


def with_telemetry(telemetry, **options):
    """A result whose samples carry this beside their telemetry."""
    document = result_maker.result(**{"blocks": 4, "shape": (1, 1, 2), **options})
    for number, sample in enumerate(document["samples"]):
        sample["telemetry"].update(telemetry(number, sample) if callable(telemetry) else telemetry)
    return document


ON_ONE_CORE = ("two workers on one core", "SMT on")


def test_what_samples_carry_beside_the_metric():
    core, cycles = {"cycles": 1_000_000.0, "instructions": 1_250_000.0}, {"cycles": 1_000_000.0}
    threads = {"0": {**cycles, "instructions": 750_000.0}, "1": {**cycles, "instructions": 500_000.0}}
    carried = {"frequency": {"0": 3000.0, "1": 2000.0}, "steal": 0.02}
    carried["perf"] = {"cpus": threads, "cores": {"0,1": core}}
    document = with_telemetry(lambda number, _sample: {**carried, "throttled": number % 2})
    actual = rows(document)[ON_ONE_CORE]
    # The counters are those of a published example: two threads of CPI 1.33 and 2.0 make a core of CPI 0.80.
    assert actual["CPI of a core"] == pytest.approx(0.8) and actual["IPC of a thread"] == pytest.approx(0.625)
    assert actual["MHz"] == 2500 and actual["stolen"] == pytest.approx(0.02)
    throttled = sum(one["telemetry"]["throttled"] for one in document["samples"])
    assert sum(one["throttled, in all"] for one in rows(document).values()) == throttled
    assert telemetry_part.absent(accepted(document), [None, table(document)]) == []


def test_2016_shared_cores_wait_for_instructions_and_for_data():
    """Four threads of sysbench on cores of their own and on shared ones; what was not counted has no column."""
    counted = {"cores": (1.424307e12, 5.50085e11, 0.4957, 0.1379)}
    counted["siblings"] = (1.449788e12, 3.61852e11, 0.6968, 0.4089)

    def telemetry(_number, sample):
        cycles, done, front, back = counted.get(sample["placement"], counted["cores"])
        stalls = {"frontend_stalled": front, "backend_stalled": back}
        return {"perf": {"cpus": {"0": {"cycles": cycles, "instructions": done, "stalls": stalls}}}}

    document = with_telemetry(telemetry, shape=(2, 2, 2))
    for where, expected in (("one core", [0.25, 0.6968, 0.4089]), ("two cores", [0.39, 0.4957, 0.1379])):
        row = rows(document)[f"two workers on {where}", "SMT on"]
        found = [row[head] for head in ("IPC of a thread", "front end stalled", "back end stalled")]
        assert found == pytest.approx(expected, abs=0.005)
    assert not any(head.startswith("slots") for head in table(document)["heads"])


def test_the_cycles_of_a_core_at_partial_load_are_a_range():
    """Threads that are busy for half of the time each may run together, or take turns: 0.18 or 0.36."""
    counted, usage_of = {"cycles": 180_000.0, "instructions": 500_000.0}, {"siblings": {"0": 0.5, "1": 0.5}}
    perf = {"cpus": dict.fromkeys("01", counted), "cores": {"0,1": {"cycles": 180_000.0, "instructions": 1e6}}}
    alone = {"0": 1.0}
    made = table(with_telemetry(lambda _n, one: {"perf": perf, "cpu_usage": usage_of.get(one["placement"], alone)}))
    column = made["heads"].index("CPI of a core")
    said = {row[0][0]: row[column][0] for row in made["rows"] if row[1][0] == "SMT on"}
    assert said["two workers on one core"] == "0.18 to 0.36" and said["one worker alone"] == "0.18"


def test_what_is_not_there_is_no_column_and_has_its_reason():
    absent = {"perf": {"reason": "perf is not installed"}, "steal": None, "frequency": {}, "cpu_usage": {"0": None}}
    document = with_telemetry(absent)
    document["environment"]["nominal_mhz"] = None
    assert table(document) is None
    said = dict(one.split(": ", 1) for one in telemetry_part.absent(accepted(document), [None]))
    assert len(said) == 6 and said["cycles and instructions"] == "perf is not installed"
    assert "smt_eval_nominal_ghz" in said["nominal frequency"]


def test_odd_records_are_left_out():
    for spoilt in (
        {"perf": {"cpus": {"0": {"cycles": 0, "instructions": 5}}, "cores": {"0": {}}}, "cpu_usage": None},
        {"perf": {"cpus": {"0": {"cycles": 5e-324, "instructions": 9e18}}}, "throttled": 10**9},
        {"cpu_usage": {"0": 5e-324}, "frequency": {"0": 0, "1": None}},
    ):
        document = with_telemetry(spoilt, blocks=2)
        telemetry_part.absent(accepted(document), [table(document)])


def served(unit="requests/s", better="higher", aggregate="sum", seconds=(0.6, 0.4), **declared):
    """Workers that do 10 units a second each in 0.8 s, for more CPU seconds with SMT on than with it off."""
    workload = {
        "title": "service",
        "metrics": {"primary": {"unit": unit, "better": better, "aggregate": aggregate}},
        # As much work with half of the workers.
        "model": lambda arm, _spot, placed: [10.0 if arm == "smt_on" else 20.0] * len(placed),
    }
    usual = {"shape": (1, 2, 2), "blocks": 6, "noise": 0.002, "names": ["all_threads"]}
    document = result_maker.result(workloads={"own": workload}, **usual)
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
    (one,) = [one.described() for one in comparisons.compare_host(result) if one.metric == costs.CPU_BY_WORK]
    assert one["change"] == pytest.approx(-1 / 3, abs=0.01) and (one["verdict"], one["better"]) == ("gain", "lower")
    assert not one["primary"] and one["aggregate"] == "mean_per_job"
    said = conclusion.conclude(analysed(result)).costs
    assert "the same primary, and its CPU seconds per unit of work change by −33." in said[0]
    assert said[0].endswith(": fewer threads are charged for the same time.")


def test_time_per_job_costs_the_cpu_time_of_a_job():
    document = studies.threads_2014()
    for sample in document["samples"]:
        cpu, wall = studies.THREADS[sample["placement"]]
        for worker in sample["workers"]:
            worker.update(cpu_seconds=cpu / len(sample["workers"]) / 1000, wall_seconds=wall / 1000)
    found = comparisons.compare_host(costs.added(accepted(document)))
    times = {one.effect: one.change.value for one in found if one.metric == costs.CPU_BY_WORK}
    # Two cores take no more CPU time for a job than one alone, two siblings half as much again.
    assert times["second_core"] == pytest.approx(0.003, abs=0.002)
    assert times["cost_of_sharing"] == pytest.approx(0.52, abs=0.01) == times["core_yield"]


def test_units_of_work():
    for unit, of, cost in (("MB per second", "CPU s/MB", 0.03), ("1/s", "CPU s", 0.03), ("a/min", "CPU s/a", 1.8)):
        assert cost_of(served(unit))["smt_on"] == (pytest.approx(1.25 * cost, rel=0.01), of)
    # A time of a job by its declaration.
    assert cost_of(served("s", "lower", "per_job"))["smt_on"] == (pytest.approx(0.3, rel=0.01), "CPU s/job")


def test_where_the_work_or_its_cpu_time_is_not_known_there_is_no_cost():
    # No rate, no time, and a time that is none of a job; each worker may say the rate of all.
    for declared in (("users",), ("points", "lower"), ("ms", "lower", "max"), ("requests/s", "higher", "mean")):
        assert cost_of(served(*declared)) == {}, declared
    # A server's CPU time is none of the workers'.
    assert cost_of(served(server=True)) == {}


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
    (one,) = [one.described() for one in comparisons.compare_host(result) if not one.primary]
    assert (one["metric"], one["unit"], one["n"], one["dropped_blocks"]) == ("joules_by_work", "J/requests", 5, 1)
    assert one["change"] == pytest.approx(-0.25, abs=0.01) and one["baseline_value"] == pytest.approx(2, rel=0.01)
