# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role smt_boot: what is set, rebooted and taken away again, on a host whose kernel and boots are made up
(booted_fleet.py). Evaluations by boots are in tests/unit/_boots, and on guests in molecule/smt_eval_boots and others.
"""

from __future__ import annotations

import pytest
from booted_fleet import BootFleet


@pytest.mark.night
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
        code, seen = fleet.play("boot.yml", smt_boot_reboot_ok=True, **asked)
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
    code, seen = fleet.play("boot.yml", **variables)
    assert code == 2 and said in seen, seen
    fleet.assert_as_before()
