# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The names of arms: both forms, what is refused, and that each reaches results, and schemas, safely."""

from __future__ import annotations

import json
import re

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._arms import base, catalogue
from ansible_collections.threadwise.smt.plugins.module_utils._vocabulary import arms
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results, text
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import variables
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight.variables import Setting

FORMS = [
    ({"smt_off_on": {"node": 0}}, "smt_off_on_node_0"),
    ({"smt_off_on": {"package": "1"}}, "smt_off_on_package_1"),
    ({"smt_off_on": {"cpus": "0-7"}}, "smt_off_on_cpus_0-7"),
    ({"smt_off_on": {"cpus": "0-7,16-23"}}, "smt_off_on_cpus_0-7_16-23"),
    ({"smt_off_on": {"cpus": 3}}, "smt_off_on_cpus_3"),
    ({"smt_off_on": {"unit": "postgresql.service"}}, "smt_off_on_unit_postgresql.service"),
    (
        {"one_thread_per_core": {"unit": "postgresql@15-main.service"}},
        "one_thread_per_core_unit_postgresql@15-main.service",
    ),
    ({"one_thread_per_core": {"unit": "NetworkManager.service"}}, "one_thread_per_core_unit_NetworkManager.service"),
    ("one_thread_per_core", "one_thread_per_core"),
    ("threads_per_core_2", "threads_per_core_2"),
]
HOSTILE = [
    {"smt_off_on": {"unit": "../../etc/x.service"}},
    {"smt_off_on": {"unit": "a b.service"}},
    {"smt_off_on": {"unit": "-a.service"}},
    {"smt_off_on": {"unit": "a.service\n"}},
    {"smt_off_on": {"unit": "a\x1b[2J.service"}},
    {"one_thread_per_core": {"unit": "a.timer"}},
    {"one_thread_per_core": {"node": 0}},
    {"one_thread_per_core": {}},
    {"smt_off_on": {"node": -1}},
    {"smt_off_on": {"node": True}},
    {"smt_off_on": {"node": 0, "package": 0}},
    {"smt_off_on": {"cpus": "0-7;reboot"}},
    {"smt_off_on": {"cpus": [0, 1]}},
    {"smt_off_on": "node 0"},
    {"smt_off": {"node": 0}},
    {"smt_off_on": {"node": 0}, "x": 1},
    {},
    5,
    None,
    ["smt_on"],
]


@pytest.mark.parametrize(("given", "name"), FORMS)
def test_both_forms_are_the_same_arm(given, name):
    assert catalogue.name_of(given) == catalogue.name_of(name) == name
    assert catalogue.check([given, "as_found"]) == [name, "as_found"]
    assert re.match(arms.NAME, name) and len(name) <= arms.LONGEST_NAME
    if isinstance(given, dict):
        ((key, where),) = given.items()
        assert arms.part_of(key, name) == (next(iter(where)), str(next(iter(where.values()))))


@pytest.mark.parametrize("given", HOSTILE)
def test_everything_else_is_refused_in_one_sentence(given):
    with pytest.raises(base.ArmError) as refused:
        catalogue.check(["as_found", given])
    assert str(refused.value).isprintable()
    assert re.search(r"give .*\{(smt_off_on|one_thread_per_core): \{(node|unit|cpus): ", str(refused.value))


@pytest.mark.parametrize(
    "name",
    [
        "smt_off_on",
        "smt_off_on_node_x",
        "one_thread_per_core_node_0",
        "smt_off_on_unit_..",
        "smt_off_on_cpus_0,1",
        "smt_of",
    ],
)
def test_a_misspelt_name_is_refused_with_all_that_there_are(name):
    with pytest.raises(base.ArmError) as refused:
        catalogue.check([name])
    known = ", ".join(one for kind in catalogue.kinds() for one in catalogue.shown(kind))
    assert str(refused.value) == f"there is no arm {name!r}: choose from {known}" and "smt_off_on_node_N" in known


@pytest.mark.parametrize(("given", "name"), FORMS)
def test_a_result_may_name_each_arm(given, name):
    document = result_maker.result()
    renamed = document["arms"][1]["name"]
    written = json.dumps(document).replace(f'"{renamed}"', f'"{name}"')
    assert name in [arm.name for arm in results.parse(written, "a host").arms]


@pytest.mark.parametrize(
    "name",
    ["../x", "x/y", "x_unit_../../a", "x_unit_a b", "X", "x\n", "x_unit_.a", "x_cpus_-1", "x.y", "<b>", "x" * 61],
)
def test_a_hostile_name_in_a_result_is_refused(name):
    document = result_maker.result()
    written = json.dumps(document).replace(json.dumps(document["arms"][1]["name"]), json.dumps(name))
    with pytest.raises(text.BorderError):
        results.parse(written, "a host")


def test_the_names_of_all_arms_fit_into_results():
    for kind in catalogue.kinds():
        assert all(
            re.match(arms.NAME, name.replace("_NAME", "_a").replace("_N", "_1").replace("_LIST", "_1"))
            for name in catalogue.shown(kind)
        )


def problems(value):
    specs = variables.known()
    return variables.problems([Setting("h1", "smt_eval_arms", value)], specs, 1)


def test_misspelt_arms_are_refused_before_any_host_is_contacted():
    assert (
        problems(["smt_on", "smt_off", {"smt_off_on": {"node": 0}}, "thp_never"])
        == []
        == problems("smt_on,smt_off_on_node_0")
    )
    assert "there is no arm 'smt_of'" in problems(["smt_on", "smt_of"])[0]
    assert "does not say which part" in problems(["smt_on", {"smt_off_on": {"numa": 0}}])[0]
    assert "twice" in problems(["smt_on", "smt_off_on_node_0", {"smt_off_on": {"node": 0}}])[0]
