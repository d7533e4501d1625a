# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happens to a host in the middle of an evaluation costs no sample that was taken, and the host is as it was."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
RESULTS = EPHEMERAL / "results"
GUEST = "smt-eval-faults"
RUNS = "/var/lib/threadwise-smt/runs"
CONTROL = "/sys/devices/system/cpu/smt/control"
BUDGET = 300


def start(run, **changed):
    """An evaluation in the background; its output goes to a file."""
    arguments = {
        "smt_eval_run": run,
        "smt_eval_budget": BUDGET,
        "smt_eval_workloads": ["gzip"],
        "smt_eval_placements": ["cores", "one_per_core"],
        "smt_eval_margin": 0.0001,
        "smt_eval_dest": str(RESULTS),
        **changed,
    }
    command = [
        "ansible-playbook",
        "--inventory",
        str(EPHEMERAL / "inventory"),
        "threadwise.smt.smt_eval",
        "--extra-vars",
        json.dumps(arguments),
    ]
    with open(log_of(run), "w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def log_of(run):
    return EPHEMERAL / (run + ".log")


def wait_for(what, controller, run, seconds=300):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return
        assert controller.poll() is None, log_of(run).read_text()
        time.sleep(1)
    raise AssertionError(f"not within {seconds} s: {log_of(run).read_text()}")


def samples_on(host, run):
    """The index of each sample that the guest has kept so far."""
    lines = host.run("cat %s/%s/samples.jsonl", RUNS, run).stdout.splitlines()
    return [json.loads(line)["index"] for line in lines if line.endswith("}")]


def result(run):
    return json.loads((RESULTS / run / (GUEST + ".json")).read_text(encoding="utf-8"))


def state(host):
    return host.check_output("cat " + CONTROL), host.check_output("cat /sys/devices/system/cpu/online")


def test_a_disk_that_fills_up_loses_no_sample(host):
    """The runs' folder is a file system of its own, and another process takes all that is left of it."""
    before = state(host)
    host.check_output("mkdir -p %s && mount -t tmpfs -o size=16m none %s", RUNS, RUNS)
    try:
        controller = start("full")
        wait_for(lambda: len(samples_on(host, "full")) >= 6 and state(host)[0] == "off", controller, "full")
        taken = samples_on(host, "full")
        assert "No space left" in host.run("dd if=/dev/zero of=%s/filler bs=4k", RUNS).stderr
        assert controller.wait() != 0
        assert "No space left on device" in log_of("full").read_text(), log_of("full").read_text()
        found = result("full")
        assert found["outcome"] in ("failed", "interrupted") and "No space left on device" in found["message"]
        assert [sample["index"] for sample in found["samples"]][: len(taken)] == taken
        assert found["restored"]["ok"] and state(host) == before
        assert host.run("ls %s", RUNS).stdout.split() == ["filler"]
    finally:
        host.run("umount %s", RUNS)


def test_a_host_that_restarts_in_the_middle_loses_no_sample(host):
    """As by a power failure: nothing is written any more, nothing is asked."""
    before = state(host)
    controller = start("restarted")
    wait_for(lambda: len(samples_on(host, "restarted")) >= 6 and state(host)[0] == "off", controller, "restarted")
    taken = samples_on(host, "restarted")
    host.run("(sleep 1; echo b > /proc/sysrq-trigger) > /dev/null 2>&1 &")
    assert controller.wait() != 0
    found = result("restarted")
    assert found["outcome"] == "interrupted" and "restarted" in found["message"], found["message"]
    assert [sample["index"] for sample in found["samples"]][: len(taken)] == taken
    assert found["restored"]["ok"] and state(host) == before
    assert host.run("ls %s", RUNS).stdout == ""
    assert "restarted" in (RESULTS / "restarted" / "summary.md").read_text(encoding="utf-8")
