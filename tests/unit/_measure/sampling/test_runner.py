# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner, with real processes on this machine: pinned, started at the same moment,
ended with everything they started.
"""

from __future__ import annotations

import codecs
import ctypes
import importlib
import os
import signal
import subprocess
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


def test_a_command_is_not_a_shell_line():
    result = runner.run(["echo", "$(id); `id` | cat > x"], [[]])
    assert result["workers"][0]["output"] == "$(id); `id` | cat > x\n"


def test_input_is_read_from_its_beginning_by_each_worker(tmp_path):
    (tmp_path / "in").write_text("four\n")
    result = runner.run(["cat"], [[], []], stdin=str(tmp_path / "in"), directories=[str(tmp_path)] * 2)
    assert [worker["output"] for worker in result["workers"]] == ["four\n"] * 2
    assert runner.run(["cat"], [[]], stdin=str(tmp_path / "in"), keep_output=False)["workers"][0]["output"] == ""


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


def test_failures_and_signals_are_distinguished():
    failed, killed = (
        runner.run(["sh", "-c", line], [[]])["workers"][0] for line in ("echo no >&2; exit 3", "kill -9 $$")
    )
    assert (failed["exit_status"], failed["errors"]) == (3, "no\n")
    assert killed["exit_status"] == -signal.SIGKILL


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


def test_usage_and_steal_between_two_readings():
    idle, none = {"user": 10, "idle": 90, "iowait": 0, "steal": 0}, {"user": 0, "idle": 0, "iowait": 0, "steal": 0}
    after = {
        "0": {"user": 40, "idle": 110, "iowait": 0, "steal": 50},
        "1": {**none, "idle": 80, "iowait": 20},
        "2": idle,
    }
    assert runner.cpu_usage({"0": idle, "1": none}, after) == ({"0": 0.8, "1": 0.0}, 0.25)
    assert runner.cpu_usage({}, {}) == ({}, None) and set(runner.cpu_times()) >= {str(cpu) for cpu in HERE}


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


def test_co_runners_share_the_workers_cpu_and_end_with_the_sample(orphans):
    line = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"
    taken = runner.run(["sh", "-c", line], [[HERE[0]]], co_runners=runner.CoRunners([[HERE[0]]] * 3))
    worker = taken["workers"][0]
    assert taken["co_runners"] == 3
    assert worker["cpu_seconds"] < 0.6 * worker["wall_seconds"]
    assert orphans() == set()


def test_co_runners_have_their_own_cpus_and_niceness_and_one_on_an_offline_cpu_is_left_out(orphans):
    line = (
        "for pid in $(cat /proc/$PPID/task/$PPID/children); do [ $pid = $$ ] ||"
        " echo $(ps -o nice= -p $pid) $(sed -n 's/^Cpus_allowed_list:.//p' /proc/$pid/status); done"
    )
    beside = runner.CoRunners([[HERE[-1]], [4000], [HERE[-1]]], 19)
    taken = runner.run(["sh", "-c", line], [[HERE[0]]], co_runners=beside)
    assert taken["workers"][0]["output"] == f"19 {HERE[-1]}\n" * 2
    assert taken["co_runners"] == 2 and orphans() == set()


def test_niceness_applies_to_the_workers_only():
    mine = os.nice(0)
    assert runner.run(["nice"], [[]], nice=17)["workers"][0]["output"] == "17\n"
    assert os.nice(0) == mine


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take a capability from itself")
@pytest.mark.parametrize(
    ("argument", "words"),
    [("nice=-20", ""), ("co_runners=runner.CoRunners([[]], -20)", "a co-runner was not started: ")],
)
def test_a_higher_priority_needs_a_capability(argument, words):
    script = (
        "from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import runner;"
        f" runner.run(['true'], [[]], {argument})"
    )
    without = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice"]
    done = subprocess.run([*without, sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert f"RunnerError: {words}nice -20: only root may raise the priority of a process" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become an ordinary user")
def test_no_worker_of_an_ordinary_user_becomes_root():
    """The supervisor could not end it with the sample."""
    # An ordinary user may be unable to read this interpreter's files, so load what is needed now.
    assert codecs.lookup("ascii") and importlib.import_module("resource")
    report_read, report_write = os.pipe()
    plan = os.fork()
    if plan == 0:
        try:
            os.chdir("/")
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            (worker,) = runner.run(["grep", "NoNewPrivs", "/proc/self/status"], [[]])["workers"]
            os.write(report_write, worker["output"].encode("ascii"))
        finally:
            os._exit(0)
    os.close(report_write)
    os.waitpid(plan, 0)
    with os.fdopen(report_read) as report:
        assert report.read() == "NoNewPrivs:\t1\n"
