# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads prepared and sampled on this machine: each built-in workload, and commands that fail in different ways."""

from __future__ import annotations

import functools
import os
import shutil

import pytest
import time_limit
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import prepared
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import PLAIN, WorkloadError, missing
from process_state import alive

# By a stream, in one process of all threads, and by a tool.
DIFFERENT = ("gzip", "false_sharing", "sysbench_cpu")
HERE = sorted(os.sched_getaffinity(0))
TWO = [[HERE[0]], [HERE[-1]]]
RATE = {"name": "rate", "unit": "1/s", "better": "higher", "aggregate": "sum", "pattern": r"rate ([0-9.]+)"}


def ready(workload, files, seconds=0.05):
    return prepared.PreparedWorkload(workload, files, sources(), seconds, len(HERE), [(cpu,) for cpu in HERE])


def own(*argv, **changed):
    return dict(PLAIN, **dict({"name": "own", "title": "own", "argv": list(argv), "metrics": [RATE]}, **changed))


@pytest.mark.night(after=3)
@pytest.mark.parametrize("name", sorted(BUILT_IN, key=lambda name: (name not in DIFFERENT, name)))
def test_each_workload_runs_here(name, files):
    workload = BUILT_IN[name]
    absent = missing(workload, os.environ["PATH"])
    if absent:
        pytest.skip(absent)
    one = ready(workload, files)
    try:
        one.enter_arm(HERE)
        one.calibrate([[HERE[0]]])
        taken = one.sample(TWO, one.values[-1])
    finally:
        one.close()
    assert taken["metrics"][workload["metrics"][0]["name"]]["value"] == pytest.approx(sum(taken["values"]))
    assert len(taken["workers"]) == (1 if workload["multithreaded"] else 2)
    assert list(taken["metrics"]) == [metric["name"] for metric in workload["metrics"]]
    assert [
        folder for folder in os.listdir(files.path) if folder.endswith(".server") or folder.startswith(prepared.SCRATCH)
    ] == []


def test_the_amount_of_work_for_the_wanted_time():
    assert prepared.next_work(BUILT_IN["gzip"]["work"], 2, 0.1, 0.5) == 10
    assert prepared.next_work(BUILT_IN["gzip"]["work"], 2, 10.0, 0.5) == 1
    assert prepared.next_work(BUILT_IN["gzip"]["work"], 2, 0.0, 0.5) == 100
    assert prepared.next_work(BUILT_IN["gzip"]["work"], 2000, 0.001, 500) == 2000


def test_only_known_placeholders_are_replaced_and_no_file_is_left_behind(files):
    def output(each, workers):
        return ready(each, files).sample(workers, None)["workers"][0]["output"]

    each = own("echo", "rate 1 {threads} {seconds} {cpus} {work} {other} $(id)")
    assert output(each, TWO) == "rate 1 2 1 {cpus} {work} {other} $(id)\n"
    line = "echo rate 1 {threads} {cpus} $(taskset -cp $$ | sed 's/.*: //') $(ls | wc -l); echo x > left"
    for first, cpus in ((HERE[:1], f"{HERE[0]},{HERE[0]} {HERE[0]} 0\n"), ([], "-1,-1 ")):
        assert output(own("sh", "-c", line, multithreaded=True), [first, first]).startswith(f"rate 1 2 {cpus}")
    assert not [name for name in os.listdir(files.path) if name.startswith(prepared.SCRATCH)]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("echo no paper >&2; exit 3", f"own on CPU {HERE[0]} failed with exit status 3: no paper"),
        ("kill -SEGV $$", "was ended by signal 11: no output"),
        ("echo rate none", "own printed no rate: rate none"),
        ("echo rate -5", "own printed no rate"),
        ("head -c 3000000 /dev/urandom", "own printed no rate"),
    ],
)
def test_a_failed_command_is_reported_with_its_last_lines(line, error, files):
    os.symlink(shutil.which("sh"), files.file("own"))
    with pytest.raises(WorkloadError, match=error):
        ready(own(files.file("own"), "-c", line), files).sample([[HERE[0]]], None)


