# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's page: the SMT metrics of each workload, and the telemetry of the CPUs.

The truth of the made results is known.
"""

import msgspec
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import host_result
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.analysis import measures, recorded, usage
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.pages import (
    smt_metrics as smt_metrics_part,
    telemetry as telemetry_part,
)
from result_maker import accepted, analysed


def lines(document, name="gzip"):
    analysis = analysed(document)
    declared = recorded.declaration(analysis.result, name)
    levels = [one for one in analysis.levels if one.workload == name]
    crossover = next((one.crossover for one in analysis.curves if one.workload == name), None)
    made = smt_metrics_part.lines(declared, analysis.comparisons, levels, analysis.samples[name], crossover)
    return {line[0]: line[1] for line in made}


def table(document):
    result = accepted(document)
    used = usage.of_workload(result, result.samples, result.samples[0].workload)
    return telemetry_part.table(result, result.samples, measures.levels(result), used)


def rows(document):
    """(placement, arm) -> column -> what it is sorted by."""
    made = table(document)
    return {(row[0][0], row[1][0]): dict(zip(made["heads"], [cell[1] for cell in row])) for row in made["rows"]}


def test_cost_yield_and_gain():
    actual = lines(result_maker.result(noise=0.0005))
    assert actual["cost of sharing"].startswith("−37.5 % (−37.") and actual["SMT yield"].startswith("1.25 (1.25")
    assert actual["gain of switching off"].startswith("−20.0 % (−20.")


def test_the_most_clients_before_response_times_have_doubled():
    document = result_maker.result(blocks=4, shape=(1, 2, 2))
    curves = {"smt_on": {1: 10.0, 2: 12.0, 4: 19.9, 8: 50.0}, "smt_off": {1: 10.0, 2: 21.0, 4: 15.0, 8: 90.0}}
    samples = [
        msgspec.structs.replace(
            sample,
            placement="unpinned",
            parameter=clients,
            metrics={"latency_p99": host_result.Value(value=response, unit="ms", better="lower")},
        )
        for sample in accepted(document).samples
        if sample.placement == "single"
        for clients, response in curves[sample.arm].items()
    ]
    result = accepted(document)
    clients = host_result.Parameter(name="clients", unit=None, values=(1, 2, 4, 8), per_worker=False)
    times = {"latency_p99": host_result.DeclaredMetric(unit="ms", better="lower", aggregate="max")}
    declared = recorded.declaration(result, "gzip")
    declared = msgspec.structs.replace(declared, parameter=clients, metrics={**declared.metrics, **times})
    levels = measures.levels(result)
    ((name, value, reads),) = smt_metrics_part.lines(declared, [], levels, samples, None)
    assert (name.partition(",")[0], value) == ("most clients", "SMT on 4, SMT off 1") and "over 20.00 ms" in reads
    failed = [msgspec.structs.replace(sample, ok=False) for sample in samples]
    assert smt_metrics_part.lines(declared, [], levels, failed, None) == []


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
    carried = {
        "frequency": {"0": 3000.0, "1": 2000.0},
        "steal": 0.02,
        "perf": {"cpus": threads, "cores": {"0,1": core}},
    }
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
    counted = {
        "cores": (1_424_306_903_878.0, 550_084_970_527.0, 0.4957, 0.1379),
        "siblings": (1_449_788_400_730.0, 361_851_972_955.0, 0.6968, 0.4089),
    }

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


def test_what_became_of_slots_is_the_mean_of_threads_by_their_cycles():
    shares = {"retiring": 0.25, "bad_speculation": 0.05, "frontend_bound": 0.2, "backend_bound": 0.5}
    busy = {"cycles": 3e9, "instructions": 3e9, "topdown": shares}
    other = {"cycles": 1e9, "instructions": 1e9, "topdown": {**shares, "retiring": 0.65, "backend_bound": 0.1}}
    row = rows(with_telemetry({"perf": {"cpus": {"0": busy, "1": other}}}))[ON_ONE_CORE]
    found = [row[f"slots {what}"] for what in ("retiring", "of bad speculation", "front-end bound", "back-end bound")]
    assert found == pytest.approx([0.35, 0.05, 0.2, 0.4])


def test_the_cycles_of_a_core_at_partial_load_are_a_range():
    """Threads that are busy for half of the time each may run together, or take turns: 0.18 or 0.36."""
    counted, usage_of = {"cycles": 180_000.0, "instructions": 500_000.0}, {"siblings": {"0": 0.5, "1": 0.5}}
    perf = {"cpus": dict.fromkeys("01", counted), "cores": {"0,1": {"cycles": 180_000.0, "instructions": 1e6}}}
    made = table(
        with_telemetry(lambda _n, one: {"perf": perf, "cpu_usage": usage_of.get(one["placement"], {"0": 1.0})})
    )
    column = made["heads"].index("CPI of a core")
    said = {row[0][0]: row[column][0] for row in made["rows"] if row[1][0] == "SMT on"}
    assert said["two workers on one core"] == "0.18 to 0.36" and said["one worker alone"] == "0.18"


def test_what_is_not_there_is_no_column_and_has_its_reason():
    absent = {"perf": {"reason": "perf is not installed"}, "steal": None, "frequency": {}, "cpu_usage": {"0": None}}
    document = with_telemetry(absent)
    document["environment"]["nominal_mhz"] = None
    assert table(document) is None
    said = dict(one.split(": ", 1) for one in telemetry_part.absent(accepted(document), [None]))
    assert [*said] == [
        "usage of the CPUs",
        "nominal frequency",
        "frequency",
        "cycles and instructions",
        "throttling",
        "steal time",
    ]
    assert said["cycles and instructions"] == "perf is not installed"
    assert "smt_eval_nominal_ghz" in said["nominal frequency"]


def counted(cycles, instructions):
    return {"0": {"cycles": cycles, "instructions": instructions}}


@pytest.mark.parametrize(
    "spoilt",
    [
        {"perf": {"cpus": counted(0, 5), "cores": {"0": {}}}},
        {"perf": {"cpus": counted(None, None)}},
        {"perf": {"cpus": counted(5e-324, 9e18), "cores": counted(9e18, 5e-324)}},
        *({"cpu_usage": {"0": usage_of}} for usage_of in (5e-324, 2.0, 0.0)),
        {"cpu_usage": None, "frequency": None, "throttled": 10**9},
        {"frequency": {"0": 0, "1": None}},
    ],
)
def test_odd_records_are_left_out(spoilt):
    document = with_telemetry(spoilt, blocks=2)
    telemetry_part.absent(accepted(document), [table(document)])
