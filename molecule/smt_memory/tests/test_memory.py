# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Memory policies in a guest: what processes get under them, what a real out-of-memory does, and restoring the policy.

The tests build on one another.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import time

import pytest

INVENTORY = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
RESULTS = INVENTORY.parent / "results"
PLAY = pathlib.Path(__file__).parent.parent / "policy.yml"
OURS = "/etc/sysctl.d/99-threadwise-smt-memory.conf"
KEPT = "/var/lib/threadwise-smt/memory.json"
DROP_IN = "/etc/systemd/system/held.service.d/zz-threadwise-smt-memory.conf"
STRICT = {"smt_memory_overcommit": "strict", "smt_memory_overcommit_ratio": 95, "smt_memory_protect": ["held"]}
HEURISTIC = {"smt_memory_overcommit": "heuristic", "smt_memory_protect": ["held"]}
RESTORED = {"smt_memory_state": "restored"}
BEFORE = {
    "vm.overcommit_memory": "1",
    "vm.overcommit_ratio": "0",
    "vm.overcommit_kbytes": "500004",
    "vm.panic_on_oom": "0",
    "kernel.panic": "77",
}
MIB = 1 << 20
REBOOT_SECONDS = 600
# A shared connection outlives the panic of its guest without a word, and whoever uses it waits for ever.
ENVIRONMENT = dict(
    os.environ, ANSIBLE_SSH_ARGS="-o ControlMaster=no -o ServerAliveInterval=15 -o ServerAliveCountMax=8"
)


