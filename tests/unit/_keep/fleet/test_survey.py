# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The survey of many hosts' facts: rows, their order, sentences, the table and the page."""

from __future__ import annotations

import dataclasses
import re

import looks
import markup
import pytest
import result_maker
import sysfs_tree
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import survey
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use
from hypothesis import given, settings, strategies as st
from sysfs_tree import Machine

MACHINE = Machine(packages=2, cores=9)
OFF = dataclasses.replace(MACHINE, offline=tuple(range(18, 36)), control="off")
EVIL = "<script>alert(1)</script>\x1b[31m\"'&\n{{ 7 * 7 }}"
VULNERABLE = {"mds": {"status": "x", "smt": "vulnerable"}, "l1tf": {"smt": "unknown"}, "tsx": {"smt": None}}
OTHERWISE = {"running": [], "configured": ["nosmt"], "reboot_required": True}
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just(EVIL)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


def gather(root, machine):
    return smt_facts.gather(host_files.HostFs(sysfs_tree.write(root, sysfs_tree.files(machine))))


@pytest.fixture(scope="module", name="facts")
def _facts(tmp_path_factory):
    return gather(tmp_path_factory.mktemp("on"), MACHINE)


@pytest.fixture(name="row")
def _row(facts):
    return lambda name="a", **change: survey.row(name, {**facts, **change})


STATES = yaml.safe_load("""
- [{}, "on"]
- [{active: false, control: "off"}, "off"]
- [{active: false, control: forceoff}, forced off]
- [{supported: false, active: false}, no SMT]
- [{cpus: {offline: "3"}}, partly on]
- [{cpus: x}, "on"]
""") + [
    ({name: value}, "unknown")
    for name, value in (("supported", None), ("active", None), ("supported", "x"), ("active", 1))
]
SHAPES = yaml.safe_load("""
- [{sockets: 1, cores: 1, threads_per_core: {min: 1, max: 1}}, "1 package, 1 core x 1"]
- [{threads_per_core: {min: 1, max: 2}}, "2 packages, 18 cores x 1-2"]
- [{sockets: null}, "18 cores x 2"]
- [{cores: true}, ""]
- [{threads_per_core: []}, ""]
""")


@pytest.mark.parametrize(("change", "state"), STATES)
def test_the_state(row, change, state):
    assert row(**change).state == state


@pytest.mark.parametrize(("change", "shape"), SHAPES)
def test_the_shape(row, change, shape):
    assert row(**change).shape == shape


def test_drift_vulnerabilities_and_method(row):
    one = row(boot=OTHERWISE, methods={"runtime": {"chosen": "smt_control"}}, vulnerabilities=VULNERABLE)
    found = one.drift, one.configured, one.open_to, one.guest_unknown, one.method
    assert found == (True, ("nosmt",), ("mds",), ("l1tf",), "smt_control")
    assert "nosmt" in survey.table([one])[2] and "mds" in survey.table([one])[2]


def test_what_is_not_known_is_said(tmp_path, row):
    assert row().unknowns == ()
    assert "CPUs 18-35" in survey.row("a", gather(tmp_path, OFF)).unknowns[0]
    assert len(row(complete=False).unknowns) == 1 and "cpuinfo" in row(source="cpuinfo").unknowns[0]
    assert "CPUs 0-1" in row(measured={"agrees_with_kernel": False, "pairs": ["0-1"]}).unknowns[0]
    assert row(problems=["it burns"]).unknowns == ("it burns",)
    assert len(row(hardware_class="x" * 999).hardware_class) == survey.MAX_TEXT


COUNTS = {"program": "nginx", "unit": "nginx.service", "is_service": True, "counted": 36, "cpus": 18}
COUNTS.update(has=f"nginx.service has 36 worker processes for 36 CPUs {EVIL}", remedy="restart it")


@pytest.mark.parametrize(
    ("changes", "counted"),
    [
        ([], "none"),
        ([{}, {"active": False, "control": "off"}], "1 with SMT on, 1 with SMT off, 2 whose next boot is not known"),
        ([None], "1 without facts"),
        (
            [{"boot": OTHERWISE, "vulnerabilities": VULNERABLE, "consumers_after_switch": [COUNTS, None]}],
            (
                "1 with SMT on, 1 would boot with other SMT arguments, 1 vulnerable because siblings are online,"
                " 1 with programs that would not follow a switch"
            ),
        ),
        ([{"active": None, "boot": OTHERWISE}, {"problems": ["x"], "boot": OTHERWISE}], None),
    ],
)
def test_the_sentence(row, changes, counted):
    rows = [survey.unreached("c", "gone") if change is None else row(**change) for change in changes]
    counted = counted or "1 with SMT on, 1 unknown, 2 would boot with other SMT arguments, 1 with something not known"
    assert survey.sentence(rows) == f"{len(rows)} host{'s' * (len(rows) != 1)}: {counted}."


