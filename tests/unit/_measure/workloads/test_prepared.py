# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Workloads prepared and sampled on this machine, commands that fail in different ways, and how long a sample is."""

import functools
import os
import pathlib

import pytest
import time_limit
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._host import processes
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import (
    declaration,
    prepared,
    sample_length,
)
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
    assert not [one for one in os.listdir(files.path) if one.endswith(".server") or one.startswith(prepared.SCRATCH)]


def test_only_known_placeholders_are_replaced_and_no_file_is_left_behind(files):
    def output(each, workers):
        return ready(each, files).sample(workers, None)["workers"][0]["output"]

    each = own("echo", "rate 1 {threads} {seconds} {cpus} {work} {other} $(id)")
    assert output(each, TWO) == "rate 1 2 1 {cpus} {work} {other} $(id)\n"
    line = "echo rate 1 {threads} {cpus} $(taskset -cp $$ | sed 's/.*: //') $(ls | wc -l); echo x > left"
    for first, cpus in ((HERE[:1], f"{HERE[0]},{HERE[0]} {HERE[0]} 0\n"), ([], "-1,-1 ")):
        assert output(own("sh", "-c", line, multithreaded=True), [first, first]).startswith(f"rate 1 2 {cpus}")
    assert not [name for name in os.listdir(files.path) if name.startswith(prepared.SCRATCH)]


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
        (0.006, {}, 390, 900),
        # A step of work that takes longer than a sample still shows the start.
        (0.006, {"work": {"unit": "pieces", "start": 250, "step": 250, "limit": 100_000}}, 500, 750),
        (0.006, {"metrics": [TIME]}, 390, 900),
    ],
)
def test_calibration_chooses_the_length_by_the_start_of_the_command(files, monkeypatch, start, changed, least, most):
    work, said = calibrated(files, monkeypatch, start, None, **changed)
    assert least <= work <= most
    assert said == f"own: {work} pieces, samples of about {start + work * UNIT_SECONDS:.2f} s"


CORES = [(cpu,) for cpu in HERE]
FOUR = [(0, 4), (1, 5), (2, 6), (3, 7)]


@pytest.fixture(name="ready")
def ready_workload(files):
    """Return a function that prepares a workload on this machine, in its arm."""
    made = []

    def ready(name, **changed):
        workload = {**BUILT_IN[name], **changed}
        absent = declaration.missing(workload, os.environ["PATH"])
        if absent or len(HERE) < 2:
            pytest.skip(absent or "this machine has one CPU")
        made.append(prepared.PreparedWorkload(workload, files, sources(), 0.2, len(HERE), CORES))
        made[0].enter_arm(HERE)
        return made[0]

    yield ready
    for workload in made:
        assert workload.close() is None


def affinities(folder):
    """Return the CPUs of each process that works in a folder."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd") == folder:
                found.append(sorted(os.sched_getaffinity(int(process.name))))
        except OSError:
            continue
    return found


@pytest.mark.night(after=1)
@pytest.mark.parametrize("name", ["nginx", "jvm"])
def test_a_server_is_measured_on_other_cores_than_what_makes_its_load(name, ready, files):
    workload = ready(name)
    folder = files.file(f"{name}.server")
    served, clients = HERE[:-1], HERE[-1:]
    if len(HERE) >= prepared.CORES_OF_ONE_CLIENT:
        clients = HERE[prepared.CORES_OF_ONE_CLIENT - 1 :: prepared.CORES_OF_ONE_CLIENT]
        served = sorted(set(HERE) - set(clients))
    assert affinities(folder) and all(cpus == served for cpus in affinities(folder))
    workload.calibrate([[HERE[0]]])
    sample = workload.sample([[cpu] for cpu in HERE], workload.values[-1])
    assert [worker["cpus"] for worker in sample["workers"]] == [clients]
    rate, mean, median, p99 = (metric["value"] for metric in sample["metrics"].values())
    # As many connections as there are clients wait at any time (Little's law), less while they are opened.
    assert 0.3 * workload.values[-1] < rate * mean / 1000 < 1.1 * workload.values[-1]
    assert 0 < median <= p99
    assert workload.leave_arm() is None
    assert affinities(folder) == [] and not os.path.exists(folder)


def test_answers_that_are_errors_are_no_throughput(ready):
    """They take less work than good ones. Public reports of load generators have such rates as results."""
    made = BUILT_IN["nginx"]["server"]
    workload = ready("nginx", server={**made, "fill": [["sh", "-c", "chmod 0 pages/index.html"]]})
    with pytest.raises(declaration.WorkloadError, match=r"no throughput: .* [1-9]\d* 4xx"):
        workload.calibrate([[HERE[0]]])


def test_a_sample_of_clients_that_were_busy_all_the_time_is_none_of_the_server(ready, monkeypatch):
    workload = ready("nginx")
    monkeypatch.setattr(prepared, "MAX_CLIENT_SHARE", 0.001)
    with pytest.raises(declaration.WorkloadError, match=r"h2load, .*, used \d+% of its own CPUs [\d,-]+"):
        workload.calibrate([[HERE[0]]])


@pytest.mark.parametrize(
    ("cores", "usable", "expected"),
    [
        (FOUR, range(8), ([0, 1, 2, 4, 5, 6], [3, 7])),
        (FOUR, range(4), ([0, 1, 2], [3])),
        (FOUR[:2], range(8), ([0, 4], [1, 5])),
        ([(cpu,) for cpu in range(8)], range(8), ([0, 1, 2, 4, 5, 6], [3, 7])),
        (FOUR, [0, 3, 4, 7], ([0, 4], [3, 7])),
        *((cores, usable, None) for cores, usable in (([(0, 1)], [0, 1]), (FOUR, [0, 1]), (FOUR, [3]), ([], []))),
    ],
)
def test_clients_have_the_same_quarter_of_the_cores_in_each_arm(cores, usable, expected):
    if expected:
        assert prepared.apart(cores, usable) == expected
        return
    with pytest.raises(declaration.WorkloadError, match="one core only"):
        prepared.apart(cores, usable)
