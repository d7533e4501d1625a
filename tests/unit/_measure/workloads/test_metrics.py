# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics from the output of tools, and the messages about failures."""

import math

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import PLAIN, WorkloadError
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.output import sources
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results, schema

# What sysbench 1.0.20 prints.
SYSBENCH = """
CPU speed:
    events per second:  2911.25

Latency histogram (values are in milliseconds)
       value  ------------- distribution ------------- count
       0.308 |*                                        1
       0.331 |**************************************** 90
       0.404 |*****                                    8
       9.910 |*                                        1

Latency (ms):
         avg:                                    0.34
         95th percentile:                        0.37
"""
# What stress-ng 0.15.06 prints to standard error.
STRESS_NG = """stress-ng: info:  [2547] dispatching hogs: 1 cpu
stress-ng: metrc: [2547] stressor       bogo ops real time  usr time  sys time   bogo ops/s     bogo ops/s
stress-ng: metrc: [2547]                           (secs)    (secs)    (secs)   (real time) (usr+sys time)
stress-ng: metrc: [2547] cpu                  50      0.04      0.03      0.00      1341.12        1856.32
"""
FIO = 'fio: a warning\n{"jobs": [{"read": {"iops": 812.5, "clat_ns": {"percentile": {"99.000000": 4096}}}}]}\n'


def worker(output="", status=0, wall_seconds=2.0, errors=""):
    return {
        "cpus": [3],
        "output": output,
        "errors": errors,
        "exit_status": status,
        "wall_seconds": wall_seconds,
        "cpu_seconds": wall_seconds / 2,
    }


def read(workload, work, *workers, directory="/nowhere"):
    return workload_metrics.read(workload, work, workers, [directory] * len(workers))


def declared(**source):
    metric = dict({"name": "rate", "unit": "1/s", "better": "higher", "aggregate": "mean"}, **source)
    return dict(PLAIN, name="own", title="own", argv=["own"], metrics=[metric])


@pytest.mark.parametrize(
    ("workload", "seconds", "each", "value"),
    [
        # Work divided by each worker's own time.
        (BUILT_IN["gzip"], (2.0, 4.0), [50.0, 25.0], 75.0),
        # The slowest worker's time divided by the number of workers.
        (declared(clock="wall_seconds", better="lower", aggregate="per_job"), (6.0, 8.0), [6.0, 8.0], 4.0),
        # Workers that run at the same time share the wall, not the CPU time of their jobs, here half of it.
        (declared(clock="cpu_seconds", better="lower", aggregate="mean_per_job"), (12.0, 16.0), [6.0, 8.0], 7.0),
    ],
)
def test_the_number_of_all_workers(workload, seconds, each, value):
    metrics, per_worker = read(workload, 100, *(worker(wall_seconds=one) for one in seconds))
    [metric] = list(metrics.values())
    assert (per_worker, metric["value"]) == (each, value)


def test_printed_metrics_are_summed_or_the_worst_is_used():
    slower = SYSBENCH.replace("2911.25", "88.75").replace("0.331 |", "0.345 |")
    metrics, per_worker = read(BUILT_IN["sysbench_cpu"], 500, worker(SYSBENCH), worker(slower))
    assert per_worker == [2911.25, 88.75] and metrics["throughput"]["value"] == 3000.0
    assert metrics["latency_median"] == {"value": 0.345, "unit": "ms", "better": "lower"}
    assert (metrics["latency_p99"]["value"], metrics["latency_mean"]["value"]) == (0.404, 0.34)
    # They are read from standard error too.
    metrics, _per_worker = read(BUILT_IN["int_float_loop"], 50, worker(errors=STRESS_NG, wall_seconds=0.5))
    assert [metrics[name]["value"] for name in ("throughput", "wall_time", "cpu_time")] == [1341.12, 0.5, 0.25]


PLACE = ["jobs", "0", "read", "iops"]


@pytest.mark.parametrize(
    ("path", "scale", "value"),
    [
        (PLACE, 1, 812.5),
        ([*PLACE[:3], "clat_ns", "percentile", "99.000000"], 0.001, 4.096),
        *((path, 1, None) for path in (["jobs", "1"], ["jobs", "x"], PLACE[:3], ["nothing"], [*PLACE, "deeper"])),
    ],
)
def test_a_path_into_json(path, scale, value):
    if value is None:
        with pytest.raises(WorkloadError, match="own printed no rate: fio: a warning"):
            read(declared(json=path), None, worker(FIO))
    else:
        assert read(declared(json=path, scale=scale), None, worker(FIO))[1] == [value]


