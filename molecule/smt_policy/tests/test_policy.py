# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One policy on four guests of two hardware classes, from the evaluation of a sample to what keeps it.

The tests build on one another.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
import testinfra

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
INVENTORY = EPHEMERAL / "inventory"
RESULTS = EPHEMERAL / "results"
HEALTH = pathlib.Path(__file__).parent.parent / "files/health.yml"
GUESTS = A1, A2, S1, S2 = [f"smt-policy-{name}" for name in ("adjacent-1", "adjacent-2", "split-1", "split-2")]
CONTROL = "/sys/devices/system/cpu/smt/control"
PENDING_ROLLBACK = "/var/lib/threadwise-smt/rollout-rollback.json"
BY_HAND = "/etc/default/grub.d/10-lab.cfg"
MEMORY = "/etc/sysctl.d/99-threadwise-smt-memory.conf"
TIME_LIMIT = 1800
# Molecule has colours forced where it is called from a terminal; they would stand between the words that tests look
# for.
PLAIN = dict(os.environ, ANSIBLE_FORCE_COLOR="false")

# A job whose time counts, where siblings contend, and a rate, where all threads together get more done.
EVALUATION = {
    "smt_eval_sample": 1,
    "smt_eval_run": "sample",
    "smt_eval_dest": str(RESULTS),
    "smt_eval_budget": 90,
    "smt_eval_placements": ["all_threads"],
    "smt_eval_workloads": "{{ {'adjacent': [], 'split': ['gzip']}[lab_numbering] }}",
    "smt_eval_custom": "{{ {'adjacent': [job], 'split': []}[lab_numbering] }}",
    "job": {
        "name": "job",
        "title": "A job",
        "argv": ["sh", "-c", "i=0; while [ $i -lt 8000 ]; do i=$((i+1)); done"],
        "metric": {"name": "time", "unit": "s", "better": "lower", "clock": "wall_seconds", "aggregate": "max"},
    },
}
AUTO = {
    "smt_policy": "auto",
    "smt_policy_results": str(RESULTS),
    "smt_policy_scope": "both",
    "smt_enforce_waves": ["100%"],
}


def command(playbook, variables, *arguments):
    given = dict(variables, smt_boot_reboot_timeout=TIME_LIMIT)
    return ["ansible-playbook", "-i", str(INVENTORY), f"threadwise.smt.{playbook}", "-e", json.dumps(given), *arguments]


