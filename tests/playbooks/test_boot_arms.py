# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations with arms that take a reboot, as the role does them: what is set, rebooted, measured and put back,
on a host whose kernel is made up.

The boot loader's configuration is a tree that the collection's own code reads and writes. A reboot takes the arguments
of its first entry and sets what the kernel would: the command line, the CPUs online, smt/control. What is measured is
made up too.
"""

from __future__ import annotations

import json
import signal
import sys
import time

import pytest
import yaml
from booted_fleet import ARMS, BootFleet
from result_maker import compared
from simulated_fleet import ROOT

sys.path.insert(0, str(ROOT / "tests/unit/support"))
import boot_maker
from interruption import interrupt, lose


@pytest.mark.night
def test_four_arms_over_two_rounds(tmp_path):
    fleet = BootFleet(tmp_path, own="mitigations=auto,no_user_kernel")
    code, seen, done = fleet.evaluate()
    assert code == 0, seen
    boots = [line.partition(" ")[2] for line in done if line.startswith("boot")]
    own = "mitigations=auto,no_user_kernel"
    booted = {
        "smt_on": own,
        "nosmt": f"nosmt {own}",
        "maxcpus_4": f"maxcpus=4 {own}",
        "mitigations_auto_nosmt": "mitigations=auto,nosmt mitigations=auto,nosmt,no_user_kernel",
    }
    result = fleet.result()
    order = [
        "smt_on",
        "maxcpus_4",
        "mitigations_auto_nosmt",
        "nosmt",
        "maxcpus_4",
        "nosmt",
        "smt_on",
        "mitigations_auto_nosmt",
    ]
    assert boots == [*(booted[name] for name in order), own]
    assert [line for line in done if line.startswith("measured")] == ["measured as_found for 10 s"] * 8
    assert result["outcome"] == "completed" and result["restored"]["ok"] and result["plan"]["booted"] == ARMS
    observed = {one["arm"]: one for one in result["observations"]}
    assert {name: booted[name] in " ".join(observed[name]["cmdline"].split()) for name in ARMS} == dict.fromkeys(
        ARMS, True
    )
    assert {name: observed[name]["smt"]["online"] for name in ARMS} == {
        "smt_on": "0-7",
        "maxcpus_4": "0-3",
        "nosmt": "0-3",
        "mitigations_auto_nosmt": "0-3",
    }
    found = {one["effect"]: (one["basis"], one["n"]) for one in compared(result) if one["kind"] == "arm"}
    assert found == dict.fromkeys(ARMS[1:], ("boots", 2))
    fleet.assert_as_before()


@pytest.mark.night
def test_a_number_that_would_not_leave_whole_cores_is_left_out_before_the_first_reboot(tmp_path):
    fleet = BootFleet(tmp_path, numbering="adjacent")
    code, seen, done = fleet.evaluate("--check")
    assert code == 0 and done == [], seen
    assert (
        "maxcpus=4 is left out: maxcpus=4 would not leave one thread of each core" in seen
        and "rebooted 6 times" in seen
        and "for 13 s" in seen
    )
    fleet.assert_as_before()
    code, seen, done = fleet.evaluate(boots=1)
    assert code == 0, seen
    (left_out,) = fleet.result()["arms_left_out"]
    assert left_out["name"] == "maxcpus_4" and "numbering of siblings is adjacent" in left_out["reason"]
    assert sum(line.startswith("boot") for line in done) == 4
    fleet.assert_as_before()


@pytest.mark.night
def test_run_time_arms_are_measured_within_the_boots_of_the_baseline(tmp_path):
    fleet = BootFleet(tmp_path)
    code, seen, _done = fleet.evaluate("--check", arms=["smt_on", "smt_off", "nosmt"])
    assert (
        code == 0
        and "Within each boot of SMT on it would be switched to SMT off" in seen
        and "SMT off: CPUs 4-7 go offline" in seen
    )
    code, seen, done = fleet.evaluate(arms=["smt_on", "smt_off", "nosmt"])
    assert code == 0, seen
    assert [line for line in done if line.startswith("measured")] == [
        "measured smt_on,smt_off for 20 s",
        "measured as_found for 20 s",
        "measured as_found for 20 s",
        "measured smt_on,smt_off for 20 s",
    ]
    found = {one["effect"]: (one["basis"], one["n"]) for one in compared(fleet.result()) if one["kind"] == "arm"}
    assert found == {"smt_off": ("blocks", 6), "nosmt": ("boots", 2)}
    fleet.assert_as_before()


@pytest.mark.night
def test_a_boot_that_fails_leaves_the_host_as_it_was(tmp_path):
    """It does not come back with mitigations=off; when it can be reached again it boots with its own arguments."""
    fleet = BootFleet(tmp_path)
    (fleet.place / "fails-with-mitigations=off").touch()
    code, seen, done = fleet.evaluate(arms=["smt_on", "mitigations_off"], boots=1, smt_eval_allow_mitigations_off=True)
    assert code != 0 and "it does not come back" in seen
    assert done == ["boot ", "measured as_found for 40 s", "boot mitigations=off"]
    fleet.assert_as_before()
    assert fleet.result()["outcome"] == "failed"


@pytest.mark.night
def test_after_ctrl_c_the_host_goes_back_by_itself_and_the_boots_before_are_kept(tmp_path):
    fleet = BootFleet(tmp_path, waits_in="r-boot-2")
    process = fleet.start_evaluation(arms=["smt_on", "nosmt"], boots=1)
    try:
        while not (fleet.place / "waits").exists():
            assert process.poll() is None, process.stdout.read()
            time.sleep(0.2)
        interrupt(process, signal.SIGINT)
    finally:
        lose(process)
    assert fleet.changes()["db1"] == ["boot ", "measured as_found for 40 s", "boot nosmt", "goes back by itself"]
    assert fleet.result()["outcome"] == "interrupted" and len(fleet.result()["arms"]) == 2


@pytest.mark.night
def test_what_mitigations_off_leaves_open_is_kept_and_the_host_boots_without_it(tmp_path):
    # What the inventory asks the role smt_boot for is not asked for here.
    fleet = BootFleet(tmp_path, smt_boot_force=True)
    code, seen, done = fleet.evaluate(arms=["smt_on", "mitigations_off"], boots=1, smt_eval_allow_mitigations_off=True)
    assert code == 0, seen
    assert [line for line in done if line.startswith("boot")] == ["boot ", "boot mitigations=off", "boot "]
    result = fleet.result()
    observed = {one["arm"]: one["vulnerabilities"]["mds"]["status"] for one in result["observations"]}
    assert observed["mitigations_off"].startswith("Vulnerable") and observed["smt_on"].startswith("Mitigation")
    assert "every CPU vulnerability open" in result["arms"][1]["title"] and result["restored"]["ok"]
    fleet.assert_as_before()


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"arms": ["smt_on", "mitigations_off"]}, "allow it with smt_eval_allow_mitigations_off=true"),
        ({"smt_boot_reboot_ok": False}, "rebooted 9 times to compare boots"),
        pytest.param(
            {"arms": ["maxcpus_4", "nosmt"], "numbering": "adjacent"},
            "the baseline maxcpus=4 is not possible on this host",
            marks=pytest.mark.night,
        ),
        pytest.param(
            {"arms": ["smt_on", "maxcpus_4"], "numbering": "adjacent"},
            "no arm is left that takes a reboot",
            marks=pytest.mark.night,
        ),
        ({"own": "nosmt"}, "does not boot with SMT on and without arguments for it"),
    ],
)
def test_what_is_refused_is_refused_before_the_first_reboot(tmp_path, variables, message):
    fleet = BootFleet(tmp_path, **{name: variables.pop(name) for name in ("numbering", "own") if name in variables})
    code, seen, done = fleet.evaluate(**variables)
    assert code != 0 and message in seen and done == [], seen
    assert boot_maker.snapshot(fleet.tree) == fleet.before
    assert json.dumps(seen).count("db1") and not (tmp_path / "smt_eval_results").exists()


ROLE = [{"hosts": "all", "gather_facts": False, "roles": ["threadwise.smt.smt_boot"]}]


@pytest.mark.parametrize(
    ("variables", "booted"),
    [
        pytest.param({"smt_boot_smt": "disabled"}, "nosmt", marks=pytest.mark.night),
        pytest.param({"smt_boot_maxcpus": 4}, "maxcpus=4", marks=pytest.mark.night),
        pytest.param({"smt_boot_mitigations": "off"}, "mitigations=off", marks=pytest.mark.night),
        ({"smt_boot_smt": "disabled", "smt_boot_mitigations": "auto"}, "nosmt mitigations=auto"),
    ],
    ids=lambda one: "-".join(one) if isinstance(one, dict) else None,
)
def test_the_role_sets_what_is_asked_for_and_enabled_takes_it_away(tmp_path, variables, booted):
    fleet = BootFleet(tmp_path)
    (tmp_path / "boot.yml").write_text(yaml.safe_dump(ROLE))
    code, seen = fleet.play("boot.yml", smt_boot_reboot_ok=True, **variables)
    assert code == 0, seen
    code, seen = fleet.play("boot.yml", smt_boot_reboot_ok=True, smt_boot_smt="enabled")
    assert code == 0 and fleet.changes()["db1"] == [f"boot {booted}", "boot "], seen
    fleet.assert_as_before()


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({}, "Nothing is set: set smt_boot_smt"),
        ({"smt_boot_smt": "disabled", "smt_boot_maxcpus": 4}, "smt_boot_smt and smt_boot_maxcpus are both set"),
    ],
    ids=["nothing", "both"],
)
def test_the_role_refuses_nothing_and_what_excludes_each_other(tmp_path, variables, sentence):
    fleet = BootFleet(tmp_path)
    (tmp_path / "boot.yml").write_text(yaml.safe_dump(ROLE))
    code, seen = fleet.play("boot.yml", **variables)
    assert code == 2 and sentence in seen, seen
    fleet.assert_as_before()
