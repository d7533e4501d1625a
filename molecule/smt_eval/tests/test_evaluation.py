# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An evaluation of a guest, seen from outside: what it found, what it left, and what remains when it is killed."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
RESULTS = EPHEMERAL / "results"
CONTROL = "/sys/devices/system/cpu/smt/control"
RUNS = "/var/lib/threadwise-smt/runs"
PLAN = "[s]mt_plan"
BUDGET = 40


@pytest.fixture(name="before")
def state_before(host):
    """The SMT state before a test; no test leaves another."""
    state = smt_state(host)
    assert state == ("on", "0-3")
    return state


def smt_state(host):
    return host.check_output("cat " + CONTROL), host.check_output("cat /sys/devices/system/cpu/online")


def wait_for(what, seconds):
    """Whether something becomes true within a time; guests are slow when the machine is busy, so the time is generous."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(1)
    return False


def plans(host):
    """Pids of the plan's processes on the guest."""
    return host.run("pgrep -f %s", PLAN).stdout.split()


def start(host, run):
    """An evaluation in the background, in a process group of its own."""
    arguments = {"smt_eval_run": run, "smt_bench_budget": BUDGET, "smt_bench_workloads": ["gzip"], "smt_bench_placements": ["cores", "one_per_core"],
                 "smt_bench_dest": str(RESULTS)}
    command = ["ansible-playbook", "--inventory", str(EPHEMERAL / "inventory"), "threadwise.smt.smt_eval", "--extra-vars", json.dumps(arguments)]
    with open(EPHEMERAL / (run + ".log"), "w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)


def workers(pid):
    """Pids of a process's descendants: Ansible's workers have sessions of their own and outlive a kill of the process group."""
    children = [int(child) for child in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()]
    return [one for child in children for one in [*workers(child), child]]


def result(run, name="smt-eval"):
    return json.loads((RESULTS / run / (name + ".json")).read_text(encoding="utf-8"))


def test_the_known_truth_is_found(before):
    """Two vCPUs that share one CPU of this machine get half of it each, and the evaluation says so."""
    found = json.loads((RESULTS / "converge" / "results.json").read_text(encoding="utf-8"))
    sharing = [one for one in found["hosts"][0]["comparisons"]
               if (one["baseline"]["placement"], one["candidate"]["placement"]) == ("cores", "siblings")]
    assert sharing and all(one["ratio"] < 0.75 for one in sharing), sharing


def test_both_conditions_were_measured_and_the_state_was_put_back(before):
    measured = result("converge")
    assert measured["outcome"] == "completed" and measured["change"]["compared"]
    assert {sample["condition"] for sample in measured["samples"]} == {"smt_on", "smt_off"}
    assert all(sample["ok"] for sample in measured["samples"])
    assert measured["restored"]["ok"] and measured["restored"]["before"] == measured["restored"]["after"]
    off = next(sample for sample in measured["samples"] if sample["condition"] == "smt_off")
    assert set(off["cpu_usage"]) == {"0", "2"}, "with SMT off only the primaries may be online while it is timed"


def test_the_report_is_there_in_all_its_forms():
    for name in ("index.html", "results.json", "results.csv", "summary.md"):
        assert (RESULTS / "converge" / name).stat().st_size > 0


def test_nothing_is_left_on_the_guest(host, before):
    assert plans(host) == []
    assert host.run("ls " + RUNS).stdout == ""


def test_check_mode_says_what_it_would_do_and_does_nothing(host, before):
    arguments = json.dumps({"smt_bench_dest": str(RESULTS), "smt_eval_run": "checked"})
    done = subprocess.run(["ansible-playbook", "--check", "--inventory", str(EPHEMERAL / "inventory"), "threadwise.smt.smt_eval", "--extra-vars", arguments],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"CPUs 1,3", done.stdout)
    assert not (RESULTS / "checked").exists()
    assert host.run("ls " + RUNS).stdout == ""


def test_a_controller_that_is_killed_leaves_the_guest_to_put_itself_back(host, before):
    """kill -9 of ansible-playbook and all its processes, in the middle, with SMT off."""
    controller = start(host, "lost")
    try:
        assert wait_for(lambda: host.check_output("cat " + CONTROL) == "off", 120), (EPHEMERAL / "lost.log").read_text()
    finally:
        for pid in [*workers(controller.pid), controller.pid]:
            os.kill(pid, signal.SIGKILL)
        controller.wait()
    assert plans(host), "the plan does not need its controller"
    assert wait_for(lambda: not plans(host), BUDGET + 120)
    assert wait_for(lambda: smt_state(host) == before, 60)
    again = start(host, "after-lost")
    assert again.wait() == 0, (EPHEMERAL / "after-lost.log").read_text()
    assert "fetched" in (EPHEMERAL / "after-lost.log").read_text()
    fetched = result("lost")
    assert fetched["outcome"] == "completed" and fetched["restored"]["ok"]
    assert result("after-lost")["restored"]["ok"] and smt_state(host) == before


def test_a_plan_that_is_killed_is_put_back_by_its_guard(host, before):
    """kill -9 of the plan itself, with SMT off: the samples taken so far come home, and the task fails with the reason."""
    controller = start(host, "killed")
    assert wait_for(lambda: host.check_output("cat " + CONTROL) == "off", 120), (EPHEMERAL / "killed.log").read_text()
    for pid in plans(host):
        host.run("kill -9 %s", pid)
    assert wait_for(lambda: smt_state(host) == before, 60)
    assert controller.wait() != 0
    assert result("killed")["outcome"] == "interrupted" and result("killed")["restored"]["ok"]
