# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads made ready and sampled, for real on this machine: each of the table, and commands that fail in every way."""

from __future__ import annotations

import os
import shutil
import tempfile
import time

import pytest
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.run_directory import RunDirectory
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import built_in, prepared

HERE = sorted(os.sched_getaffinity(0))
TWO = [[HERE[0]], [HERE[-1]]]
RATE = {"name": "rate", "unit": "1/s", "better": "higher", "aggregate": "sum", "pattern": r"rate ([0-9.]+)"}


@pytest.fixture(name="files")
def run_directory():
    """A run's folder that other users can reach, as /var/lib is and pytest's folders are not."""
    base = tempfile.mkdtemp(prefix="smt-")
    os.chmod(base, 0o755)
    made = RunDirectory(os.path.join(base, "state", "runs"), "r")
    made.create()
    yield made
    shutil.rmtree(base)


def ready(workload, files, seconds=0.05):
    return prepared.Ready(workload, files, sources(), seconds, len(HERE))


def own(*argv, **changed):
    return dict(built_in.PLAIN, **dict({"name": "own", "title": "own", "argv": list(argv), "metric": RATE}, **changed))


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("name", sorted(built_in.BUILT_IN))
def test_each_workload_runs_here(name, files):
    workload = built_in.BUILT_IN[name]
    absent = built_in.missing(workload, os.environ["PATH"])
    if absent:
        pytest.skip(absent)
    one = ready(workload, files)
    try:
        one.calibrate([[HERE[0]]])
        taken = one.sample(TWO, one.points[-1])
    finally:
        one.close()
    assert taken["metrics"][workload["metric"]["name"]]["value"] == pytest.approx(sum(taken["values"]))
    assert len(taken["workers"]) == (1 if workload["together"] else 2)
    assert set(taken["metrics"]) == {workload["metric"]["name"]} | {metric["name"] for metric in workload["metrics"]}
    assert [folder for folder in os.listdir(files.path) if folder.endswith(".server") or folder == prepared.SCRATCH] == []


def test_work_is_found_for_the_wanted_time():
    assert prepared.next_work(built_in.GZIP, 2, 0.1, 0.5) == 10
    assert prepared.next_work(built_in.GZIP, 2, 10.0, 0.5) == 1
    assert prepared.next_work(built_in.GZIP, 2, 0.0, 0.5) == 100
    assert prepared.next_work(built_in.GZIP, 2000, 0.001, 500) == 2000


def test_placeholders_are_filled_and_nothing_else(files):
    each = own("echo", "rate 1 {threads} {seconds} {cpus} {work} {other} $(id)")
    assert ready(each, files).sample(TWO, None)["workers"][0]["output"] == "rate 1 2 1 {cpus} {work} {other} $(id)\n"
    together = own("sh", "-c", "echo rate 1 {threads} {cpus} $(taskset -cp $$ | sed 's/.*: //')", together=True)
    said = ready(together, files).sample([[HERE[0]], [HERE[0]]], None)["workers"]
    assert [worker["output"] for worker in said] == [f"rate 1 2 {HERE[0]},{HERE[0]} {HERE[0]}\n"]
    unpinned = ready(together, files).sample([[], []], None)["workers"]
    assert unpinned[0]["output"].startswith("rate 1 2 -1,-1 ")


def test_a_sample_leaves_no_file_behind(files):
    one = ready(own("sh", "-c", "ls | wc -l; echo x > left; echo rate 1"), files)
    assert [one.sample([[]], None)["workers"][0]["output"] for _sample in range(2)] == ["0\nrate 1\n"] * 2
    assert not os.path.exists(files.file(prepared.SCRATCH))


@pytest.mark.parametrize(
    ("line", "trouble"),
    [
        ("echo no paper >&2; exit 3", f"own on CPU {HERE[0]} failed with exit status 3: no paper"),
        ("kill -SEGV $$", "was ended by signal 11: it said nothing"),
        ("echo rate none", "own printed no rate: rate none"),
        ("echo rate -5", "own printed no rate"),
        ("head -c 3000000 /dev/urandom", "own printed no rate"),
    ],
)
def test_what_fails_or_prints_nonsense_is_told_with_its_last_lines(line, trouble, files):
    os.symlink(shutil.which("sh"), files.file("own"))
    with pytest.raises(built_in.WorkloadError, match=trouble):
        ready(own(files.file("own"), "-c", line), files).sample([[HERE[0]]], None)


def test_what_hangs_is_ended_with_its_children_and_told_with_its_last_lines(files):
    line = f"trap '' TERM; setsid sh -c 'trap \"\" TERM; echo $$ > {files.file('pid')}; sleep 300' & echo waiting for nothing; wait"
    with pytest.raises(built_in.WorkloadError, match=r"sh did not end within 5 s and was ended: waiting for nothing"):
        ready(own("sh", "-c", line, timeout=5), files).sample([[]], None)
    with open(files.file("pid"), encoding="ascii") as told:
        assert not alive(int(told.read()))


def test_children_left_behind_do_not_outlive_their_sample(files):
    ready(own("sh", "-c", f"setsid sleep 300 & echo $! > {files.file('pid')}; echo rate 1"), files).sample([[]], None)
    with open(files.file("pid"), encoding="ascii") as told:
        assert not alive(int(told.read()))


def test_a_workload_that_would_not_fit_into_memory_is_left_out(files):
    with open("/proc/meminfo", encoding="ascii") as meminfo:
        total = next(int(line.split()[1]) for line in meminfo if line.startswith("MemTotal")) // 1000
    greedy = ready(own("true", memory=total), files)
    assert f"2 workers of own need {int(2 * total)} MB of memory, and" in greedy.lacks(TWO)
    assert ready(own("true", memory=1), files).lacks(TWO) is None


def test_a_source_that_did_not_come_is_a_reason(files):
    with pytest.raises(built_in.WorkloadError, match=r"source array.c did not come with the plan"):
        prepared.Ready(built_in.ARRAYS[0], files, {}, 0.05, 2)


def test_neighbours_and_niceness_reach_the_workers(files):
    line = "echo rate $(ps -o nice= -p $$ | tr -d ' ' | sed 's/-//;s/^0$/100/')"
    assert ready(own("sh", "-c", line, nice=5), files).sample([[]], None)["values"] == [5.0]
    began = time.process_time()
    taken = ready(own("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo rate 1", neighbours=3), files).sample([[HERE[0]]], None)
    worker = taken["workers"][0]
    # Four processes on one CPU: each has a quarter of it.
    assert worker["cpu_seconds"] < 0.5 * worker["wall_seconds"]
    assert time.process_time() - began < 1
