# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workload declarations: their metrics are read from what tools print, and what has not worked is said in words."""

from __future__ import annotations

import hashlib
import shutil

import pytest

from ansible_collections.threadwise.smt.plugins.module_utils import runner, workloads

# What sysbench 1.0.20 prints.
SYSBENCH = """
CPU speed:
    events per second:  2911.25

Latency (ms):
         avg:                                    0.34
         95th percentile:                        0.37
"""


def worker(output="", status=0, wall_seconds=2.0, errors=""):
    return {"cpus": [3], "output": output, "errors": errors, "exit_status": status, "wall_seconds": wall_seconds}


def test_the_stream_is_the_same_on_every_python():
    assert hashlib.sha256(workloads.stream_block()).hexdigest() == "719b7af2b7f971e60f81ca2ab3f6a9f3f869090ee7a4b357c8a686970d76b95b"
    assert len(workloads.stream_block()) == workloads.MEGABYTE


def test_throughput_is_work_by_each_workers_own_time():
    metrics, per_worker = workloads.read_metrics(workloads.GZIP, 100, [worker(wall_seconds=2.0), worker(wall_seconds=4.0)])
    assert metrics == {"throughput": {"value": 75.0, "unit": "MB/s", "better": "higher"}}
    assert per_worker == [50.0, 25.0]


def test_printed_metrics_are_summed_or_their_worst_is_taken():
    slower = SYSBENCH.replace("2911.25", "88.75").replace("0.37", "1.5")
    metrics, per_worker = workloads.read_metrics(workloads.SYSBENCH_CPU, 500, [worker(SYSBENCH), worker(slower)])
    assert per_worker == [2911.25, 88.75]
    assert metrics["throughput"]["value"] == 3000.0
    assert metrics["latency_p95"] == {"value": 1.5, "unit": "ms", "better": "lower"}


@pytest.mark.parametrize("output", ["", "events per second: ", "events per second:  1.2.3", "events per second:  0.00", "events per second:  9" + "9" * 400])
def test_nonsense_is_not_a_number(output):
    with pytest.raises(workloads.WorkloadError, match="sysbench printed no throughput"):
        workloads.read_metrics(workloads.SYSBENCH_CPU, 500, [worker(output)])


@pytest.mark.parametrize(("status", "reason"), [(2, "failed with exit status 2"), (-11, "was ended by signal 11")])
def test_a_failed_worker_is_named_with_its_cpu_and_last_words(status, reason):
    with pytest.raises(workloads.WorkloadError, match="gzip on CPU 3 %s: out of paper" % reason):
        workloads.read_metrics(workloads.GZIP, 1, [worker(), worker(status=status, errors="\nout of paper\n")])


def test_last_words_are_few():
    with pytest.raises(workloads.WorkloadError) as said:
        workloads.read_metrics(workloads.GZIP, 1, [worker("line\n" * 10000 + "x" * 100000, status=1)])
    assert len(str(said.value)) < 1200


def test_work_is_found_for_the_wanted_time():
    assert workloads.next_work(workloads.GZIP, 2, 0.1, 0.5) == 10
    assert workloads.next_work(workloads.GZIP, 2, 10.0, 0.5) == 1
    assert workloads.next_work(workloads.GZIP, 2, 0.0, 0.5) == 100
    assert workloads.next_work(workloads.GZIP, 2000, 0.001, 500) == 2000


def test_names_that_do_not_exist_are_refused_with_those_that_do():
    for names in ([], ["gzip", "nonsense"]):
        with pytest.raises(workloads.WorkloadError, match="choose from gzip, sysbench_cpu"):
            workloads.named(names)


def test_a_missing_command_is_named_with_its_package(tmp_path):
    assert workloads.missing(workloads.SYSBENCH_CPU, str(tmp_path)) == "sysbench is not installed (package sysbench)"
    (tmp_path / "sysbench").write_text("")
    (tmp_path / "sysbench").chmod(0o755)
    assert workloads.missing(workloads.SYSBENCH_CPU, "/nowhere:%s" % tmp_path) is None


def test_gzip_is_held_against_what_went_in(tmp_path):
    stream = tmp_path / "stream"
    workloads.write_stream(str(stream), 2)
    assert stream.stat().st_size == 2 * workloads.MEGABYTE
    workloads.verify(workloads.GZIP, str(stream))
    with pytest.raises(workloads.WorkloadError, match="cannot be unpacked"):
        workloads.verify(dict(workloads.GZIP, argv=["cat"]), str(stream))
    with pytest.raises(workloads.WorkloadError, match="does not unpack to what went in"):
        workloads.verify(dict(workloads.GZIP, argv=["sh", "-c", "head -c 1000 | gzip"]), str(stream))


@pytest.mark.parametrize("name", sorted(workloads.BUILT_IN))
def test_each_workload_runs_here(name, tmp_path):
    workload = workloads.BUILT_IN[name]
    if shutil.which(workload["argv"][0]) is None:
        pytest.skip("%s is not installed here" % workload["argv"][0])
    stdin = tmp_path / "stream"
    workloads.write_stream(str(stdin), 1)
    sample = runner.run(workloads.command(workload, workload["work"]["start"]), [[], []], stdin=str(stdin) if workload["stdin"] else None,
                        keep_output=workload["keep_output"])
    metrics, per_worker = workloads.read_metrics(workload, workload["work"]["start"], sample["workers"])
    assert metrics[workload["metric"]["name"]]["value"] == pytest.approx(sum(per_worker))
    assert set(metrics) == {workload["metric"]["name"]} | {metric["name"] for metric in workload["metrics"]}