def test_quantiles_from_the_files_of_a_worker(tmp_path):
    (tmp_path / "latency.7").write_text(
        "".join(f"0 {number} {int(1000 * number)} 0 1795273063 0\n" for number in range(1, 100))
    )
    (tmp_path / "latency.7.1").write_text("1 1 100000 0 1795273063 0\nhalf a li")
    median, p99 = BUILT_IN["oltp"]["metrics"][2:]
    assert read(dict(declared(), metrics=[median]), None, worker(), directory=str(tmp_path))[1] == [50.0]
    assert read(dict(declared(), metrics=[p99]), None, worker(), directory=str(tmp_path))[1] == [99.0]
    with pytest.raises(WorkloadError, match="own printed no latency_p99"):
        read(dict(declared(), metrics=[p99]), None, worker(), directory=str(tmp_path / "empty"))


def test_only_the_ends_of_large_files_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "FILES_LIMIT", 80)
    for name, microseconds in (("latency.1", 5000), ("latency.2", 6000)):
        (tmp_path / name).write_text("0 1 999000 0 1 0\n" * 1000 + f"0 1 {microseconds} 0 1 0\n" * 3)
    median, p99 = BUILT_IN["oltp"]["metrics"][2:]
    assert read(dict(declared(), metrics=[median]), None, worker(), directory=str(tmp_path))[1] == [5.0]
    assert read(dict(declared(), metrics=[p99]), None, worker(), directory=str(tmp_path))[1] == [6.0]


@pytest.mark.parametrize("output", ["", "1.2.3", "0.00", "9" * 400])
def test_output_without_a_valid_number_is_an_error(output):
    with pytest.raises(WorkloadError, match="sysbench printed no throughput"):
        read(BUILT_IN["sysbench_cpu"], 500, worker(f"events per second:  {output}"))


@pytest.mark.parametrize(("status", "reason"), [(2, "failed with exit status 2"), (-11, "was ended by signal 11")])
def test_a_failed_worker_is_reported_with_its_cpu_and_its_last_lines_alone(status, reason):
    with pytest.raises(WorkloadError, match=f"gzip on CPU 3 {reason}: out of paper"):
        read(BUILT_IN["gzip"], 1, worker(), worker(status=status, errors="\nout of paper\n"))
    with pytest.raises(WorkloadError) as raised:
        read(BUILT_IN["gzip"], 1, worker("line\n" * 10000 + "x" * 100000, status=status))
    assert len(str(raised.value)) < 1200


@pytest.mark.parametrize("value", ["9" * 300, "0." + "0" * 300 + "1", "1e19", "1e-31"])
def test_a_number_that_no_result_can_have_fails_its_sample_only(value):
    with pytest.raises(WorkloadError, match=f"not from 1e-30 to 1e\\+18 1/s: rate {value}"):
        read(declared(pattern=r"rate (\S+)"), None, worker(f"rate {value}"))


def test_the_workers_together_are_held_to_the_limits_of_the_border_after_scaling():
    fits = declared(pattern=r"rate (\S+)", aggregate="sum", scale=1e-3)
    assert read(fits, None, worker("rate 9e20"))[1] == [9e17]
    for values, reason in ((("9e20", "9e20"), "of all workers of own combined is not"), (("1e-29",), "is not from")):
        with pytest.raises(WorkloadError, match=reason):
            read(fits, None, *(worker(f"rate {value}") for value in values))
    assert workload_metrics.MAX_VALUE <= schema.MAX_NUMBER and workload_metrics.MIN_VALUE >= results.MIN_NUMBER


@pytest.mark.parametrize("value", ["9" * 400, "1e999", '"' + "9" * 400 + '"', "true", '"b"', "NaN"])
def test_numbers_beyond_any_measurement_are_no_number(value):
    assert not math.isfinite(sources.in_json('{"rate": ' + value + "}", ["rate"]))
    assert math.isnan(sources._quantile([("1.5", "9" * 5000)], 0.99))
