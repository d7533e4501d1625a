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

import calls
import pytest

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
SCENARIO = pathlib.Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"])
GUEST = "smt-exposure"
TRACING = "/sys/kernel/tracing"
PERIOD = 2.0
# CPU -> seconds of each period in which it is busy, and when they begin: no more than this machine can do.
PARTLY = {
    0: (PERIOD / 2, 0.0),
    1: (PERIOD / 2, PERIOD / 2),
    2: (PERIOD / 2, 0.0),
    3: (PERIOD / 2, PERIOD / 4),
}
ALWAYS = {0: (PERIOD, 0.0), 1: (PERIOD, 0.0)}
CORES = ((0, 1), (2, 3))
# A share of the time. Waking and going to sleep is work of the kernel, which an emulated CPU takes milliseconds for.
NEAR = 0.04
LOOK = {"seconds": 60, "windows": 40}


def usage(*words, **options):
    return calls.module(GUEST, "threadwise.smt.smt_usage", *words, **options)


@contextlib.contextmanager
def units(host, commands):
    """Run commands as units of systemd: name -> command."""
    for name, command in commands.items():
        host.check_output(f"systemd-run --quiet --unit={name} {command}")
    try:
        yield
    finally:
        host.check_output(f"systemctl stop {' '.join(commands)}")


@contextlib.contextmanager
def duties(host, planted):
    duty = str(SCENARIO / "files" / "duty.py")
    calls.module(GUEST, "ansible.builtin.copy", src=duty, dest="/root/duty.py", mode="0644")
    commands = {
        f"duty-{cpu}": f"python3 /root/duty.py {cpu} {PERIOD} {busy} {offset} /run/duty-{cpu}"
        for cpu, (busy, offset) in planted.items()
    }
    with units(host, commands):
        time.sleep(PERIOD)
        yield


def busy_times(host, cpu, begin, end):
    """When a CPU was busy between two moments, as its own program wrote it down."""
    if not host.file(f"/run/duty-{cpu}").exists:
        return []
    lines = [tuple(map(float, line.split())) for line in host.check_output(f"cat /run/duty-{cpu}").splitlines()]
    return [(max(start, begin), min(stop, end)) for start, stop in lines if start < end and stop > begin]


def together(host, cpus, begin, end):
    """The share of the time in which two CPUs were busy."""
    first, second = (busy_times(host, cpu, begin, end) for cpu in cpus)
    both = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in first for b in second)
    return both / (end - begin)


def now(host):
    return float(host.check_output("python3 -c 'import time; print(time.monotonic())'"))


@pytest.fixture(name="looked", scope="module")
def look_at_planted_times(host):
    with duties(host, PARTLY):
        begin = now(host)
        found = usage(**LOOK)
        end = now(host)
        time.sleep(PERIOD)
        truth = {cpus: together(host, cpus, begin, end) for cpus in CORES}
    print(truth, [(core["cpus"], core["several"]) for core in found["cores"]])
    return found, truth


@pytest.mark.parametrize("cpus", CORES)
def test_the_time_together_is_what_was_planted(cpus, looked):
    found, truth = looked
    assert found["method"] == "switches" and found["windows"] == LOOK["windows"], found["reason"]
    (core,) = [one for one in found["cores"] if tuple(one["cpus"]) == cpus]
    low, high = core["several"]
    assert low - NEAR <= truth[cpus] <= high + NEAR, (core, truth)
    assert (truth[cpus] > 0.15) == (cpus == (2, 3))


def test_usage_says_another_room_than_there_is(looked):
    use = looked[0]["use"]
    assert use["usage"] == pytest.approx(0.5, abs=2 * NEAR)
    assert use["room"][1] < use["by_usage"]


def test_whose_work_shared_cores_is_named(looked):
    found, truth = looked
    names = [f"/system.slice/duty-{cpu}.service" for cpu in (2, 3)]
    seconds = {tuple(sorted(pair["units"], key=str)): pair["seconds"] for pair in found["pairs"]}
    assert seconds[tuple(names)] / 3600 == pytest.approx(truth[2, 3], abs=2 * NEAR)
    ran = {unit["unit"]: unit["ran"] / 3600 for unit in found["units"]}
    assert [ran[name] for name in names] == pytest.approx([0.5, 0.5], abs=2 * NEAR)


