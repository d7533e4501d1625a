# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rare guest says and keeps: CPUs that go during an evaluation, read-only sysfs, AppArmor,
then no systemd under lockdown, and CPU 0 offline.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

EPHEMERAL = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"])
INVENTORY = EPHEMERAL / "inventory"
RESULTS = EPHEMERAL / "results"
FILES = pathlib.Path(os.environ["MOLECULE_SCENARIO_DIRECTORY"]) / "files"
LAB = pathlib.Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "tools" / "lab" / "lab.py"
GUEST = "smt-odd"
RUNS = "/var/lib/threadwise-smt/runs"
CPUS = "/sys/devices/system/cpu"
CONTROL = f"{CPUS}/smt/control"
SNAPSHOT = "/var/lib/threadwise-smt/smt-snapshot.json"
# Molecule asks for colours.
PLAIN = {**os.environ, "ANSIBLE_FORCE_COLOR": "false", "ANSIBLE_NOCOLOR": "true"}
# Only there to end what hangs.
TIME_LIMIT = 900
READ_ONLY = (
    f"{CONTROL} is on a file system that is mounted read-only, as in a container: change the machine that runs the"
    " container, or mount it read-write"
)


def call(host, module, check=False, **options):
    """A module's result, also of one that failed."""
    try:
        return host.ansible("threadwise.smt." + module, json.dumps(options), check=check)
    except host.ansible.AnsibleException as error:
        return error.result


def ad_hoc(module, arguments=""):
    """What a module returned to the ad-hoc command, which shows facts, too."""
    command = ["ansible", "--inventory", str(INVENTORY), GUEST, "--module-name", module, "--args", arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=PLAIN)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.partition("=> ")[2])


def facts():
    return ad_hoc("threadwise.smt.smt_facts")["ansible_facts"]["smt"]


def online(host):
    return host.check_output("cat %s/online", CPUS)


def play(playbook, **variables):
    """What a playbook said, in one line."""
    command = ["ansible-playbook", "--inventory", str(INVENTORY), playbook, "--extra-vars", json.dumps(variables)]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=PLAIN,
    )
    return " ".join(done.stdout.split())


