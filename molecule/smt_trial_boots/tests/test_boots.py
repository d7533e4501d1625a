# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts of a parallel trial that are rebooted into their arm: they are back in their own state at its end, after a
breach, and without their controller.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest
import testinfra
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial import design, records
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import directory

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "tests/unit/support"))
from interruption import lose

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
INVENTORY = EPHEMERAL / "inventory"
TRIALS = EPHEMERAL / "trials"
BOOTED, OTHER = "smt-trial-boot-1", "smt-trial-boot-2"
ALL_CPUS, PRIMARIES = "0-3", "0,2"
ARMS = ("smt_on", "nosmt")
PLAIN = dict(os.environ, ANSIBLE_FORCE_COLOR="false")
# A guest on a busy machine takes minutes to boot.
PERIOD = 300


@pytest.fixture(name="run")
def a_trial(request):
    """Write the design of a trial of two hosts, a period in the baseline and two in the arm; return its name."""
    name = f"{request.node.name[-20:].strip('_')}-{time.time():.0f}"
    schedule = {BOOTED: ("smt_on", "nosmt", "nosmt"), OTHER: ("smt_on",) * 3}
    drawn = design.Design(design.PARALLEL, ((BOOTED, OTHER),), ((0,),), schedule, dict.fromkeys(schedule, 0), {})
    metric = records.Metric("cpus", "", "higher", True, None)
    titles = {"smt_on": "SMT on", "nosmt": "nosmt"}
    trial = records.Trial(name, "2026-11-23T12:00:00Z", ARMS, titles, (metric,), None, (), 0.01, PERIOD, 5, drawn, 1)
    directory.TrialDirectory(TRIALS / name).create(trial.written())
    return name


def command(run, **changed):
    options = {
        "run": run,
        "dest": str(TRIALS),
        "arms": list(ARMS),
        "design": "parallel",
        "metrics": [{"name": "cpus", "command": ["nproc"], "better": "higher", "primary": True}],
        "check": 5,
        "affinity_conflicts": "warn",
        "begin": time.monotonic() + 5,
        "_step": "follow",
        **changed,
    }
    return [
        "ansible",
        "-i",
        str(INVENTORY),
        "-f",
        "2",
        "all",
        "-m",
        "threadwise.smt.smt_trial_host",
        "-a",
        json.dumps(options),
    ]


@contextlib.contextmanager
def running(run, **changed):
    with (EPHEMERAL / f"{run}.log").open("wb") as log:
        process = subprocess.Popen(
            command(run, **changed),
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            cwd=EPHEMERAL,
            env=PLAIN,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            lose(process)


def guest(name):
    return testinfra.get_host(f"ansible://{name}?ansible_inventory={INVENTORY}")


def said(name, line):
    """What a command prints on a guest; empty while it cannot be reached."""
    try:
        return guest(name).run(line).stdout.strip()
    except (RuntimeError, AssertionError):
        return ""


def lines(run, name, kind):
    path = TRIALS / run / "hosts" / f"{name}.{kind}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_until(what, seconds):
    begun = time.monotonic()
    while not what():
        assert time.monotonic() - begun < seconds, "it never came"
        time.sleep(3)


def boot_files(name):
    """The boot configuration, without the time of the day in it."""
    return said(
        name, "sha256sum /etc/default/grub /etc/default/grub.d/* /boot/grub/grub.cfg; ls -R /etc/systemd/system"
    )


@pytest.fixture(autouse=True)
def as_found():
    before = {name: boot_files(name) for name in (BOOTED, OTHER)}
    yield
    wait_until(
        lambda: [said(name, "cat /sys/devices/system/cpu/online") for name in (BOOTED, OTHER)] == [ALL_CPUS] * 2, 1200
    )
    # It is removed when the host was seen without the arguments, a moment after the boot.
    wait_until(lambda: said(BOOTED, "ls -d /var/lib/threadwise-smt/boot-visit || echo gone") == "gone", 600)
    assert {name: boot_files(name) for name in (BOOTED, OTHER)} == before
    assert "nosmt" not in said(BOOTED, "cat /proc/cmdline")


def test_a_host_is_rebooted_into_its_arm_and_back(run):
    with running(run) as process:
        assert process.wait() == 0, (EPHEMERAL / f"{run}.log").read_text()
    of_booted, of_other = (lines(run, name, "periods") for name in (BOOTED, OTHER))
    assert [one["arm"] for one in of_booted] == ["smt_on", "nosmt", "nosmt"]
    # The period of the boot may have too little left to count.
    assert [one["metrics"]["cpus"]["value"] for one in (of_booted[0], of_booted[-1])] == [4.0, 2.0]
    assert [one["metrics"]["cpus"]["value"] for one in of_other] == [4.0] * 3
    assert all(lines(run, name, "ended")[-1]["restored"] for name in (BOOTED, OTHER))


def test_a_breached_guardrail_reboots_it_back(run):
    guardrails = [{"name": "cpus", "command": ["nproc"], "below": 3, "for": "1s"}]
    with running(run, guardrails=guardrails):
        wait_until(lambda: lines(run, BOOTED, "ended") != [], 3 * PERIOD)
    (end,) = lines(run, BOOTED, "ended")
    assert end["reason"].startswith("the guardrail cpus was breached") and end["restored"] and end["after"] == ALL_CPUS


def test_without_its_controller_it_goes_back_by_itself(run):
    with running(run) as process:
        wait_until(
            lambda: (
                lines(run, BOOTED, "periods") != []
                and said(BOOTED, "ls /etc/systemd/system/threadwise-smt-boot-visit.service") != ""
            ),
            2 * PERIOD,
        )
        lose(process)
    # It may boot into the arm or not, and is back in the end: the fixture waits for that.
    wait_until(lambda: said(BOOTED, "ls /var/lib/threadwise-smt/boot-visit || echo gone") == "gone", 1800)