def test_tasks_that_never_leave_their_cpus_are_named(host):
    with duties(host, ALWAYS):
        found = usage(seconds=20, windows=15)
    (core,) = [one for one in found["cores"] if one["cpus"] == [0, 1]]
    assert core["several"][0] > 1 - 2 * NEAR
    names = {"/system.slice/duty-0.service", "/system.slice/duty-1.service"}
    (seconds,) = [pair["seconds"] for pair in found["pairs"] if set(pair["units"]) == names]
    assert seconds / 3600 > 1 - 4 * NEAR


def test_work_that_lives_shorter_than_a_window_has_its_units_name(host):
    short = "sh -c 'while :; do /bin/true; done'"
    with units(
        host, {"short": f"--property=CPUAffinity=3 {short}", "beside": "--property=CPUAffinity=2 sha1sum /dev/zero"}
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
            str(calls.INVENTORY),
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
    found = usage("-e", "ansible_user=visitor", seconds=2)
    assert found["method"] == "counters" and "only root can watch" in found["reason"] and found["use"] is not None


def role(**variables):
    play = [{"hosts": GUEST, "gather_facts": False, "roles": [{"role": "threadwise.smt.smt_usage", "vars": variables}]}]
    (EPHEMERAL / "role.yml").write_text(json.dumps(play))
    done = calls.play(EPHEMERAL / "role.yml")
    return done.returncode, done.stdout + done.stderr


def test_a_host_that_looks_by_itself(host):
    textfile = "/var/lib/prometheus/node-exporter/usage.prom"
    given = {"smt_usage_textfile": textfile, "smt_usage_seconds": 5, "smt_usage_windows": 10}
    status, said = role(**given)
    assert status and "there is no /var/lib/prometheus/node-exporter" in said.replace("\n", " "), said
    host.check_output("mkdir -p /var/lib/prometheus/node-exporter")
    status, said = role(**given)
    assert status == 0, said
    while "threadwise_smt_shared_ratio" not in host.run(f"cat {textfile}").stdout:
        assert host.run("systemctl is-failed threadwise-smt-usage.service").rc, host.run(
            "journalctl -u threadwise-smt-usage.service"
        ).stdout
        time.sleep(1)
    assert 'threadwise_smt_sibling_info{cpu="3",core="2",package="0",node="0"} 1' in host.check_output(
        f"cat {textfile}"
    )
    assert "changed=0" in role(**given)[1]
    assert host.check_output("systemctl is-active threadwise-smt-usage.timer") == "active"
    status, said = role(**given, smt_usage_state="absent")
    assert status == 0, said
    assert not host.file(textfile).exists and host.check_output("ls /var/lib/threadwise-smt") in ("", "topology.json")
    assert host.run("systemctl status threadwise-smt-usage.timer").rc == 4


def test_units_have_their_names_under_cgroup_v1_too(host):
    """Last, because it boots the guest into another hierarchy."""
    host.check_output(
        "echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX systemd.unified_cgroup_hierarchy=0"
        " systemd.legacy_systemd_cgroup_controller=1\"' > /etc/default/grub.d/99-cgroup-v1.cfg && update-grub"
    )
    host.ansible("ansible.builtin.reboot", "reboot_timeout=1200", check=False)
    assert "0::" not in host.check_output("cat /proc/self/cgroup")
    with duties(host, ALWAYS):
        found = usage(seconds=20, windows=15)
    assert found["method"] == "switches", found["reason"]
    names = {"/system.slice/duty-0.service", "/system.slice/duty-1.service"}
    (seconds,) = [pair["seconds"] for pair in found["pairs"] if set(pair["units"]) == names]
    assert seconds / 3600 > 1 - 4 * NEAR
