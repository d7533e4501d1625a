# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations of the guest in the background, and what they came to."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
RESULTS = EPHEMERAL / "results"
LAB = pathlib.Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"]).parents[1] / "tools" / "lab" / "lab.py"
GUEST = "smt-hostile-host"
RUNS = "/var/lib/threadwise-smt/runs"
CONTROL = "/sys/devices/system/cpu/smt/control"
# Only there to end what hangs.
TIME_LIMIT = 1800


def start(run, **changed):
    """An evaluation in the background; its output goes to a file."""
    arguments = {
        "smt_eval_run": run,
        "smt_eval_dest": str(RESULTS),
        "smt_eval_settle_seconds": 0.2,
        "smt_eval_probe": "never",
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


def said(run):
    return log_of(run).read_text(encoding="utf-8")


def wait_for(what, controller, run):
    end = time.monotonic() + TIME_LIMIT
    while not what():
        assert controller.poll() is None and time.monotonic() < end, said(run)
        time.sleep(0.5)


def result(run):
    return json.loads((RESULTS / run / (GUEST + ".json")).read_text(encoding="utf-8"))


def cut_power():
    """End the guest's QEMU without warning, and boot the guest again from its own disk."""
    subprocess.run([sys.executable, str(LAB), "cut", "--name", GUEST], check=True)


def state(host):
    return host.check_output("cat " + CONTROL), host.check_output("cat /sys/devices/system/cpu/online")
