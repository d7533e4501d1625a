# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two controllers at one guest at once: one waits or is refused with the other's name, and what both say is what is."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import time

import pytest

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
RESULTS = EPHEMERAL / "results"
GUEST = "smt-two-controllers"
CONTROL = "/sys/devices/system/cpu/smt/control"
ONLINE = "/sys/devices/system/cpu/online"
RECORD = "/var/lib/threadwise-smt/timer-rollback.json"
RUNS = {"root": "/var/lib/threadwise-smt/runs", "alice": "/home/alice/.local/state/threadwise-smt/runs"}
GO = "/var/tmp/go"
TIME_LIMIT = 900
# A sample that lasts until the test lets it go on.
HELD = {
    "name": "held",
    "argv": ["sh", "-c", f"until [ -e {GO} ]; do sleep 0.2; done; echo 1.5 MB/s"],
    "timeout": TIME_LIMIT,
    "metric": {"name": "throughput", "unit": "MB/s", "better": "higher", "pattern": "([0-9.]+) MB/s"},
}


class Controller:
    """A playbook of this collection's, run by a process of its own."""

    def __init__(self, name, playbook, **variables):
        self.log = EPHEMERAL / (name + ".log")
        command = [
            "ansible-playbook",
            "--inventory",
            str(EPHEMERAL / "inventory"),
            "threadwise.smt." + playbook,
            "--extra-vars",
            json.dumps(variables),
        ]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=EPHEMERAL
            )

    def ended(self):
        """Exit code and what it said."""
        self.process.wait(TIME_LIMIT)
        return self.process.returncode, self.said()

    def said(self):
        """All in one line: Ansible breaks long messages."""
        return re.sub(r"\s+", " ", self.log.read_text(encoding="utf-8"))


def evaluation(run, user, budget=180):
    """One that is held takes its time out of its budget."""
    return Controller(
        run,
        "smt_eval",
        ansible_user=user,
        smt_eval_run=run,
        smt_eval_budget=budget,
        # Without root SMT cannot be switched.
        smt_eval_arms=["smt_on", "smt_off"] if user == "root" else ["as_found"],
        smt_eval_margin=0.4,
        smt_eval_workloads=[],
        smt_eval_custom=[HELD],
        smt_eval_placements=["single"],
        smt_eval_dest=str(RESULTS),
    )


def wait_until(what, controller):
    end = time.monotonic() + TIME_LIMIT
    while not what():
        assert controller.process.poll() is None and time.monotonic() < end, controller.said()
        time.sleep(1)


def smt_state(host, **options):
    """The module's result, also of one that failed."""
    try:
        return host.ansible("threadwise.smt.smt_state", json.dumps(options), check=False)
    except host.ansible.AnsibleException as error:
        return error.result


def result(run):
    return json.loads((RESULTS / run / (GUEST + ".json")).read_text(encoding="utf-8"))


def measuring(host, run, user):
    """Whether the run has begun, so that its trial of the command is held."""
    return "fraction" in host.run("cat %s/%s/progress.json", RUNS[user], run).stdout


@pytest.fixture(autouse=True)
def held(host):
    host.check_output("rm -f %s", GO)
    yield
    host.check_output("touch %s; chmod 644 %s", GO, GO)


@pytest.mark.parametrize("user", ["root", "alice"])
def test_two_evaluations(host, user):
    """The second is refused, neither fetches nor removes the run of the first one, and is taken once that has ended."""
    before = host.check_output("cat %s %s", CONTROL, ONLINE)
    first = evaluation("first-" + user, user)
    wait_until(lambda: measuring(host, "first-" + user, user), first)
    code, said = evaluation("second-" + user, user).ended()
    assert code != 0, said
    assert re.search(
        rf"by an evaluation \(run first-{user}\), pid \d+ for user {user} from [0-9.]+ port \d+ since 2", said
    ), said
    assert measuring(host, "first-" + user, user)
    host.check_output("touch %s", GO)
    code, said = first.ended()
    assert code == 0, said
    taken = result("first-" + user)
    assert (taken["outcome"], taken["restored"]["ok"]) == ("completed", True) and all(
        sample["ok"] for sample in taken["samples"]
    )
    assert (len(taken["arms"]) == 2) is (user == "root")
    assert not (RESULTS / ("second-" + user) / (GUEST + ".json")).exists()
    assert host.check_output("cat %s %s", CONTROL, ONLINE) == before
    code, said = evaluation("third-" + user, user, budget=20).ended()
    assert code == 0 and result("third-" + user)["outcome"] == "completed", said
    assert host.check_output("ls %s", RUNS[user]) == ""


