# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""nginx and a JVM under h2load, where they are installed: on cores of their own, and no number of a failed request."""

import os
import pathlib

import pytest
from ansible_collections.threadwise.smt.plugins.action.smt_benchmark import sources
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import declaration, prepared, server
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN

CPUS = sorted(os.sched_getaffinity(0))
CORES = [(cpu,) for cpu in CPUS]
FOUR = [(0, 4), (1, 5), (2, 6), (3, 7)]


@pytest.fixture(name="ready")
def ready_workload(files):
    """Return a function that prepares a workload on this machine, in its arm."""
    made = []

    def ready(name, **changed):
        workload = {**BUILT_IN[name], **changed}
        absent = declaration.missing(workload, os.environ["PATH"])
        if absent or len(CPUS) < 2:
            pytest.skip(absent or "this machine has one CPU")
        made.append(prepared.PreparedWorkload(workload, files, sources(), 0.2, len(CPUS), CORES))
        made[0].enter_arm(CPUS)
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
    served, clients = CPUS[:-1], CPUS[-1:]
    if len(CPUS) >= prepared.CORES_OF_ONE_CLIENT:
        clients = CPUS[prepared.CORES_OF_ONE_CLIENT - 1 :: prepared.CORES_OF_ONE_CLIENT]
        served = sorted(set(CPUS) - set(clients))
    assert affinities(folder) and all(cpus == served for cpus in affinities(folder))
    workload.calibrate([[CPUS[0]]])
    sample = workload.sample([[cpu] for cpu in CPUS], workload.values[-1])
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
        workload.calibrate([[CPUS[0]]])


def test_a_sample_of_clients_that_were_busy_all_the_time_is_none_of_the_server(ready, monkeypatch):
    workload = ready("nginx")
    monkeypatch.setattr(prepared, "MAX_CLIENT_SHARE", 0.001)
    with pytest.raises(declaration.WorkloadError, match=r"h2load, .*, used \d+% of its own CPUs [\d,-]+"):
        workload.calibrate([[CPUS[0]]])


def test_a_port_that_is_taken_is_said(ready, monkeypatch):
    with server.socket.socket() as taken:
        taken.bind((server.LOOPBACK, 0))
        taken.listen()
        monkeypatch.setattr(server, "_free_port", lambda: taken.getsockname()[1])
        with pytest.raises(declaration.WorkloadError, match=r"did not start: .*Address already in use"):
            ready("nginx")


@pytest.mark.parametrize(
    ("cores", "usable", "expected"),
    [
        (FOUR, range(8), ([0, 1, 2, 4, 5, 6], [3, 7])),
        # SMT off: the same cores.
        (FOUR, range(4), ([0, 1, 2], [3])),
        (FOUR[:2], range(8), ([0, 4], [1, 5])),
        # Spread over packages.
        ([(cpu,) for cpu in range(8)], range(8), ([0, 1, 2, 4, 5, 6], [3, 7])),
        # Only a part of the cores is online.
        (FOUR, [0, 3, 4, 7], ([0, 4], [3, 7])),
        # One core.
        *((cores, usable, None) for cores, usable in (([(0, 1)], [0, 1]), (FOUR, [0, 1]), (FOUR, [3]), ([], []))),
    ],
)
def test_clients_have_the_same_quarter_of_the_cores_in_each_arm(cores, usable, expected):
    if expected:
        assert prepared.apart(cores, usable) == expected
        return
    with pytest.raises(declaration.WorkloadError, match="one core only"):
        prepared.apart(cores, usable)