def evaluation(run, **changed):
    """An evaluation in the background; its output goes to a file."""
    variables = {
        "smt_eval_run": run,
        "smt_eval_budget": 600,
        "smt_eval_workloads": ["gzip"],
        "smt_eval_arms": ["as_found"],
        "smt_eval_placements": ["single", "all_threads"],
        "smt_eval_goal": "precision",
        "smt_eval_margin": 0.0001,
        "smt_eval_probe": "never",
        "smt_eval_dest": str(RESULTS),
        **changed,
    }
    command = [
        "ansible-playbook",
        "--inventory",
        str(INVENTORY),
        "threadwise.smt.smt_eval",
        "--extra-vars",
        json.dumps(variables),
    ]
    with (EPHEMERAL / f"{run}.log").open("w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=PLAIN)


def wait_for(what, run, controller):
    end = time.monotonic() + TIME_LIMIT
    while not what():
        assert controller.poll() is None and time.monotonic() < end, (EPHEMERAL / f"{run}.log").read_text(
            encoding="utf-8"
        )
        time.sleep(1)


def test_a_cpu_that_goes_while_nothing_is_switched_ends_the_evaluation(host):
    controller = evaluation("unplugged")
    try:
        wait_for(
            lambda: host.run("cat %s/unplugged/samples.jsonl", RUNS).stdout.count("\n") >= 4, "unplugged", controller
        )
        host.check_output(f"echo 0 > {CPUS}/cpu3/online")
        assert controller.wait() != 0
    finally:
        host.check_output(f"echo 1 > {CPUS}/cpu3/online")
    found = json.loads((RESULTS / "unplugged" / f"{GUEST}.json").read_text(encoding="utf-8"))
    sentence = "somebody has changed the host while as found was measured: CPU 3 was online, is offline"
    assert (found["outcome"], found["message"]) == ("failed", sentence)
    last = max(sample["block"] for sample in found["samples"])
    assert {sample["block"] for sample in found["samples"] if not sample["ok"]} == {last}
    assert not any(sample["ok"] for sample in found["samples"] if sample["block"] == last)
    assert sentence in (RESULTS / "unplugged" / "summary.md").read_text(encoding="utf-8")
    assert sentence in (EPHEMERAL / "unplugged.log").read_text(encoding="utf-8").replace("\n", " ")


@pytest.fixture(name="read_only")
def sysfs_that_is_mounted_read_only(host):
    host.check_output("mount -o remount,ro /sys")
    yield
    host.check_output("mount -o remount,rw /sys")


def test_a_read_only_sysfs_is_refused_before_anything_is_written(host, read_only):
    assert facts()["methods"]["runtime"]["impossible"] == {
        "smt_control": READ_ONLY,
        "cpu_online": READ_ONLY.replace("smt/control", "cpu1/online"),
    }
    for check in (True, False):
        assert call(host, "smt_state", check, state="disabled")["msg"] == f"{READ_ONLY}. Nothing was changed"
    assert call(host, "smt_state", state="restored")["changed"] is False and not host.file(SNAPSHOT).exists
    kinds = {"json": "json", "metrics": "prom", "page": "html"}
    files = {f"smt_compliance_{kind}": str(EPHEMERAL / f"compliance.{suffix}") for kind, suffix in kinds.items()}
    play("threadwise.smt.smt_compliance", smt_policy="disabled", smt_policy_scope="runtime", **files)
    (judged,) = json.loads((EPHEMERAL / "compliance.json").read_text(encoding="utf-8"))["hosts"]
    assert judged["status"] == "drifted" and "CPUs 1,3 are online" in judged["running"]["reasons"], judged
    said = play("threadwise.smt.smt_enforce", smt_policy="disabled", smt_policy_scope="runtime")
    assert READ_ONLY in said, said


@pytest.fixture(name="policy")
def security_policy(host):
    """AppArmor, as Debian's kernel has it: root's modules may not write what switches CPUs."""
    subprocess.run([sys.executable, str(LAB), "install", GUEST, "apparmor"], check=True, stdin=subprocess.DEVNULL)
    ad_hoc("ansible.builtin.copy", f"src={FILES / 'apparmor-profile'} dest=/root/apparmor-profile mode=0644")
    host.check_output("apparmor_parser --replace --skip-cache /root/apparmor-profile")
    yield
    host.check_output("apparmor_parser --remove /root/apparmor-profile")


def test_a_security_policy_that_refuses_root_is_named_before_anything_is_written(host, policy):
    refused = (
        f"{CONTROL} cannot be written although this is root (EACCES): a container or a security policy (SELinux,"
        " AppArmor) forbids it"
    )
    for check in (True, False):
        assert call(host, "smt_state", check, state="disabled")["msg"].startswith(refused)
    assert facts()["methods"]["runtime"]["impossible"]["smt_control"].startswith(refused)
    assert online(host) == "0-3" and not host.file(SNAPSHOT).exists


def test_a_boot_without_systemd_under_lockdown(host):
    ad_hoc("ansible.builtin.copy", f"src={FILES / 'init.sh'} dest=/sbin/plain-init mode=0755")
    arguments = "init=/sbin/plain-init lockdown=confidentiality cpu0_hotplug"
    host.check_output(
        f"""echo 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX {arguments}"' > /etc/default/grub.d/99-odd.cfg"""
        " && update-grub"
    )
    ad_hoc("ansible.builtin.reboot", f"reboot_timeout={TIME_LIMIT}")
    assert not host.file("/run/systemd/system").exists
    assert host.check_output("cat /proc/1/comm") == "plain-init"
    assert "[confidentiality]" in host.check_output(
        "mount -t securityfs none /sys/kernel/security; cat /sys/kernel/security/lockdown"
    )


def test_without_systemd_and_under_lockdown_a_change_works_and_what_needs_systemd_says_so(host):
    assert facts()["methods"]["runtime"]["chosen"] == "smt_control"
    for options, reason in (
        ({"rollback_after": 60}, r"rollback_after needs systemd"),
        ({"persist": "tmpfiles"}, r"persist: tmpfiles needs systemd, which does not run on this host"),
        (
            {"cores": {"unit": "ssh.service"}},
            r"unit ssh\.service has no cgroup on this host, where systemd does not run",
        ),
    ):
        for check in (True, False):
            assert re.search(reason, call(host, "smt_state", check, state="disabled", **options)["msg"])
    assert online(host) == "0-3" and not host.file(SNAPSHOT).exists
    assert call(host, "smt_state", state="disabled")["after"] == {"control": "off", "active": False, "online": "0,2"}
    assert call(host, "smt_state", state="disabled")["changed"] is False
    assert call(host, "smt_state", state="restored")["changed"] is True and online(host) == "0-3"
    protected = call(host, "smt_memory", protect=["ssh"])
    assert "systemd, which gives services their scores, does not run on this host" in protected["msg"]
    assert "systemd does not run on smt-odd, and its timer is what smt_pull sets up" in play(str(FILES / "pull.yml"))
    assert not host.file("/etc/systemd/system/threadwise-smt-pull.timer").exists
    metric = {
        "name": "uptime",
        "unit": "s",
        "better": "higher",
        "primary": True,
        "command": ["cut", "-d ", "-f1", "/proc/uptime"],
    }
    said = play(
        "threadwise.smt.smt_trial", smt_trial_metrics=[metric], smt_trial_dest=str(RESULTS), smt_trial_run="trial"
    )
    assert "smt_off is refused: rollback_after needs systemd (systemd-run), which does not run on this host" in said, (
        said
    )
    assert call(host, "smt_memory", overcommit="always")["changed"] is True
    assert call(host, "smt_memory", state="restored")["changed"] is True


def test_an_evaluation_without_systemd_and_under_lockdown(host):
    run = "plain"
    arguments = {
        "smt_eval_arms": ["smt_on", "smt_off"],
        "smt_eval_goal": "decision",
        "smt_eval_margin": 0.05,
        "smt_eval_budget": 150,
    }
    assert evaluation(run, **arguments).wait() == 0, (EPHEMERAL / f"{run}.log").read_text(encoding="utf-8")
    found = json.loads((RESULTS / run / f"{GUEST}.json").read_text(encoding="utf-8"))
    assert found["outcome"] == "completed" and found["restored"]["ok"]
    assert {sample["arm"] for sample in found["samples"]} == {"smt_on", "smt_off"}


def test_cpu_0_offline(host):
    host.check_output(f"rm -f /var/lib/threadwise-smt/topology.json; echo 0 > {CPUS}/cpu0/online")
    assert online(host) == "1-3"
    known = facts()
    assert (known["complete"], known["hardware_class"], known["cpus"]["offline"]) == (False, None, "0")
    done = call(host, "smt_state", state="disabled")
    assert done["after"] == {"control": "on", "active": False, "online": "1-2"}, done
    assert call(host, "smt_state", state="disabled")["changed"] is False
    assert call(host, "smt_state", state="restored")["changed"] is True
    assert online(host) == "1-3"
    refused = call(host, "smt_state", state="disabled", method="smt_control")["msg"]
    assert "also takes the only threads of some cores offline (CPUs 1)" in refused and refused.endswith(
        "the previous state was restored"
    )
    assert online(host) == "1-3"
    controller = evaluation("without-0", smt_eval_arms=["smt_on", "smt_off"])
    assert controller.wait() != 0
    said = " ".join((EPHEMERAL / "without-0.log").read_text(encoding="utf-8").split())
    assert "CPUs 0 are offline. Bring them online (chcpu -e 0) and start again" in said
    host.check_output(f"echo 1 > {CPUS}/cpu0/online")