def test_hosts_that_need_action_come_first(row):
    rows = [
        row("fine-b"),
        row("fine-a"),
        row("some-unknown", problems=["it burns"]),
        row("boots-otherwise", boot=OTHERWISE),
        row("open", vulnerabilities=VULNERABLE),
        row("state-unknown", active=None),
        survey.unreached("gone", "no route"),
    ]
    names = ["gone", "state-unknown", "open", "boots-otherwise", "some-unknown", "fine-a", "fine-b"]
    assert [line.split()[0] for line in survey.table(rows)[2:9]] == names
    page = markup.whole(survey.page(rows, "now"))
    assert re.findall('<tr><th scope="row">([a-z-]+)</th><td class="verdict', page) == names[1:]
    chosen = re.findall('<a href="(.*?)" data-chooses="hosts">(.*?)</a>', page)
    assert chosen == [("#SMT=on", "on 5"), ("#SMT=unknown", "unknown 1")]
    # What the page needs is in it.
    assert set(re.findall(r'(?:href|src|srcset|action)="?([^"\s>]*)', page)) == {
        "data:,",
        "#content",
        *dict(chosen),
    }


def test_classes_come_by_size_and_the_unknown_last(row):
    rows = [row(hardware_class=name) for name in ["x", "y", "y", None, None, None]]
    assert [(name, len(hosts)) for name, hosts in survey.classes(rows)] == [("y", 2), ("x", 1), (None, 3)]


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("hardware_class", EVIL),
        ("hypervisor", EVIL),
        ("problems", [EVIL]),
        ("boot", {"running": [EVIL], "configured": [EVIL], "reboot_required": True}),
        ("methods", {"runtime": {"chosen": EVIL}}),
        ("vulnerabilities", {EVIL: {"smt": "vulnerable"}}),
        ("consumers_after_switch", [COUNTS]),
        ("host", None),
        ("reason", None),
    ],
)
def test_nothing_from_a_host_becomes_markup_or_steers_a_terminal(row, where, value):
    rows = [
        row(EVIL if where == "host" else "a", **{where: value}),
        survey.unreached("b", EVIL if where == "reason" else "x"),
    ]
    page = survey.page(rows, "now")
    assert page.count("<script") == 1 and "alert(1)" in page and "{{ 7 * 7 }}" in page and "\x1b" not in page
    assert all(line.isprintable() for line in survey.table(rows))
    assert ("and would have 18: restart it" in page) == (where == "consumers_after_switch")


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(result_maker.result(blocks=1)["facts"])), json_values))
def test_facts_of_any_shape_make_a_row(value):
    rows = [survey.row("a", value)]
    assert all(line.isprintable() for line in survey.table(rows))
    assert survey.page(rows, "now").count("<script>") == 1


@pytest.mark.parametrize("value", [None, [], "x", 7])
def test_what_is_no_facts_is_a_host_without(value):
    assert not survey.row("a", value).reached


def test_how_much_room_is_left_is_beside_the_state_where_somebody_looked(row):
    failed = cores_in_use.if_looked("failed", {"failed": True, "msg": f"it burns {EVIL}"})
    rows = [
        survey.looked_at(row("seen"), looks.looked()),
        survey.looked_at(row("failed"), failed),
        row("other"),
        survey.looked_at(survey.unreached("gone", "x"), looks.looked()),
    ]
    head, _line, *lines = survey.table(rows)[:6]
    assert re.split("  +", head)[-6:] == [survey.COLUMNS[-2], *cores_in_use.ROOM_COLUMNS, survey.COLUMNS[-1]]
    said = {line.split()[0]: " ".join(line.split()) for line in lines}
    assert "50 % 76 to 84 % 19 to 32 % more 100 % more" in said["seen"] and said["other"].endswith("- - - - -")
    assert "- - - - how" in said["failed"] and "it burns" in said["failed"] and "76" not in said["gone"]
    assert survey.sentence(rows).endswith(cores_in_use.summary([looks.looked(), failed]))
    page = survey.page(rows, "now")
    assert 'data-head="of its work">76 to 84 %<' in page and page.count("<script") == 1
    skipped = [survey.looked_at(row(), cores_in_use.if_looked("a", {"skipped": True})), rows[-1]]
    assert "of its work" not in "".join(survey.table(skipped)) + survey.page(skipped, "now")
