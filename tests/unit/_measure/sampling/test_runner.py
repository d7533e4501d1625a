# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner, with real processes on this machine: pinned, started at the same moment,
ended with everything they started.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

import pytest
import time_limit
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import runner
from process_state import alive

HERE = sorted(os.sched_getaffinity(0))
# prctl(2): descendants that lose their parent become children of this process.
PR_SET_CHILD_SUBREAPER = 36
PRINT_MASK = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]


def gone(pid, time_limit=600.0):
    until = time.monotonic() + time_limit
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


def test_each_worker_is_pinned_to_its_cpus():
    result = runner.run(PRINT_MASK, [[cpu] for cpu in HERE] + [[]])
    assert [worker["output"].strip() for worker in result["workers"]] == [f"[{cpu}]" for cpu in HERE] + [str(HERE)]
    assert all(worker["exit_status"] == 0 for worker in result["workers"])


@pytest.mark.skipif(not os.path.exists("/sys/devices/system/node/node0"), reason="this kernel has no NUMA nodes")
def test_the_memory_of_workers_comes_from_one_node():
    policies = []
    for node in (None, 0):
        (worker,) = runner.run(["cat", "/proc/self/numa_maps"], [[HERE[0]]], memory_node=node)["workers"]
        policies.append({line.split()[1] for line in worker["output"].splitlines()})
    assert policies == [{"default"}, {"bind:0"}]


def test_workers_are_measured_one_by_one_and_start_at_the_same_moment(tmp_path):
    """Each worker waits for the other one: workers that ran one after the other would wait until the time limit."""
    meet = ["sh", "-c", f"touch {tmp_path}/$$; until [ $(ls {tmp_path} | wc -l) = 2 ]; do sleep 0.05; done"]
    done = runner.run(meet, [[], [HERE[0]]], timeout=600)
    workers = done["workers"]
    assert not done["timed_out"] and [worker["exit_status"] for worker in workers] == [0, 0]
    assert all(worker["wall_seconds"] > 0 and worker["cpu_seconds"] >= 0 for worker in workers)


def test_output_without_end_is_bounded():
    result = runner.run(["sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x; echo end"], [[]])
    assert len(result["workers"][0]["output"]) == runner.OUTPUT_LIMIT
    assert result["workers"][0]["output"].endswith("xend\n") and result["workers"][0]["cut"]


@pytest.mark.parametrize(
    ("argv", "cpus", "node", "reason"),
    [
        (["no-such-command"], [], None, "no-such-command: command not found on this host"),
        ([os.devnull], [], None, "/dev/null cannot be run: Permission denied"),
        (["true"], [1 << 14], None, "cannot pin to CPU 16384: it is offline, or this process may not use it"),
        (["true"], [], 1000, "memory of node 1000 cannot be used: (it has no memory|the kernel has no)"),
    ],
)
def test_a_command_that_cannot_start_is_an_error_with_the_reason(argv, cpus, node, reason):
    with pytest.raises(runner.RunnerError, match=reason):
        runner.run(argv, [[], cpus], memory_node=node)


def test_children_left_behind_are_ended():
    result = runner.run(["sh", "-c", "setsid sh -c 'sleep 300 & echo $!' & wait"], [[]])
    assert gone(int(result["workers"][0]["output"]))


def test_a_hanging_worker_that_ignores_sigterm_is_killed_with_its_children(tmp_path, monkeypatch):
    time_limit.not_before(monkeypatch, (tmp_path / "hangs").exists)
    result = runner.run(
        ["sh", "-c", f"trap '' TERM; sleep 300 & echo $!; touch {tmp_path}/hangs; while :; do sleep 0.1; done"],
        [[]],
        timeout=1,
    )
    assert result["timed_out"] and result["workers"][0]["wall_seconds"] >= 1
    assert gone(int(result["workers"][0]["output"]))


def test_workers_die_with_a_caller_that_is_killed(tmp_path):
    pid_file = tmp_path / "pid"
    caller = os.fork()
    if caller == 0:
        runner.run(
            ["sh", "-c", f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 300"], [[]], timeout=300
        )
        os._exit(0)
    while not pid_file.exists():
        time.sleep(0.02)
    os.kill(caller, signal.SIGKILL)
    os.waitpid(caller, 0)
    assert gone(int(pid_file.read_text()))


def test_a_supervisor_that_is_killed_while_it_reports_fails_its_sample_only(monkeypatch):
    def report_in_part(_report, stream):
        stream.write('[null, {"workers": [')
        stream.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(runner.json, "dump", report_in_part)
    with pytest.raises(runner.RunnerError, match="the supervisor of true was killed before it had reported its result"):
        runner.run(["true"], [[]])


@pytest.fixture(name="orphans")
def children_and_orphans():
    """Return a function that lists the new children of this process, orphaned descendants included."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
        before = set(listed.read().split())
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def look():
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
            return set(listed.read().split()) - before

    yield look
    libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def test_co_runners_have_their_own_cpus_and_niceness_and_one_on_an_offline_cpu_is_left_out(orphans):
    line = (
        "for pid in $(cat /proc/$PPID/task/$PPID/children); do [ $pid = $$ ] ||"
        " echo $(ps -o nice= -p $pid) $(sed -n 's/^Cpus_allowed_list:.//p' /proc/$pid/status); done"
    )
    beside = runner.CoRunners([[HERE[-1]], [4000], [HERE[-1]]], 19)
    taken = runner.run(["sh", "-c", line], [[HERE[0]]], co_runners=beside)
    assert taken["workers"][0]["output"] == f"19 {HERE[-1]}\n" * 2
    assert taken["co_runners"] == 2 and orphans() == set()
