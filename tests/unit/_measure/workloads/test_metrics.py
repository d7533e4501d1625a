# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Metrics from the output of tools, and the messages about failures."""

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import PLAIN, WorkloadError
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


def worker(output="", status=0, wall_seconds=2.0, errors=""):
    found = {"output": output, "errors": errors, "exit_status": status, "wall_seconds": wall_seconds}
    return {"cpus": [3], "cpu_seconds": wall_seconds / 2, **found}


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


def test_quantiles_from_the_files_of_a_worker(tmp_path):
    (tmp_path / "latency.7").write_text(
        "".join(f"0 {number} {int(1000 * number)} 0 1795273063 0\n" for number in range(1, 100))
    )
    (tmp_path / "latency.7.1").write_text("1 1 100000 0 1795273063 0\nhalf a li")
    median, p99 = BUILT_IN["oltp"]["metrics"][2:]
    assert read(dict(declared(), metrics=[median]), None, worker(), directory=str(tmp_path))[1] == [50.0]
    assert read(dict(declared(), metrics=[p99]), None, worker(), directory=str(tmp_path))[1] == [99.0]


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