def test_a_command_that_hangs_is_ended_with_its_children_and_reported_with_its_last_lines(files, monkeypatch):
    pid_file, hangs = files.file("pid"), files.file("hangs")
    time_limit.not_before(monkeypatch, lambda: os.path.exists(hangs))
    child = f'trap "" TERM; echo $$ > {pid_file}; sleep 300'
    line = (
        f"trap '' TERM; setsid sh -c '{child}' & until [ -s {pid_file} ]; do sleep 0.05; done; echo waiting for"
        f" nothing; touch {hangs}; wait"
    )
    with pytest.raises(WorkloadError, match=r"sh did not end within 1 s and was ended: waiting for nothing"):
        ready(own("sh", "-c", line, timeout=1), files).sample([[]], None)
    with open(pid_file, encoding="ascii") as pid:
        assert not alive(int(pid.read()))


def test_a_command_that_ends_well_when_it_is_asked_to_end_is_reported_too(files, monkeypatch):
    time_limit.not_before(monkeypatch, lambda: os.path.exists(files.file("hangs")))
    monkeypatch.setattr(processes, "end_children", functools.partial(processes.end_children, time_limit=600))
    line = (
        f"if mkdir {files.file('first')}; then echo rate 1; else trap 'echo asked to end; exit 0' TERM;"
        f" touch {files.file('hangs')}; while :; do sleep 0.05; done; fi"
    )
    with pytest.raises(WorkloadError, match=r"sh did not end within 1 s and was ended: asked to end"):
        ready(own("sh", "-c", line, timeout=1), files).sample([[], []], None)


def test_a_workload_with_too_little_memory_is_reported(files):
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        total = next(int(line.split()[1]) for line in meminfo if line.startswith("MemTotal")) // 1000
    greedy = ready(own("true", memory=total), files)
    assert f"2 workers of own need {int(2 * total)} MB of memory, and" in greedy.memory_shortage(TWO)
    assert ready(own("true", memory=1), files).memory_shortage(TWO) is None


def test_huge_pages_that_nobody_reserves_are_reported_and_those_of_an_arm_are_enough(files, monkeypatch):
    meminfo = {"Hugepagesize": 2048, "HugePages_Free": 130, "HugePages_Rsvd": 2}
    monkeypatch.setattr(prepared, "_meminfo", lambda: meminfo)
    one = ready(own("true", huge_memory=256), files)
    assert one.memory_shortage(TWO[:1]) is one.memory_shortage(TWO, 256) is None
    said = one.memory_shortage(TWO, 255)
    assert "256 huge pages of 2048 kB for 2 workers, and 255 are" in said and "hugepages_256" in said
    assert ready(own("true"), files).memory_shortage(TWO) is None


def test_a_missing_source_is_an_error(files):
    with pytest.raises(WorkloadError, match=r"file array.c was not sent"):
        prepared.PreparedWorkload(BUILT_IN["array_rows"], files, {}, 0.05, 2)


def test_co_runners_and_nice_value_reach_the_workers(files):
    line = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo rate $(ps -o nice= -p $$)"
    taken = ready(own("sh", "-c", line, nice=15, co_runners=3, co_runners_nice=15), files).sample([HERE[:1]], None)
    worker = taken["workers"][0]
    # Four processes share one CPU: each has a quarter of its time.
    assert taken["values"] == [15] and worker["cpu_seconds"] < 0.5 * worker["wall_seconds"]


def test_co_runners_on_siblings_run_where_the_arm_has_siblings(files):
    workload = own("sh", "-c", "echo rate 1", co_runners=2, co_runners_on="both", co_runners_nice=19)
    one = prepared.PreparedWorkload(workload, files, sources(), 0.05, len(HERE), [(HERE[0], HERE[-1])])
    counts = []
    for usable in (HERE, HERE[:1]):
        one.enter_arm(usable)
        counts.append(one.sample([[HERE[0]]], None)["co_runners"])
    assert counts == [2 * len(HERE), 2]


def test_an_arm_with_more_work_does_more_than_the_others(files):
    """Its rate is that of the amount by which all arms are compared."""
    work = {"unit": "steps", "start": 1000, "step": 10, "limit": 1000}
    one = ready(own("sh", "-c", "echo rate {work}", work=work), files)
    one.calibrate([[HERE[0]]])
    # On a busy machine less of it takes as long.
    one.work = 1000
    found = []
    for more in (1.0, 1.05, 1.0):
        one.enter_arm(HERE, more)
        found.append((one.sample([[HERE[0]]], None)["values"], one.work))
    assert found == [([1000.0], 1000), ([1050.0], 1000), ([1000.0], 1000)]
    with pytest.raises(WorkloadError, match="no amount of work"):
        ready(own("sh", "-c", "echo rate 1"), files).enter_arm(HERE, 1.05)