def test_a_policy_beside_an_evaluation(host):
    first = evaluation("evaluating", "root")
    wait_until(lambda: measuring(host, "evaluating", "root"), first)
    code, said = Controller("enforcing", "smt_enforce", smt_policy="disabled").ended()
    assert code != 0 and re.search(r"by an evaluation \(run evaluating\), pid \d+ for user root", said), said
    host.check_output("touch %s", GO)
    code, said = first.ended()
    assert code == 0 and result("evaluating")["restored"]["ok"], said
    assert host.check_output("cat %s", CONTROL) == "on"
    code, said = Controller("enforcing-again", "smt_enforce", smt_policy="disabled").ended()
    assert code == 0 and host.check_output("cat %s %s", CONTROL, ONLINE) == "off\n0,2,4,6", said
    assert smt_state(host, state="restored")["changed"]


def test_two_rollouts_of_one_policy(host):
    both = [
        Controller(f"rollout-{number}", "smt_enforce", smt_policy="disabled", smt_runtime_rollback_after=600)
        for number in (1, 2)
    ]
    ended = [one.ended() for one in both]
    done = [code for code, _said in ended].count(0)
    # Who comes in the middle of the other's change says so, and undoes nothing.
    for code, said in ended:
        flat = " ".join(said.split())
        assert code == 0 or "another rollout has begun to change this host" in flat or "waits for" in flat, said
    assert done in (1, 2)
    assert host.check_output("cat %s %s", CONTROL, ONLINE) == "off\n0,2,4,6"
    assert not host.file(RECORD).exists, "one of them has confirmed it"
    assert smt_state(host, state="restored")["changed"]


def test_one_confirms_what_the_other_has_changed_again(host):
    """The second change is another one: the first controller learns of it, and the second's confirmation counts."""
    assert smt_state(host, state="disabled", rollback_after=900)["rollback_pending"]
    assert smt_state(host, threads_per_core=2, rollback_after=900)["rollback_pending"]
    late = smt_state(host, state="disabled", confirm=True)
    assert "is not in the state asked for" in late["msg"]
    done = smt_state(host, threads_per_core=2, confirm=True)
    assert done["rollback_pending"] is False and host.check_output("cat %s", ONLINE) == "0-7"
    assert smt_state(host, threads_per_core=2, confirm=True)["changed"] is False, "the same confirmation twice"
    smt_state(host, state="restored")


def test_both_confirm_at_once(host):
    assert smt_state(host, state="disabled", rollback_after=900)["rollback_pending"]
    command = [
        "ansible",
        GUEST,
        "--inventory",
        str(EPHEMERAL / "inventory"),
        "-m",
        "threadwise.smt.smt_state",
        "-a",
        "state=disabled confirm=true",
    ]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _number in (1, 2)
    ]
    said = [one.communicate(timeout=TIME_LIMIT)[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    assert sorted('"changed": true' in text for text in said) == [False, True], said
    assert host.check_output("cat %s %s", CONTROL, ONLINE) == "off\n0,2,4,6" and not host.file(RECORD).exists
    smt_state(host, state="restored")


def test_a_user_who_pins_a_task_stops_nobody(host):
    """Alice is logged in, has a task on a sibling, and a setuid program beside it."""
    ssh = [
        "ansible",
        GUEST,
        "--inventory",
        str(EPHEMERAL / "inventory"),
        "-e",
        "ansible_user=alice",
        "-m",
        "ansible.builtin.shell",
        "-a",
        (
            "for cpu in 1 3; do nohup taskset -c $cpu sleep 1000 >/dev/null 2>&1 & done; (sleep 1000 | nohup taskset -c"
            " 1 su root) >/dev/null 2>&1 & sleep 1"
        ),
    ]
    subprocess.run(ssh, check=True, timeout=TIME_LIMIT)
    login = host.check_output("cat /proc/$(pgrep -u alice -n sleep)/loginuid")
    assert login == host.check_output("id -u alice"), "the kernel knows who logged in"
    refused = smt_state(host, state="disabled", affinity_conflicts_of=["all"])
    assert re.search(r"pid \d+ \w+ \(user alice, uid \d+, unit \S+, by the user alone\)", refused["msg"]), refused
    assert smt_state(host, state="disabled", affinity_conflicts_of=["services", "alice"])["msg"] == refused["msg"]
    assert host.check_output("cat %s", ONLINE) == "0-7"
    done = smt_state(host, state="disabled")
    assert done["changed"] and any("user alice" in conflict for conflict in done["affinity_conflicts"]), done
    assert smt_state(host, state="restored")["not_restored"] == []
    masks = host.check_output(
        "for pid in $(pgrep -u alice -x sleep); do grep Cpus_allowed_list /proc/$pid/status; done"
    )
    assert {line.split()[1] for line in masks.splitlines()} >= {"1", "3"}
    # A service that is pinned still counts.
    host.check_output("systemd-run --collect --unit=pinned taskset -c 1 sleep infinity")
    assert "unit pinned.service" in smt_state(host, state="disabled")["msg"]
    host.check_output("systemctl stop pinned; pkill -u alice")
