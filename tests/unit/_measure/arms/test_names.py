# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of arms: both forms, what is refused, and that each reaches results, and schemas, safely."""

from __future__ import annotations

import json
import re

import pytest
import result_maker
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._know.vocabulary import arms
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import base, catalogue
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results, text

FORMS = yaml.safe_load("""
- [{smt_off_on: {node: 0}}, smt_off_on_node_0]
- [{smt_off_on: {package: "1"}}, smt_off_on_package_1]
- [{smt_off_on: {cpus: "0-7,16-23"}}, smt_off_on_cpus_0-7_16-23]
- [{smt_off_on: {cpus: 3}}, smt_off_on_cpus_3]
- [{smt_off_on: {unit: postgresql.service}}, smt_off_on_unit_postgresql.service]
- [{one_thread_per_core: {unit: postgresql@15-main.service}}, one_thread_per_core_unit_postgresql@15-main.service]
- [{one_thread_per_core: {unit: NetworkManager.service}}, one_thread_per_core_unit_NetworkManager.service]
- [one_thread_per_core, one_thread_per_core]
- [threads_per_core_2, threads_per_core_2]
""")
NO_UNITS = ["../../etc/x.service", "a b.service", "-a.service", "a.service\n", "a\x1b[2J.service", "a.timer"]
PARTS = [{"node": -1}, {"node": True}, {"node": 0, "package": 0}, {"cpus": "0-7;reboot"}, {"cpus": [0, 1]}, "node 0"]
HOSTILE = [{key: {"unit": unit}} for unit in NO_UNITS for key in ("smt_off_on", "one_thread_per_core")]
HOSTILE += [
    *({"smt_off_on": part} for part in PARTS),
    {"one_thread_per_core": {"node": 0}},
    {"one_thread_per_core": {}},
]
HOSTILE += [{"smt_off": {"node": 0}}, {"smt_off_on": {"node": 0}, "x": 1}, {}, 5, None, ["smt_on"]]


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


OTHERS = ["smt_off_on", "smt_off_on_node_x", "one_thread_per_core_node_0", "smt_off_on_unit_..", "smt_off_on_cpus_0,1"]


@pytest.mark.parametrize("name", [*OTHERS, "smt_of"])
def test_a_misspelt_name_is_refused_with_all_that_there_are(name):
    with pytest.raises(base.ArmError) as refused:
        catalogue.check([name])
    known = [one for kind in catalogue.kinds() for one in catalogue.shown(kind)]
    assert str(refused.value) == f"there is no arm {name!r}: choose from {', '.join(known)}"
    # The names of all arms fit into results.
    for shown in known:
        assert re.match(arms.NAME, shown.replace("_NAME", "_a").replace("_N", "_1").replace("_LIST", "_1"))


def test_an_arm_that_takes_a_reboot_is_not_measured_at_run_time():
    assert catalogue.check(["smt_on", "nosmt"], with_boots=True) == ["smt_on", "nosmt"]
    with pytest.raises(base.ArmError, match="nosmt takes a reboot"):
        catalogue.check(["smt_on", "nosmt"])


HOSTILE_NAMES = ["../x", "x/y", "x_unit_../../a", "x_unit_a b", "X", "x\n", "x_unit_.a", "x_cpus_-1", "x.y", "<b>"]


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, "x" * 61])
def test_a_hostile_name_in_a_result_is_refused(name):
    written = json.dumps(result_maker.result()).replace('"smt_off"', json.dumps(name))
    with pytest.raises(text.BorderError):
        results.parse(written, "a host")
