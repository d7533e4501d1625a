# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guest's QEMU is ended without warning in the middle of what a program writes: what was confirmed is there after
the boot, and the next call works.
"""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest
from guest import EPHEMERAL, RUNS, cut_power, result, said, start, state, wait_for

# An evaluation is cut when it has kept so many samples; before the first of these there is no more than its folder, or
# its header.
MOMENTS = ["folder", "header", 1, 2, 3, 5, 8, 9, 12, 14]
# Seconds after which a change of the boot arguments is cut. On an emulated guest the module takes longer than the last
# of them.
DELAYS = [0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10]
PLAN = {
    "smt_eval_workloads": ["gzip"],
    "smt_eval_placements": ["cores", "one_per_core"],
    "smt_eval_budget": 900,
    "smt_eval_margin": 0.0001,
    "smt_eval_sample_seconds": 0.2,
}


def samples_on(host, run):
    """The index of each sample that the guest says it has kept so far."""
    lines = host.run("cat %s/%s/samples.jsonl", RUNS, run).stdout.splitlines()
    return [json.loads(line)["index"] for line in lines if line.endswith("}")]


def reached(host, run, moment):
    if isinstance(moment, int):
        return len(samples_on(host, run)) >= moment
    return host.file(f"{RUNS}/{run}" + ("/header.json" if moment == "header" else "")).exists


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_evaluation_loses_no_sample_that_was_kept(host, moment):
    run = f"cut-{moment}"
    before = ("on", "0-3")
    controller = start(run, **PLAN)
    wait_for(lambda: reached(host, run, moment), controller, run)
    taken = samples_on(host, run)
    cut_power()
    assert controller.wait() != 0
    assert state(host) == before
    if os.path.exists(EPHEMERAL / "results" / run / "smt-hostile-host.json"):
        found = result(run)
        assert [sample["index"] for sample in found["samples"]][: len(taken)] == taken and found[
            "outcome"
        ] == "interrupted"
        assert found["restored"] is None or found["restored"]["ok"]
    else:
        assert not taken, said(run)
    if taken:
        assert host.run("ls %s", RUNS).stdout == "", "the controller has it, and the guest has forgotten it"


def test_the_next_evaluation_works_and_sweeps_up(host):
    assert start("after-cuts", **{**PLAN, "smt_eval_budget": 20}).wait() == 0, said("after-cuts")
    assert host.run("ls -A %s", RUNS).stdout == ""


def boot_arguments(smt, wait=True):
    command = [
        "ansible",
        "all",
        "--inventory",
        str(EPHEMERAL / "inventory"),
        "-m",
        "threadwise.smt.smt_boot_args",
        "-a",
        "smt=" + smt,
    ]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    )
    return running.communicate()[0] if wait else running


def configured(host):
    """Whether each entry of grub's is to boot without SMT, a set."""
    lines = [
        line.split()
        for line in host.file("/boot/grub/grub.cfg").content_string.splitlines()
        if line.strip().startswith("linux\t")
    ]
    assert len(lines) >= 2
    return {"nosmt" in words for words in lines if "single" not in words}


@pytest.mark.parametrize("delay", DELAYS)
def test_boot_arguments_are_those_before_or_those_wanted_and_it_boots(host, delay):
    """What the call before confirmed, and was booted with, is not lost."""
    assert '"changed":' in boot_arguments("enabled") and configured(host) == {False}
    running = boot_arguments("disabled", wait=False)
    time.sleep(delay)
    confirmed = running.poll() == 0
    cut_power()
    running.communicate()
    booted = "nosmt" in host.file("/proc/cmdline").content_string.split()
    assert configured(host) in ({False}, {True}) and (booted or not confirmed)
    assert "nosmt" in boot_arguments("disabled") and configured(host) == {True}
    assert host.run("find /etc /boot -name '.*threadwise*'").stdout == ""
    host.run_test("grub-script-check /boot/grub/grub.cfg")


def test_the_guest_is_as_it_was(host):
    boot_arguments("enabled")
    assert configured(host) == {False}