def play(playbook, variables, *arguments):
    """Call a playbook of the collection.

    Returns (exit code, host -> status in its last table, host -> how many changes, all that a person sees).
    """
    done = subprocess.run(
        command(playbook, variables, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        cwd=EPHEMERAL,
        env=PLAIN,
    )
    print(done.stdout)
    table = done.stdout.rpartition("\nhost  ")[2].partition("\n\n")[0]
    statuses = dict(
        re.findall(r"^(\S+) +(compliant|waived|drifted|bad_policy|unknown|unreachable)\b", table, re.MULTILINE)
    )
    changes = dict(re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", done.stdout, re.MULTILINE))
    return done.returncode, statuses, {host for host, count in changes.items() if int(count)}, done.stdout


def judged(variables):
    """Compliance by the file for programs: (exit code, host -> what is said of it)."""
    code = play("smt_compliance", variables)[0]
    return code, {host["host"]: host for host in json.loads((EPHEMERAL / "smt_compliance.json").read_text())["hosts"]}


def guest(name):
    return testinfra.get_host(f"ansible://{name}?ansible_inventory={INVENTORY}")


def ask(name, what):
    return guest(name).check_output(what)


def states(*names):
    """Each guest's smt/control and the SMT arguments of the entry that grub boots, as words."""
    seen = [ask(name, f"cat {CONTROL}; grep -m1 '^[[:space:]]*linux' /boot/grub/grub.cfg") for name in names]
    return [" ".join([text.split()[0], *re.findall(r"nosmt\S*", text)]) for text in seen]


def boots(*names):
    return [ask(name, "cat /proc/sys/kernel/random/boot_id") for name in names]


def looked_at(name):
    """When the health check was run on a guest, seconds since 1970 by its clock."""
    return [int(line) for line in ask(name, "cat /var/tmp/looked-at 2>/dev/null || true").split()]


def written(name):
    """What was written on a guest, of all that somebody would set, since /run/mark was touched."""
    found = ask(name, "find /etc /boot /var/lib/threadwise-smt -xdev -type f -newer /run/mark").split()
    return {
        path
        for path in found
        if pathlib.PurePath(path).name not in ("ld.so.cache", "grubenv", "topology.json", "watchdog.log")
    }


def mark():
    for name in GUESTS:
        ask(name, "touch /run/mark; sleep 1")


def desired(adjacent, split, **more):
    """A policy by hardware class, as the guests' facts name the classes."""
    return {
        "smt_policy_classes": dict(zip(CLASSES, (adjacent, split))),
        "smt_policy_scope": "both",
        "smt_enforce_health_check": str(HEALTH),
        **more,
    }


CLASSES = []


@pytest.fixture(scope="module", autouse=True)
def _classes():
    _dummy, hosts = judged({"smt_policy": "enabled"})
    CLASSES.extend([hosts[A1]["hardware_class"], hosts[S1]["hardware_class"]])
    assert [hosts[name]["hardware_class"] for name in GUESTS] == [
        CLASSES[0],
        CLASSES[0],
        CLASSES[1],
        CLASSES[1],
    ] and len(set(CLASSES)) == 2


def test_a_sample_of_each_class_is_evaluated_and_speaks_for_the_others():
    # One after the other: they share this machine's two CPUs.
    code, dummy, _dummy, seen = play("smt_eval", EVALUATION, "--forks=1")
    assert code == 0
    assert (
        f"{CLASSES[0]}: {A1} measured, for {A1}, {A2}" in seen
        and f"{CLASSES[1]}: {S1} measured, for {S1}, {S2}" in seen
    )
    assert {path.stem for path in (RESULTS / "sample").glob("smt-policy-*.json")} == {A1, S1}
    assert states(*GUESTS) == ["on", "on", "on", "forceoff nosmt=force"], "as it was"


def test_auto_is_put_in_force_with_a_reboot_where_it_takes_one():
    before = boots(*GUESTS)
    code, statuses, changed, _dummy = play("smt_enforce", dict(AUTO, smt_policy_reboot_ok=True))
    assert (code, statuses, changed) == (0, dict.fromkeys(GUESTS, "compliant"), {A1, A2, S2})
    assert states(*GUESTS) == ["off nosmt", "off nosmt", "on", "on"]
    assert [now == then for now, then in zip(boots(*GUESTS), before)] == [True, True, True, False]
    code, hosts = judged(AUTO)
    assert code == 0 and {host["status"] for host in hosts.values()} == {"compliant"}
    assert f"evaluation of {A1} in run sample, less than a day old" in hosts[A2]["decided_by"]
    assert f"evaluation of {S1} in run sample" in hosts[S2]["decided_by"]


def test_what_somebody_changed_by_hand_is_named_and_mended_and_nothing_else():
    ask(A1, f"echo on >{CONTROL}")
    ask(S1, f"sed -i 's/console=ttyS0/console=ttyS0 nosmt/' {BY_HAND} && update-grub")
    mark()
    code, hosts = judged(AUTO)
    assert code == 2 and {name: host["status"] for name, host in hosts.items()} == {
        A1: "drifted",
        A2: "compliant",
        S1: "drifted",
        S2: "compliant",
    }
    assert [hosts[A1][aspect]["status"] for aspect in ("running", "configured")] == ["drifted", "compliant"]
    assert [hosts[S1][aspect]["status"] for aspect in ("running", "configured")] == ["compliant", "drifted"]
    code, statuses, dummy, dummy = play("smt_enforce", AUTO, "--check")
    assert (code, statuses) == (
        0,
        {name: host["status"] for name, host in hosts.items()},
    ), "the same answer, and what would be changed is no error"
    assert (states(A1, S1), [written(name) for name in GUESTS]) == (["on nosmt", "on nosmt"], [set()] * 4)

    code, statuses, changed, dummy = play("smt_enforce", AUTO)
    assert (code, statuses, changed) == (0, dict.fromkeys(GUESTS, "compliant"), {A1, S1})
    assert states(*GUESTS) == ["off nosmt", "off nosmt", "on", "on"]
    assert written(A2) == written(S2) == set()
    assert not any(path.startswith(("/etc", "/boot")) for path in written(A1)), "its boot arguments were as wanted"
    assert all("grub" in path for path in written(S1)), "its running system was as wanted"
    code, dummy, changed, _dummy = play("smt_enforce", AUTO)
    assert (code, changed) == (0, set())


def test_a_sick_guest_in_wave_2_stops_the_rollout_and_is_brought_back():
    ask(A2, "touch /run/sick")
    mark()
    policy = desired("enabled", "disabled", smt_enforce_waves=[1, 1, 2])
    code, dummy, changed, seen = play("smt_enforce", policy)
    assert code != 0 and changed == {A1, A2} and f"{A2} was brought back to the state before the wave" in seen
    assert states(*GUESTS) == ["on", "off nosmt", "on", "on"]
    assert written(S1) == written(S2) == set(), "the third wave was not reached"
    ask(A2, "rm /run/sick")
    code, statuses, changed, _dummy = play("smt_enforce", policy)
    assert (code, statuses, changed) == (
        0,
        dict.fromkeys(GUESTS, "compliant"),
        {A2, S1, S2},
    ), "it goes on where it stopped"
    assert states(*GUESTS) == ["on", "on", "off nosmt", "off nosmt"]


def test_a_part_that_was_kept_is_brought_back_as_it_was_and_not_to_the_first_state():
    shown = (
        "cat /sys/devices/system/cpu/online /etc/tmpfiles.d/threadwise-smt.conf; sysctl vm.overcommit_memory; cat "
        + MEMORY
    )
    part = {
        "smt_policy": {"disabled_on": {"cpus": "0-1"}},
        "smt_runtime_persist": "tmpfiles",
        "smt_memory_overcommit": "always",
    }
    assert play("smt_enforce", part, "--limit", A1)[0] == 0
    before = ask(A1, shown)
    assert before.startswith("0,2-3\n") and "vm.overcommit_memory = 1" in before
    ask(A1, "touch /run/sick")
    code, dummy, _dummy, seen = play(
        "smt_enforce",
        {"smt_policy": "disabled", "smt_memory_overcommit": "heuristic", "smt_enforce_health_check": str(HEALTH)},
        "--limit",
        A1,
    )
    assert code != 0 and "(CPUs 0,2-3 online, kept over boots, vm.overcommit_memory 1, vm.panic_on_oom 0)" in seen
    assert ask(A1, shown) == before and not guest(A1).file(PENDING_ROLLBACK).exists
    ask(A1, "rm /run/sick")
    for module in ("smt_state", "smt_memory"):
        subprocess.run(
            ["ansible", A1, "-i", str(INVENTORY), "-b", "-m", f"threadwise.smt.{module}", "-a", "state=restored"],
            check=True,
            stdin=subprocess.DEVNULL,
        )
    assert ask(A1, "cat /sys/devices/system/cpu/online") == "0-3"


def kill_when(policy, held):
    """Start a rollout, and kill its controller with all of its processes while the health check of a guest is held."""
    ask(held, "touch /run/hold; rm -f /var/tmp/looked-at")
    with (
        open(EPHEMERAL / "killed.log", "w", encoding="utf-8") as log,
        subprocess.Popen(
            command("smt_enforce", policy),
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=EPHEMERAL,
            env=PLAIN,
        ) as controller,
    ):
        end = time.monotonic() + TIME_LIMIT
        while not looked_at(held) and controller.poll() is None and time.monotonic() < end:
            time.sleep(1)
        # The controller first, so that it starts nothing any more; one of its workers may have ended by itself before.
        for pid in [controller.pid, *workers(controller.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    print((EPHEMERAL / "killed.log").read_text())
    ask(held, "rm /run/hold")


def workers(pid):
    """Pids of a process's descendants: Ansible's workers have sessions of their own."""
    children = [
        int(child)
        for child in subprocess.run(
            ["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False
        ).stdout.split()
    ]
    return [one for child in children for one in [*workers(child), child]]


def test_after_a_controller_was_killed_in_wave_3_its_guest_is_looked_at_again_and_can_go_back():
    policy = desired("disabled", "enabled", smt_policy_scope="runtime", smt_enforce_waves=[1])
    kill_when(policy, S1)
    assert states(*GUESTS) == ["off", "off", "on nosmt", "off nosmt"]
    mark()
    dummy, hosts = judged(policy)
    assert {name: (host["status"], host["pending_rollback"]) for name, host in hosts.items()} == {
        A1: ("compliant", False),
        A2: ("compliant", False),
        S1: ("compliant", True),
        S2: ("drifted", False),
    }
    ask(S1, "touch /run/sick")
    code, dummy, _dummy, seen = play("smt_enforce", policy)
    assert (
        code != 0
        and f"wave 1: {S1}\nwave 2: {S2}\n" in seen
        and f"{S1} was brought back to the state before the wave" in seen
    )
    assert states(S1, S2) == ["off nosmt", "off nosmt"]
    assert [written(name) for name in (A1, A2, S2)] == [set()] * 3
    assert not guest(S1).file(PENDING_ROLLBACK).exists
    ask(S1, "rm /run/sick")


def test_after_a_host_rebooted_by_itself_the_next_run_finishes_and_nothing_is_done_twice():
    policy = desired("disabled", "enabled", smt_enforce_waves=[1])
    ask(S1, "touch /run/reboot")
    before = boots(S1)
    code, dummy, changed, dummy = play("smt_enforce", policy, "--limit", f"{S1},{S2}")
    assert code != 0 and S2 not in changed
    subprocess.run(
        [
            "ansible",
            S1,
            "-i",
            str(INVENTORY),
            "-m",
            "ansible.builtin.wait_for_connection",
            "-a",
            f"timeout={TIME_LIMIT}",
        ],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert boots(S1) != before and states(S1) == ["on"] and guest(S1).file(PENDING_ROLLBACK).exists
    mark()
    times = len(looked_at(S1))
    code, statuses, _dummy, seen = play("smt_enforce", policy, "--limit", f"{S1},{S2}")
    assert (code, statuses) == (0, dict.fromkeys((S1, S2), "compliant")) and f"wave 1: {S1}\nwave 2: {S2}\n" in seen
    assert len(looked_at(S1)) == times + 1 and written(S1) == set(), "it is looked at, and nothing is changed again"
    assert states(S2) == ["on"] and not any(guest(name).file(PENDING_ROLLBACK).exists for name in GUESTS)


def test_two_of_a_group_are_not_rebooted_at_once_and_a_host_that_is_gone_stops_nobody(tmp_path):
    gone = {"ansible_host": "127.0.0.1", "ansible_port": 1}
    (tmp_path / "more.yml").write_text(
        json.dumps({"lab": {"hosts": {A1: {"smt_policy_group": "db"}, S1: {"smt_policy_group": "db"}, "gone": gone}}})
    )
    for name in (A1, S1, S2):
        ask(name, "rm -f /var/tmp/looked-at")
    before = boots(A1, S1, S2)
    policy = desired(
        "disabled", "disabled", smt_policy_reboot_ok=True, smt_policy_scope="boot", smt_enforce_waves=["100%"]
    )
    code, statuses, dummy, seen = play(
        "smt_enforce", policy, "-i", str(tmp_path / "more.yml"), "--limit", f"{A1},{S1},{S2},gone"
    )
    assert code != 0 and statuses == {"gone": "unreachable", **dict.fromkeys((A1, S1, S2), "compliant")}
    assert f"wave 1: {A1}, {S2}\nwave 2: {S1}\n" in seen
    (well,) = looked_at(A1)
    assert int(ask(S1, "awk '/^btime/ {print $2}' /proc/stat")) > well, (
        "it went down after the other one of its group was well again"
    )
    assert states(A1, S1, S2) == ["off nosmt"] * 3 and not set(boots(A1, S1, S2)) & set(before)
    code, dummy, changed, _dummy = play("smt_enforce", policy, "--limit", f"{A1},{S1},{S2}")
    assert (code, changed) == (0, set()), "once is enough"


def test_a_memory_policy_is_held_now_and_at_the_next_boot():
    policy = {"smt_policy": "disabled", "smt_memory_overcommit": "heuristic"}
    assert play("smt_enforce", policy, "--limit", A2)[:3] == (0, {A2: "compliant"}, {A2})
    ask(A2, f"sed -i 's/=0/=1/' {MEMORY}")
    code, statuses, _dummy, seen = play("smt_compliance", policy, "--limit", A2)
    assert (code, statuses) == (
        2,
        {A2: "drifted"},
    ) and f"memory configured: {MEMORY} sets vm.overcommit_memory to 1 instead of 0 at boot" in seen
    assert play("smt_enforce", policy, "--limit", A2)[:3] == (0, {A2: "compliant"}, {A2})
    assert "vm.overcommit_memory=0" in ask(A2, f"cat {MEMORY}")
