# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of arms: both forms, what is refused, that each reaches results safely, and boot arguments of arms."""

from __future__ import annotations

import json
import re

import boot_maker
import pytest
import result_maker
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base, catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results, text

FORMS = yaml.safe_load("""
- [{smt_off_on: {node: 0}}, smt_off_on_node_0]
- [{smt_off_on: {cpus: "0-7,16-23"}}, smt_off_on_cpus_0-7_16-23]
- [{smt_off_on: {unit: postgresql.service}}, smt_off_on_unit_postgresql.service]
- [{one_thread_per_core: {unit: postgresql@15-main.service}}, one_thread_per_core_unit_postgresql@15-main.service]
- [one_thread_per_core, one_thread_per_core]
- [threads_per_core_2, threads_per_core_2]
""")
NO_UNITS = ["../../etc/x.service", "a b.service", "-a.service", "a.service\n", "a\x1b[2J.service"]
PARTS = [{"node": True}, {"node": 0, "package": 0}, {"cpus": "0-7;reboot"}, {"cpus": [0, 1]}, "node 0"]
HOSTILE = [{key: {"unit": unit}} for unit in NO_UNITS for key in ("smt_off_on", "one_thread_per_core")]
HOSTILE += [*({"smt_off_on": part} for part in PARTS), {"one_thread_per_core": {}}, {"smt_off": {"node": 0}}, 5]


@pytest.mark.parametrize(("given", "name"), FORMS)
def test_both_forms_are_the_same_arm_which_a_result_may_name(given, name):
    assert catalogue.name_of(given) == catalogue.name_of(name) == name
    assert catalogue.check([given, "as_found"]) == [name, "as_found"]
    assert re.match(arms.NAME, name) and len(name) <= arms.LONGEST_NAME
    if isinstance(given, dict):
        ((key, where),) = given.items()
        assert arms.part_of(key, name) == (next(iter(where)), str(next(iter(where.values()))))
    document = json.dumps(result_maker.result()).replace('"smt_off"', json.dumps(name))
    assert name in [arm.name for arm in results.parse(document, "a host").arms]


@pytest.mark.parametrize("given", HOSTILE)
def test_everything_else_is_refused_in_one_sentence(given):
    with pytest.raises(base.ArmError) as refused:
        catalogue.check(["as_found", given])
    assert str(refused.value).isprintable()
    assert re.search(r"give .*\{(smt_off_on|one_thread_per_core): \{(node|unit|cpus): ", str(refused.value))


HOSTILE_NAMES = ["../x", "x/y", "x_unit_../../a", "x_unit_a b", "X", "x\n", "x_unit_.a", "x_cpus_-1", "x.y", "<b>"]


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "x" * 61])
def test_a_hostile_name_in_a_result_is_refused(name):
    written = json.dumps(result_maker.result()).replace('"smt_off"', json.dumps(name))
    with pytest.raises(text.BorderError):
        results.parse(written, "a host")


ARGUMENTS = {"smt_on": "", "as_found": "", "smt_off": "nosmt", "nosmt": "nosmt", "nosmt_force": "nosmt=force"}
ARGUMENTS.update(maxcpus_4="maxcpus=4", mitigations_auto="mitigations=auto", mitigations_off="mitigations=off")
ARGUMENTS.update(mitigations_auto_nosmt="mitigations=auto,nosmt")


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


def test_only_one_arm_leaves_anything_open_and_it_says_so():
    arm, auto = catalogue.find("mitigations_off"), catalogue.find("mitigations_auto")
    assert arm.allowed_by == "smt_eval_allow_mitigations_off" and "vulnerability" in arm.title
    assert arm.settings == {"boot_argument": "mitigations=off", "leaves_open": arm.leaves_open} and arm.leaves_open
    assert auto.settings == {"boot_argument": "mitigations=auto"} and not auto.leaves_open
