# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at siblings whose busy times are planted, by the scheduler's switches of a real kernel."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
import time

import pytest

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
INVENTORY = EPHEMERAL / "inventory"
SCENARIO = pathlib.Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])
GUEST = "smt-exposure"
TRACING = "/sys/kernel/tracing"
PERIOD = 2.0
# CPU -> seconds of each period in which it is busy, and when they begin.
DUTIES = {
    0: (PERIOD / 2, 0.0),
    1: (PERIOD / 2, PERIOD / 2),
    2: (PERIOD / 2, 0.0),
    3: (PERIOD / 2, PERIOD / 4),
    4: (PERIOD, 0.0),
    5: (PERIOD, 0.0),
    6: (PERIOD / 2, 0.0),
}
# The share of the time in which both are busy. A guest's CPUs are threads of an emulator that wait for a CPU of the
# machine now and then, so edges are not sharp.
TOGETHER = {(0, 1): 0.0, (2, 3): 0.25, (4, 5): 1.0, (6, 7): 0.0}
NEAR = 0.05
LOOK = {"seconds": 60, "windows": 40}


def usage(**options):
    done = subprocess.run(
        ["ansible", "-i", str(INVENTORY), GUEST, "-m", "threadwise.smt.smt_usage", "-a", json.dumps(options)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.partition("=> ")[2])


@contextlib.contextmanager
def units(host, commands):
    """Run commands as units of systemd: name -> command."""
    for name, command in commands.items():
        host.check_output(f"systemd-run --quiet --unit={name} {command}")
    try:
        yield
    finally:
        host.check_output(f"systemctl stop {' '.join(commands)}")


@pytest.fixture(name="looked", scope="module")
def look_at_planted_times(host):
    subprocess.run(
        [
            *("ansible", "-i", str(INVENTORY), GUEST, "-m", "ansible.builtin.copy", "-a"),
            f"src={SCENARIO / 'files/duty.py'} dest=/root/duty.py mode=0644",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    commands = {
        f"duty-{cpu}": f"python3 /root/duty.py {cpu} {PERIOD} {busy} {offset}" for cpu, (busy, offset) in DUTIES.items()
    }
    with units(host, commands):
        time.sleep(PERIOD)
        return usage(**LOOK)


@pytest.mark.parametrize("cpus", TOGETHER)
def test_the_time_together_is_what_was_planted(cpus, looked):
    assert looked["method"] == "switches" and looked["windows"] == LOOK["windows"], looked["reason"]
    (core,) = [one for one in looked["cores"] if tuple(one["cpus"]) == cpus]
    low, high = core["several"]
    assert low - NEAR <= TOGETHER[cpus] <= high + NEAR, core


def test_usage_says_another_room_than_there_is(looked):
    use = looked["use"]
    planted = sum(busy for busy, _offset in DUTIES.values()) / PERIOD
    assert use["usage"] == pytest.approx(planted / 8, abs=NEAR)
    # Three and three quarters of four cores have at least one busy thread, or less: core 3 is busy half of the time.
    assert use["busy"][0] - NEAR <= (1.0 + 0.75 + 1.0 + 0.5) / 4 <= use["busy"][1] + NEAR
    assert use["room"][1] < use["by_usage"]


def test_whose_work_shared_cores_is_named(looked):
    seconds = {tuple(sorted(pair["units"], key=str)): pair["seconds"] for pair in looked["pairs"]}
    found = {
        cpus: seconds.get(tuple(f"/system.slice/duty-{cpu}.service" for cpu in cpus), 0.0) / 3600 for cpus in TOGETHER
    }
    assert found == pytest.approx(TOGETHER, abs=2 * NEAR)
    (one,) = [unit for unit in looked["units"] if unit["unit"] == "/system.slice/duty-4.service"]
    assert one["ran"] == pytest.approx(3600, rel=0.1) and one["apart"] == pytest.approx(3600, rel=0.15)


def test_work_that_lives_shorter_than_a_window_has_its_units_name(host):
    short = "sh -c 'while :; do /bin/true; done'"
    with units(
        host, {"short": f"--property=CPUAffinity=7 {short}", "beside": "--property=CPUAffinity=6 sha1sum /dev/zero"}
    ):
        found = usage(seconds=20, windows=15)
    ran = {unit["unit"]: unit["ran"] for unit in found["units"]}
    assert ran["/system.slice/short.service"] > 0.5 * 3600
    assert ran.get(None, 0.0) < 0.1 * ran["/system.slice/short.service"]


def test_nothing_of_another_tracer_changes_and_nothing_is_left(host):
    settings = ("current_tracer", "tracing_on", "buffer_size_kb", "trace_clock", "set_event", "options/overwrite")
    host.check_output(f"echo 1 > {TRACING}/events/sched/sched_wakeup/enable")

    def state():
        return {name: host.check_output(f"cat {TRACING}/{name}") for name in settings}

    before = state()
    found = usage(seconds=5, windows=5)
    assert found["method"] == "switches" and state() == before
    assert "sched_wakeup" in host.check_output(f"tail -n 5 {TRACING}/trace")
    assert host.check_output(f"ls {TRACING}/instances") == ""
    host.check_output(f"echo 0 > {TRACING}/events/sched/sched_wakeup/enable")


def test_a_look_that_is_killed_leaves_nothing(host):
    call = subprocess.Popen(
        [
            "ansible",
            "-i",
            str(INVENTORY),
            GUEST,
            "-m",
            "threadwise.smt.smt_usage",
            "-a",
            '{"seconds": 600, "windows": 600}',
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    try:
        while not (found := host.check_output(f"ls {TRACING}/instances")):
            assert call.poll() is None
            time.sleep(1)
        host.check_output(f"kill -9 {found.rpartition('-')[2]}")
        while host.check_output(f"ls {TRACING}/instances"):
            time.sleep(0.5)
    finally:
        call.kill()
        call.wait()


def test_an_ordinary_user_is_told_why_only_counters_are_read(host):
    host.check_output("useradd --create-home visitor")
    host.check_output("mkdir -p /home/visitor/.ssh && cp /root/.ssh/authorized_keys /home/visitor/.ssh/")
    host.check_output("chown -R visitor /home/visitor/.ssh && chmod 700 /home/visitor/.ssh")
    done = subprocess.run(
        [
            *("ansible", "-i", str(INVENTORY), GUEST, "-e", "ansible_user=visitor", "-m", "threadwise.smt.smt_usage"),
            *("-a", '{"seconds": 2}'),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true"},
    )
    found = json.loads(done.stdout.partition("=> ")[2])
    assert found["method"] == "counters" and "only root can watch" in found["reason"] and found["use"] is not None
