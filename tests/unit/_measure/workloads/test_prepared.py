# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads prepared and sampled on this machine, commands that fail in different ways, and how long a sample is."""

import functools
import os
import shutil

import pytest
import time_limit
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import prepared, sample_length
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    PLAIN,
    WorkloadError,
    missing,
)
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


def test_co_runners_and_nice_value_reach_the_workers(files):
    line = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo rate $(ps -o nice= -p $$)"
    taken = ready(own("sh", "-c", line, nice=15, co_runners=3, co_runners_nice=15), files).sample([HERE[:1]], None)
    worker = taken["workers"][0]
    # Four processes share one CPU: each has a quarter of its time.
    assert taken["values"] == [15] and worker["cpu_seconds"] < 0.5 * worker["wall_seconds"]


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


UNIT_SECONDS = 0.001
OF_WORK = {"name": "throughput", "unit": "1/s", "better": "higher", "aggregate": "sum", "rate": True}
PRINTED = {"name": "throughput", "unit": "1/s", "better": "higher", "aggregate": "sum", "pattern": r"rate ([0-9.]+)"}
TIME = {"name": "wall_time", "unit": "s", "better": "lower", "aggregate": "mean", "clock": "wall_seconds"}
WORK = {"unit": "pieces", "start": 2, "step": 1, "limit": 100_000}


@pytest.mark.parametrize(("start", "seconds"), [(0.0, 0.2), (0.002, 0.2), (0.005, 0.5), (0.02, 1.0)])
def test_a_sample_is_a_hundred_times_as_long_as_its_start_within_limits(start, seconds):
    # The start is what two runs have in common; below zero it is noise.
    timings = (sample_length.Timing(work, start + work * UNIT_SECONDS) for work in (50, 200))
    assert sample_length.start_seconds(*timings) == pytest.approx(start)
    assert sample_length.start_seconds(sample_length.Timing(50, 0.04), sample_length.Timing(200, 0.2)) == 0.0
    assert sample_length.enough(start) == pytest.approx(seconds)


def calibrated(files, monkeypatch, start, seconds, **changed):
    """A workload whose command takes a known time to start and for each piece of work, calibrated."""
    wanted = []

    def run(argv, *_arguments, **_options):
        work = int(argv[-1])
        wanted.append(work)
        worker = {"wall_seconds": start + work * UNIT_SECONDS, "output": "rate 5", "errors": "", "exit_status": 0}
        return {"workers": [worker], "timed_out": False, "cpu_usage": {}, "steal": 0.0, "co_runners": 0}

    monkeypatch.setattr(prepared.runner, "run", run)
    own = {"name": "own", "title": "own", "argv": ["true", "{work}"], "metrics": [OF_WORK], "work": WORK}
    one = prepared.PreparedWorkload({**PLAIN, **own, **changed}, files, {}, seconds, os.cpu_count())
    said = one.calibrate([[0]])
    return one.work, said


@pytest.mark.parametrize(
    ("start", "changed", "least", "most"),
    [
        (0.0, {}, 133, 300),
        (0.006, {}, 390, 900),
        (0.1, {}, 560, 1500),
        # A step of work that takes longer than a sample still shows the start.
        (0.006, {"work": {"unit": "pieces", "start": 250, "step": 250, "limit": 100_000}}, 500, 750),
        # What the program reports of its work has no part in its start.
        (0.1, {"metrics": [PRINTED]}, 30, 200),
        # The time of its run has, also beside what it reports, and also as the one that decides.
        (0.1, {"metrics": [PRINTED, TIME]}, 560, 1500),
        (0.006, {"metrics": [TIME]}, 390, 900),
    ],
)
def test_calibration_chooses_the_length_by_the_start_of_the_command(files, monkeypatch, start, changed, least, most):
    work, said = calibrated(files, monkeypatch, start, None, **changed)
    assert least <= work <= most
    assert said == f"own: {work} pieces, samples of about {start + work * UNIT_SECONDS:.2f} s"


def test_a_length_that_is_given_is_kept(files, monkeypatch):
    assert 33 <= calibrated(files, monkeypatch, 0.006, 0.05)[0] <= 75
