# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations with arms that take a reboot, and the role smt_boot: what is set, rebooted, measured and put back, on a
host whose kernel, boots and measurements are made up (booted_fleet.py).
"""

from __future__ import annotations

import sys

import pytest
import yaml
from booted_fleet import ARMS, BootFleet
from result_maker import compared
from simulated_fleet import ROOT

sys.path.insert(0, str(ROOT / "tests/unit/support"))
import boot_maker

OFF = {"arms": ["smt_on", "mitigations_off"], "boots": 1, "smt_eval_allow_mitigations_off": True}


@pytest.mark.night
def test_four_arms_over_two_rounds(tmp_path):
    own = "mitigations=auto,no_user_kernel"
    fleet = BootFleet(tmp_path, own=own)
    code, seen, done = fleet.evaluate()
    assert code == 0, seen
    auto = "mitigations_auto_nosmt"
    booted = {"smt_on": own, "nosmt": f"nosmt {own}", "maxcpus_4": f"maxcpus=4 {own}"}
    booted[auto] = "mitigations=auto,nosmt mitigations=auto,nosmt,no_user_kernel"
    order = ["smt_on", "maxcpus_4", auto, "nosmt", "maxcpus_4", "nosmt", "smt_on", auto]
    boots = [one.partition(" ")[2] for one in done if one.startswith("boot")]
    assert boots == [*(booted[name] for name in order), own]
    assert [one for one in done if one.startswith("measured")] == ["measured as_found for 10 s"] * 8
    result = fleet.result()
    assert result["outcome"] == "completed" and result["restored"]["ok"] and result["plan"]["booted"] == ARMS
    observed = {one["arm"]: one for one in result["observations"]}
    for name in ARMS:
        assert booted[name] in " ".join(observed[name]["cmdline"].split())
        assert observed[name]["smt"]["online"] == ("0-7" if name == "smt_on" else "0-3"), name
    found = {one["effect"]: (one["basis"], one["n"]) for one in compared(result) if one["kind"] == "arm"}
    assert found == dict.fromkeys(ARMS[1:], ("boots", 2))
    fleet.assert_as_before()


@pytest.mark.night
def test_a_number_that_would_not_leave_whole_cores_is_left_out_before_the_first_reboot(tmp_path):
    fleet = BootFleet(tmp_path, numbering="adjacent")
    code, seen, done = fleet.evaluate("--check")
    assert code == 0 and done == [] and "maxcpus=4 is left out" in seen and "rebooted 6 times" in seen, seen
    fleet.assert_as_before()
    code, seen, done = fleet.evaluate(boots=1)
    assert code == 0, seen
    assert [one["name"] for one in fleet.result()["arms_left_out"]] == ["maxcpus_4"]
    assert sum(one.startswith("boot") for one in done) == 4
    fleet.assert_as_before()


@pytest.mark.night
def test_what_mitigations_off_leaves_open_is_kept_and_the_host_boots_without_it(tmp_path):
    # What the inventory asks the role smt_boot for is not asked for here.
    fleet = BootFleet(tmp_path, smt_boot_force=True)
    code, seen, done = fleet.evaluate(**OFF)
    assert code == 0, seen
    assert [one for one in done if one.startswith("boot")] == ["boot ", "boot mitigations=off", "boot "]
    observed = {one["arm"]: one["vulnerabilities"]["mds"]["status"] for one in fleet.result()["observations"]}
    assert observed["mitigations_off"].startswith("Vulnerable") and observed["smt_on"].startswith("Mitigation")
    fleet.assert_as_before()


@pytest.mark.night
@pytest.mark.parametrize(
    ("host", "variables", "message"),
    [
        ({}, {"arms": ["smt_on", "mitigations_off"]}, "smt_eval_allow_mitigations_off=true"),
        ({}, {"smt_boot_reboot_ok": False}, "rebooted 9 times"),
        ({"own": "nosmt"}, {}, "does not boot with SMT on"),
    ],
)
def test_what_is_refused_is_refused_before_the_first_reboot(tmp_path, host, variables, message):
    fleet = BootFleet(tmp_path, **host)
    code, seen, done = fleet.evaluate(**variables)
    assert code != 0 and message in seen and done == [], seen
    assert boot_maker.snapshot(fleet.tree) == fleet.before and not (tmp_path / "smt_eval_results").exists()


def role(place):
    """A play of the role alone."""
    play = {"hosts": "all", "gather_facts": False, "roles": ["threadwise.smt.smt_boot"]}
    (place / "boot.yml").write_text(yaml.safe_dump([play]))
    return "boot.yml"


@pytest.mark.night(after=1)
@pytest.mark.parametrize(
    ("variables", "booted"),
    [
        ({"smt_boot_smt": "disabled", "smt_boot_mitigations": "auto"}, "nosmt mitigations=auto"),
        ({"smt_boot_smt": "disabled"}, "nosmt"),
        ({"smt_boot_maxcpus": 4}, "maxcpus=4"),
        ({"smt_boot_mitigations": "off"}, "mitigations=off"),
    ],
)
def test_the_role_sets_what_is_asked_for_and_enabled_takes_it_away(tmp_path, variables, booted):
    fleet = BootFleet(tmp_path)
    for asked in (variables, {"smt_boot_smt": "enabled"}):
        code, seen = fleet.play(role(tmp_path), smt_boot_reboot_ok=True, **asked)
        assert code == 0, seen
    assert fleet.changes()["db1"] == [f"boot {booted}", "boot "]
    fleet.assert_as_before()


@pytest.mark.night
@pytest.mark.parametrize(
    ("variables", "said"),
    [({}, "set smt_boot_smt"), ({"smt_boot_smt": "disabled", "smt_boot_maxcpus": 4}, "are both set")],
)
def test_the_role_refuses_nothing_and_what_excludes_each_other(tmp_path, variables, said):
    fleet = BootFleet(tmp_path)
    code, seen = fleet.play(role(tmp_path), **variables)
    assert code == 2 and said in seen, seen
    fleet.assert_as_before()
