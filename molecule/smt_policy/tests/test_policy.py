# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A policy on two guests of two hardware classes: drift by hand is named and mended, a sick guest stops a rollout. The tests build on one another."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess

import testinfra

INVENTORY = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "inventory"
HEALTH = pathlib.Path(__file__).parent.parent / "files/health.yml"
GUESTS = ("smt-policy-adjacent", "smt-policy-split")
ADJACENT, SPLIT = GUESTS
CONTROL = "/sys/devices/system/cpu/smt/control"
OURS = "/etc/default/grub.d/*threadwise*"
HELD = {"smt_policy": "disabled", "smt_policy_scope": "both"}


def play(directory, playbook, variables, *arguments):
    """Call a playbook of the collection. Returns (exit code, host -> status, how many changes each host reports)."""
    report = directory / "compliance.json"
    told = dict(variables, smt_compliance_json=str(report), smt_boot_reboot_timeout=1800)
    done = subprocess.run(["ansible-playbook", "-i", str(INVENTORY), f"threadwise.smt.{playbook}", "-e", json.dumps(told), *arguments],
                          capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, cwd=directory)
    table = done.stdout.rpartition("\nhost  ")[2].partition("\n\n")[0]
    statuses = dict(re.findall(r"^(smt-policy-\S+) +([a-z]+)", table, re.MULTILINE))
    changes = dict(re.findall(r"^(\S+) +: ok=\d+ +changed=(\d+)", done.stdout, re.MULTILINE))
    print(done.stdout[-6000:], done.stderr[-2000:])
    return done.returncode, statuses, {host: int(count) for host, count in changes.items()}


def guest(name):
    return testinfra.get_host(f"ansible://{name}?ansible_inventory={INVENTORY}")


def control(name):
    return guest(name).check_output("cat " + CONTROL)


def arguments(name):
    """The SMT arguments of the entry that grub boots."""
    return re.findall(r"nosmt\S*", guest(name).check_output("grep -m1 '^[[:space:]]*linux' /boot/grub/grub.cfg"))


def test_the_policy_holds_now_and_at_the_next_boot(tmp_path):
    assert [control(name) for name in GUESTS] == ["off", "off"]
    assert [arguments(name) for name in GUESTS] == [["nosmt"], ["nosmt"]]
    code, statuses, dummy = play(tmp_path, "smt_compliance", HELD)
    assert (code, statuses) == (0, dict.fromkeys(GUESTS, "compliant"))


def test_what_somebody_changed_by_hand_is_named_and_mended(tmp_path):
    guest(ADJACENT).check_output(f"echo on >{CONTROL}")
    guest(SPLIT).check_output(f"rm {OURS} && update-grub")
    files = "find /etc /boot -xdev -type f -newer /run/mark | grep -v -e grub -e ld.so -e mtab || true"
    for name in GUESTS:
        guest(name).check_output("touch /run/mark")
    code, statuses, dummy = play(tmp_path, "smt_compliance", HELD)
    assert (code, statuses) == (2, dict.fromkeys(GUESTS, "drifted"))
    told = {host["host"]: host for host in json.loads((tmp_path / "compliance.json").read_text())["hosts"]}
    assert (told[ADJACENT]["running"]["status"], told[ADJACENT]["configured"]["status"]) == ("drifted", "compliant")
    assert (told[SPLIT]["running"]["status"], told[SPLIT]["configured"]["status"]) == ("compliant", "drifted")
    code, checked, dummy = play(tmp_path, "smt_enforce", HELD, "--check")
    assert (code, checked) == (2, statuses), "the same answer"
    assert (control(ADJACENT), arguments(SPLIT)) == ("on", [])
    code, statuses, dummy = play(tmp_path, "smt_enforce", HELD)
    assert (code, statuses) == (0, dict.fromkeys(GUESTS, "compliant"))
    assert (control(ADJACENT), arguments(SPLIT)) == ("off", ["nosmt"])
    assert guest(ADJACENT).check_output("find /boot/grub/grub.cfg -newer /run/mark") == "", "the boot arguments were as wanted there"
    assert [guest(name).check_output(files) for name in GUESTS] == ["", ""]


def test_a_sick_guest_stops_the_rollout_and_is_brought_back(tmp_path):
    guest(SPLIT).check_output("touch /run/sick")
    wish = dict(HELD, smt_policy="enabled", smt_enforce_waves=[1], smt_enforce_health_check=str(HEALTH))
    code, dummy, changes = play(tmp_path, "smt_enforce", wish)
    assert code != 0 and changes[SPLIT]
    assert (control(ADJACENT), arguments(ADJACENT)) == ("on", []), "its wave was well"
    assert (control(SPLIT), arguments(SPLIT)) == ("off", ["nosmt"]), "its wave was rolled back"
    guest(SPLIT).check_output("rm /run/sick")
    code, statuses, changes = play(tmp_path, "smt_enforce", wish)
    assert (code, statuses, changes[ADJACENT]) == (0, dict.fromkeys(GUESTS, "compliant"), 0)
    assert (control(SPLIT), arguments(SPLIT)) == ("on", [])


def test_a_boot_policy_comes_into_force_by_a_reboot_where_that_is_allowed(tmp_path):
    wish = {"smt_policy": "disabled", "smt_policy_scope": "boot"}
    code, statuses, dummy = play(tmp_path, "smt_enforce", wish, "--limit", ADJACENT)
    assert (code, statuses, control(ADJACENT)) == (0, {ADJACENT: "compliant"}, "on"), "no reboot was allowed"
    code, statuses, dummy = play(tmp_path, "smt_enforce", dict(wish, smt_policy_reboot_ok=True), "--limit", ADJACENT)
    assert (code, statuses, control(ADJACENT)) == (0, {ADJACENT: "compliant"}, "off")
    assert guest(ADJACENT).file("/proc/cmdline").content_string.split().count("nosmt") == 1
    code, statuses, changes = play(tmp_path, "smt_enforce", dict(wish, smt_policy_reboot_ok=True), "--limit", ADJACENT)
    assert (code, changes[ADJACENT]) == (0, 0), "once is enough"
