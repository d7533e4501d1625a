# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each arm that takes a reboot: its name, and that what it asks for is what its argument says,
on a host's boot configuration.
"""

from __future__ import annotations

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base

ARGUMENTS = {"smt_on": "", "as_found": "", "smt_off": "nosmt", "nosmt": "nosmt", "nosmt_force": "nosmt=force"}
ARGUMENTS.update(
    {"maxcpus_4": "maxcpus=4", "mitigations_auto": "mitigations=auto", "mitigations_off": "mitigations=off"}
)
ARGUMENTS.update({"mitigations_auto_nosmt": "mitigations=auto,nosmt"})


def run(root, arm):
    request = boot_change.Request(arm.boot.smt, arm.boot.maxcpus, False, False, arm.boot.mitigations)
    return boot_change.run(host_files.HostFs(str(root)), request, "x86_64", "6.1.0-13-amd64")


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS.items())
def test_each_arm_sets_its_argument_and_another_one_replaces_it(tmp_path, name, argument):
    arm = catalogue.find(name)
    assert arm.name == name and arm.boot.argument == argument
    # Also in trials, where results and pages of evaluations have the same title.
    assert not arm.takes_reboot or catalogue.title(name).startswith(argument)
    before = boot_maker.snapshot(boot_maker.grub_tree(tmp_path))
    boot_maker.running(tmp_path, numbering="split")
    for other in ("nosmt", "maxcpus_4", "mitigations_off"):
        run(tmp_path, catalogue.find(other))
        assert run(tmp_path, arm)["configured"] == ([argument] if argument else [])
    run(tmp_path, catalogue.find("smt_on"))
    assert boot_maker.snapshot(tmp_path) == before


def test_a_number_that_would_not_leave_whole_cores_is_refused(tmp_path):
    boot_maker.grub_tree(tmp_path)
    with pytest.raises(backend_base.BootLoaderError, match="numbering of siblings is adjacent"):
        run(tmp_path, catalogue.find("maxcpus_4"))


OTHERS = ["maxcpus", "maxcpus_0", "maxcpus_04", "maxcpus_99999", "maxcpus_4 nosmt", "nosmt=force", "mitigations"]


@pytest.mark.parametrize("name", [*OTHERS, "nosmt\n", ""])
def test_other_names_are_no_arms(name):
    assert catalogue.find(name) is None


def test_only_one_arm_leaves_anything_open_and_it_says_so():
    arm, auto = catalogue.find("mitigations_off"), catalogue.find("mitigations_auto")
    assert arm.allowed_by == "smt_eval_allow_mitigations_off" and "vulnerability" in arm.title
    assert arm.settings == {"boot_argument": "mitigations=off", "leaves_open": arm.leaves_open} and arm.leaves_open
    assert auto.settings == {"boot_argument": "mitigations=auto"} and not auto.leaves_open