def policy(variables, *arguments):
    """Run the role. Returns its exit status and what it said."""
    done = subprocess.run(
        [
            "ansible-playbook",
            "--inventory",
            str(INVENTORY),
            str(PLAY),
            "--extra-vars",
            json.dumps(variables),
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    return done.returncode, re.sub(r"\s+", " ", done.stdout + done.stderr)


def put_in_force(variables, *arguments):
    """Run the role, which has to succeed. Returns whether it says that it changed something."""
    status, said = policy(variables, *arguments)
    assert status == 0, said
    return re.search(r"changed=(\d+)", said).group(1) != "0"


def values(host):
    return dict(zip(BEFORE, host.check_output("sysctl -n " + " ".join(BEFORE)).split("\n")))


def everything(host):
    """What a policy may change, as text."""
    return (
        values(host),
        host.run(
            "cat %s %s; stat -c %%Y %s; systemctl show -p OOMScoreAdjust held; cat /proc/%s/oom_score_adj",
            OURS,
            KEPT,
            "/etc/systemd/system/held.service.d",
            str(held(host)),
        ).stdout,
    )


def held(host):
    """The pid of the service that holds memory, 0 when it does not run."""
    return int(host.check_output("systemctl show -p MainPID --value held"))


def oom_kills(host):
    return int(host.check_output("awk '$1 == \"oom_kill\" { print $2 }' /proc/vmstat"))


def facts(host, **options):
    return host.ansible("threadwise.smt.smt_memory_facts", json.dumps(options) if options else None, check=True)[
        "ansible_facts"
    ]["smt_memory"]


@pytest.fixture(name="ask", scope="module")
def more_than_the_headroom(host):
    """MiB that the strict policy does not promise; used together with what is in use already they are more than the
    guest has.
    """
    return facts(host, overcommit="strict", overcommit_ratio=95)["wanted"]["headroom"]["bytes"] // MIB + 100


def hold(host, mib):
    """What a process says that asks for so much and uses it, and its exit status;
    ssh could not tell a killed one from a lost connection.
    """
    return host.check_output("python3 /usr/local/lib/hold.py %s 0; echo $?", str(mib)).split("\n")


def test_the_strict_policy_is_in_force(host):
    found = facts(host)
    assert found["overcommit"] == "strict"
    assert values(host)["vm.overcommit_ratio"] == "95"
    assert host.file(OURS).content_string == "vm.overcommit_ratio=95\nvm.overcommit_memory=2\n"
    assert found["commit_limit_bytes"] == found["total_bytes"] // 4096 * 95 // 100 * 4096 + found["swap_bytes"]


def test_the_running_service_is_spared_and_was_not_restarted(host):
    pid = held(host)
    assert host.file(f"/proc/{pid}/oom_score_adj").content_string == "-900\n"
    assert {"unit": "held.service", "oom_score_adj": -900} in facts(host)["protected_units"]
    assert facts(host)["protect_differences"] is None and facts(host, protect=["held"])["protect_differences"] == []
    assert facts(host, protect=[])["protect_differences"] == [
        "held.service is protected from the OOM killer, but should not be"
    ]
    before = everything(host)
    assert facts(host, protect=["held", "systemd-journald"])["protect_differences"] == [
        "systemd-journald.service is not protected from the OOM killer, or will not be after its next start"
    ]
    assert everything(host) == before
    restarts = host.check_output("journalctl -u held -o cat --grep Started | wc -l")
    assert restarts == "1"


def test_a_refused_policy_has_changed_nothing(host):
    before = everything(host)
    for wrong, words in [
        ({"smt_memory_on_oom": "panic"}, "hang until someone resets it"),
        ({"smt_memory_protect": ["held", "nosuch"]}, "no service nosuch.service"),
        ({"smt_memory_overcommit_ratio": 30}, "are already committed, margin 10 %: raise the ratio to"),
    ]:
        status, said = policy(dict(STRICT, **wrong))
        assert status != 0 and words in said, said
    assert everything(host) == before
    advised = int(re.search(r"raise the ratio to (\d+)", said).group(1))
    # The reader's own memory is in what it read: between two readings a few MiB come and go.
    assert facts(host, overcommit="strict", overcommit_ratio=advised + 3)["wanted"]["refusal"] is None
    assert facts(host, overcommit="strict", overcommit_ratio=advised - 3)["wanted"]["refusal"] is not None


def test_a_later_file_is_reported(host):
    host.check_output("echo vm.overcommit_memory=0 >/etc/sysctl.d/zz-later.conf")
    _status, said = policy(STRICT, "--check")
    host.check_output("rm /etc/sysctl.d/zz-later.conf")
    assert "/etc/sysctl.d/zz-later.conf sets vm.overcommit_memory to 0 at boot" in said, said


def probe(host, mib):
    """What one process is promised in all, and what one gets that asks for so much and uses it, confined to 32 MiB."""
    return json.loads(
        host.check_output(
            "cd /usr/local/lib && python3 -c %s",
            "import json; from memory._set.memory import overcommit_test as m; "
            f"print(json.dumps([m.allocatable(), m.run({mib} << 20, touch=True, confine=32 << 20)]))",
        )
    )


def test_strict_refuses_at_once_and_the_heuristic_kills_later(host, ask):
    kills, pid = oom_kills(host), held(host)
    assert hold(host, ask) == ["refused: Cannot allocate memory", "12"]
    promised, outcome = probe(host, ask)
    assert promised["total_limited"] and promised["largest_bytes"] <= ask * MIB
    assert outcome["outcome"] == "enomem"
    assert oom_kills(host) == kills
    assert put_in_force(HEURISTIC)
    promised, outcome = probe(host, ask)
    assert not promised["total_limited"]
    assert outcome["outcome"] == "oom_killed"
    kills = oom_kills(host)
    assert hold(host, ask) == ["granted", "137"]
    assert oom_kills(host) == kills + 1
    assert held(host) == pid, "the protected service, larger than the one that outcome, has to survive"


def test_without_protection_the_service_would_have_been_killed(host, ask):
    pid = held(host)
    assert put_in_force(dict(HEURISTIC, smt_memory_protect=[]))
    assert host.file(f"/proc/{pid}/oom_score_adj").content_string == "0\n"
    assert not host.file(DROP_IN).exists
    hold(host, ask)
    assert held(host) != pid
    host.check_output("systemctl reset-failed held; systemctl start held")


def test_restored_brings_back_every_value_and_removes_the_file(host):
    put_in_force(STRICT)
    before = everything(host)
    assert put_in_force(RESTORED, "--check") and everything(host) == before
    pid = held(host)
    assert put_in_force(RESTORED)
    assert values(host) == BEFORE
    assert host.file(f"/proc/{pid}/oom_score_adj").content_string == "0\n"
    for path in (OURS, KEPT, DROP_IN):
        assert not host.file(path).exists
    assert not put_in_force(RESTORED)


def evaluated(name, **arguments):
    """Evaluate a change of the policy. Returns the guest's result."""
    settings = dict(
        arguments,
        smt_eval_run=name,
        smt_eval_budget=25,
        smt_eval_workloads=["memory_pages"],
        smt_eval_placements=["single"],
        smt_eval_dest=str(RESULTS),
    )
    done = subprocess.run(
        [
            "ansible-playbook",
            "--inventory",
            str(INVENTORY),
            "threadwise.smt.smt_eval",
            "--extra-vars",
            json.dumps(settings),
        ],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (RESULTS / name / "index.html").stat().st_size > 0
    return json.loads((RESULTS / name / "smt-memory.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("change", "further", "outcomes"),
    [
        ("overcommit_strict", {"smt_eval_overcommit_ratio": 95}, ["oom_killed", "enomem"]),
        # Panics are for an out-of-memory of the host; one that is confined to a cgroup is killed as before.
        ("panic_on_oom", {}, ["oom_killed", "oom_killed"]),
    ],
)
def test_an_evaluation_measures_the_policies_and_puts_back_what_was_there(host, change, further, outcomes):
    before = values(host)
    measured = evaluated(change, smt_eval_arms=f"as_found,{change}", **further)
    assert [arm["name"] for arm in measured["arms"]] == ["as_found", change]
    assert {sample["arm"] for sample in measured["samples"] if sample["ok"]} == {"as_found", change}
    assert all(sample["metrics"]["page_faults"]["value"] > 0 for sample in measured["samples"] if sample["ok"])
    assert [one["overcommit_test"]["outcome"] for one in measured["observations"]] == outcomes
    assert measured["restored"]["ok"] and values(host) == before


def test_an_evaluation_of_a_policy_that_the_host_would_not_survive_leaves_it_alone(host):
    before = values(host)
    measured = evaluated("refused", smt_eval_arms="as_found,overcommit_strict", smt_eval_overcommit_ratio=1)
    assert len(measured["arms"]) == 1 and "are already committed" in measured["arms_left_out"][0]["reason"]
    assert measured["observations"] == [] and values(host) == before


def test_a_panic_on_a_real_out_of_memory_reboots_into_the_policy(host, ask):
    wanted = dict(HEURISTIC, smt_memory_on_oom="panic", smt_memory_panic_reboot_after=3)
    put_in_force(wanted)
    boot = host.check_output("cat /proc/sys/kernel/random/boot_id")
    host.check_output("sync; systemd-run --quiet --unit overcommit python3 /usr/local/lib/hold.py %s 60", str(ask))
    assert wait_for_another_boot(host, boot), "the guest did not come back after the panic"
    assert values(host) == dict(BEFORE, **{"vm.overcommit_memory": "0", "vm.panic_on_oom": "1", "kernel.panic": "3"})
    assert host.file(f"/proc/{held(host)}/oom_score_adj").content_string == "-900\n"
    assert put_in_force(RESTORED)
    assert values(host) == BEFORE


def wait_for_another_boot(host, boot):
    end = time.monotonic() + REBOOT_SECONDS
    while time.monotonic() < end:
        time.sleep(3)
        seen = subprocess.run(
            [
                "ansible",
                "--inventory",
                str(INVENTORY),
                "lab",
                "--timeout",
                "10",
                "--one-line",
                "--module-name",
                "ansible.builtin.raw",
                "--args",
                "cat /proc/sys/kernel/random/boot_id",
            ],
            capture_output=True,
            text=True,
            check=False,
            env=ENVIRONMENT,
        ).stdout
        found = re.search(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", seen)
        if found and found.group() != boot:
            return True
    return False
