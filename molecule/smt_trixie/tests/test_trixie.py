# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run-time changes on Linux 6.12, after a round of boots that ended with SMT enabled."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

from guest import SAVED, control, cores_of, firsts, online, smt_state


def test_off_and_back(host):
    cores = cores_of(host)
    assert online(host) == firsts(cores, 2)
    done = smt_state(host, state="disabled")
    assert (done["changed"], online(host), control(host)) == (True, firsts(cores, 1), "off")
    assert smt_state(host, state="disabled")["changed"] is False
    assert smt_state(host, state="restored")["not_restored"] == []
    assert (online(host), control(host)) == (firsts(cores, 2), "on")
    assert not host.file(SAVED).exists


def test_nothing_about_smt_is_left_in_grub(host):
    assert host.run("grep -E 'nosmt|maxcpus' /boot/grub/grub.cfg /proc/cmdline").rc == 1


def test_an_evaluation_switches_measures_and_restores(host):
    results = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
    options = {
        "smt_eval_workloads": ["gzip"],
        "smt_eval_budget": 120,
        "smt_eval_dest": str(results / "results"),
        "smt_eval_run": "trixie",
    }
    command = [
        "ansible-playbook",
        "-i",
        str(results / "inventory"),
        "threadwise.smt.smt_eval",
        "-e",
        json.dumps(options),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((results / "results/trixie/smt-trixie.json").read_text())
    assert {sample["arm"] for sample in result["samples"]} == {"smt_on", "smt_off"}
    assert result["restored"]["ok"] is True
    assert (online(host), control(host)) == (firsts(cores_of(host), 2), "on")
