# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import base64
import dataclasses
import hashlib
import html.parser
import os
import re
import subprocess
import sys

import looks
import markup
import pytest
import result_maker
import sysfs_tree
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._facts import facts as smt_facts
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import cores_in_use, survey
from hypothesis import given, settings, strategies as st
from sysfs_tree import Machine

MACHINE = Machine(packages=2, cores=9)
EVIL = "<script>alert(1)</script>\x1b[31m\"'&\n{{ 7 * 7 }}"

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.just(EVIL)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)


def gather(root, machine, **further):
    return smt_facts.gather(host_files.HostFs(sysfs_tree.write(root, dict(sysfs_tree.files(machine), **further))))


@pytest.fixture(name="known")
def _known(tmp_path):
    return gather(tmp_path, MACHINE)


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({}, survey.ON),
        ({"active": False, "control": "off"}, survey.OFF),
        ({"active": False, "control": "forceoff"}, survey.FORCED_OFF),
        ({"supported": False, "active": False}, survey.NONE),
        ({"supported": None}, survey.UNKNOWN),
        ({"active": None}, survey.UNKNOWN),
        ({"cpus": {"offline": "3"}}, survey.PARTLY),
        ({"supported": "yes"}, survey.UNKNOWN),
        ({"active": 1}, survey.UNKNOWN),
        ({"cpus": "x"}, survey.ON),
    ],
)
def test_the_state(known, change, state):
    assert survey.row("a", dict(known, **change)).state == state


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        ({}, "2 packages, 18 cores x 2"),
        ({"sockets": 1, "cores": 1, "threads_per_core": {"min": 1, "max": 1}}, "1 package, 1 core x 1"),
        ({"threads_per_core": {"min": 1, "max": 2}}, "2 packages, 18 cores x 1-2"),
        ({"cores": None}, ""),
        ({"sockets": None}, "18 cores x 2"),
        ({"cores": True}, ""),
        ({"threads_per_core": []}, ""),
    ],
)
def test_the_shape(known, change, shape):
    assert survey.row("a", dict(known, **change)).shape == shape


def test_drift_vulnerabilities_and_method(known):
    known.update(
        boot={"running": [], "configured": ["nosmt"], "loader": "grubby", "reboot_required": True},
        methods={"runtime": {"chosen": "smt_control"}},
        vulnerabilities={
            "mds": {"status": "x", "smt": "vulnerable"},
            "l1tf": {"status": "x", "smt": "unknown"},
            "tsx": {"status": "x", "smt": None},
        },
    )
    one = survey.row("a", known)
    assert (one.drift, one.configured, one.open_to, one.guest_unknown, one.method) == (
        True,
        ("nosmt",),
        ("mds",),
        ("l1tf",),
        "smt_control",
    )
    assert "nosmt" in survey.table([one])[2] and "mds" in survey.table([one])[2]


def test_what_is_not_known_is_said(tmp_path, known):
    assert survey.row("a", known).unknowns == ()
    off = gather(tmp_path / "off", dataclasses.replace(MACHINE, offline=tuple(range(18, 36)), control="off"))
    assert "the cores of CPUs 18-35" in survey.row("a", off).unknowns[0]
    assert survey.row("a", dict(known, complete=False)).unknowns == ("which CPUs share a core",)
    assert "cpuinfo" in survey.row("a", dict(known, source="cpuinfo")).unknowns[0]
    actual = survey.row("a", dict(known, measured={"agrees_with_kernel": False, "pairs": ["0-1"]})).unknowns[0]
    assert actual == "By measuring, CPUs 0-1 share a core; the kernel says otherwise."
    assert survey.row("a", dict(known, problems=["it burns"])).unknowns == ("it burns",)


def test_the_sentence_counts(known):
    rows = [
        survey.row("a", known),
        survey.row("b", dict(known, active=False, control="off")),
        survey.unreached("c", "gone"),
    ]
    assert (
        survey.sentence(rows)
        == "3 hosts: 1 with SMT on, 1 with SMT off, 2 whose next boot is not known, 1 without facts."
    )
    assert survey.sentence([]) == "0 hosts: none."


def test_hosts_that_need_action_come_first(known):
    vulnerable = {"mds": {"status": "x", "smt": "vulnerable"}}
    otherwise = {"running": [], "configured": ["nosmt"], "reboot_required": True}
    rows = [
        survey.row("fine-b", known),
        survey.row("fine-a", known),
        survey.row("some-unknown", dict(known, problems=["it burns"])),
        survey.row("boots-otherwise", dict(known, boot=otherwise)),
        survey.row("open", dict(known, vulnerabilities=vulnerable)),
        survey.row("state-unknown", dict(known, active=None)),
        survey.unreached("gone", "no route"),
    ]
    names = ["gone", "state-unknown", "open", "boots-otherwise", "some-unknown", "fine-a", "fine-b"]
    assert [line.split()[0] for line in survey.table(rows)[2:9]] == names
    page = markup.whole(survey.page(rows, "now"))
    assert re.findall('<tr><th scope="row">([a-z-]+)</th><td class="verdict', page) == names[1:]
    assert re.findall('<a href="(.*?)" data-chooses="hosts">(.*?)</a>', page) == [
        ("#SMT=on", "on 5"),
        ("#SMT=unknown", "unknown 1"),
    ]


def test_classes_come_by_size_and_the_unknown_last(known):
    rows = [
        survey.row(str(number), dict(known, hardware_class=name))
        for number, name in enumerate(["x", "y", "y", None, None, None])
    ]
    assert [(name, len(hosts)) for name, hosts in survey.classes(rows)] == [("y", 2), ("x", 1), (None, 3)]


class Texts(html.parser.HTMLParser):
    """Collects tags and text of a page."""

    def __init__(self):
        super().__init__()
        self.tags = []
        self.text = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def read_page(rows):
    page = survey.page(rows, "now")
    texts = Texts()
    texts.feed(page)
    return page, texts


def test_the_page_holds_every_host_and_is_self_contained(known):
    rows = [survey.row("db1.example", known), survey.unreached("gone.example", "no route to host")]
    _page, texts = read_page(rows)
    shown = " ".join(texts.text)
    for part in (
        "db1.example",
        known["hardware_class"],
        "2 packages, 18 cores x 2",
        "gone.example",
        "no route to host",
        survey.sentence(rows),
    ):
        assert part in shown
    assert not any(
        name in attributes for dummy, attributes in texts.tags for name in ("src", "srcset", "action", "onclick")
    )
    assert {attributes["href"] for dummy, attributes in texts.tags if "href" in attributes} == {
        "data:,",
        "#content",
        "#SMT=on",
    }


def test_the_script_of_the_page_is_the_one_its_policy_allows(known):
    page = survey.page([survey.row("a", known)], "now")
    scripts = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.replace("&#39;", "'").replace("&#43;", "+")


@pytest.mark.parametrize(
    "where", ["hardware_class", "hypervisor", "problems", "boot", "methods", "vulnerabilities", "host", "reason"]
)
def test_nothing_from_a_host_becomes_markup_or_steers_a_terminal(known, where):
    value = {
        "problems": [EVIL],
        "boot": {"running": [EVIL], "configured": [EVIL], "reboot_required": True},
        "methods": {"runtime": {"chosen": EVIL}},
        "vulnerabilities": {EVIL: {"smt": "vulnerable"}},
    }.get(where, EVIL)
    rows = [
        survey.row(EVIL if where == "host" else "a", dict(known, **{where: value})),
        survey.unreached("b", EVIL if where == "reason" else "x"),
    ]
    page, texts = read_page(rows)
    assert [tag for tag, dummy in texts.tags].count("script") == 1
    assert "alert(1)" in page and "<script>alert" not in page and "{{ 7 * 7 }}" in page and "\x1b" not in page
    assert all(line.isprintable() for line in survey.table(rows))


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(sorted(result_maker.result(blocks=1)["facts"])),
        json_values,
    )
)
def test_facts_of_any_shape_make_a_row(value):
    rows = [survey.row("a", value)]
    assert all(line.isprintable() for line in survey.table(rows))
    assert survey.page(rows, "now").count("<script>") == 1


@pytest.mark.parametrize("value", [None, [], "x", 7])
def test_what_is_no_facts_is_a_host_without(value):
    assert not survey.row("a", value).reached


def test_a_long_text_is_cut(known):
    assert len(survey.row("a", dict(known, hardware_class="x" * 10**6)).hardware_class) == survey.MAX_TEXT


# ---- the playbook, over recorded trees -------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="surveyed")
def _surveyed(tmp_path_factory):
    """The playbook's run on three local hosts with trees of their own,
    one that cannot be read and one that cannot be reached.
    """
    root = tmp_path_factory.mktemp("survey")
    machines = {
        "on": MACHINE,
        "off": dataclasses.replace(MACHINE, offline=tuple(range(18, 36)), control="off"),
        "none": Machine(threads=1),
    }
    hosts = {
        name: {"smt_facts_sysroot": sysfs_tree.write(root / name, sysfs_tree.files(machine))}
        for name, machine in machines.items()
    }
    hosts.update(
        bad={"smt_facts_sysroot": str(root / "nothing")},
        gone={"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
    )
    inventory = {
        "all": {"hosts": hosts, "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}}
    }
    (root / "inventory.yml").write_text(yaml.safe_dump(inventory))
    run = subprocess.run(
        ["ansible-playbook", "-i", str(root / "inventory.yml"), "threadwise.smt.smt_survey"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        env=dict(
            os.environ, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"], ANSIBLE_NOCOLOR="1"
        ),
    )
    return run, root


def test_the_playbook_shows_every_host_and_names_those_without_facts(surveyed):
    run, _root = surveyed
    shown = run.stdout[: run.stdout.index("PLAY RECAP")].split("\n")
    table = {line.split()[0]: line for line in shown if line.split("  ")[0] in ("on", "off", "none", "bad", "gone")}
    assert set(table) == {"on", "off", "none", "bad", "gone"}, run.stdout + run.stderr
    assert "5 hosts: 1 with SMT on, 1 with SMT off, 1 no SMT," in run.stdout
    assert "the cores of CPUs 18-35" in table["off"]
    assert "is not a directory" in table["bad"]
    assert "connect" in table["gone"].lower()
    assert run.returncode == 4, "a host is unreachable"
    assert [re.search(rf"^{host} .*failed=(.)", run.stdout, re.MULTILINE)[1] for host in ("bad", "on", "off")] == [
        "1",
        "0",
        "0",
    ]


def test_the_playbook_writes_the_page_in_the_current_directory(surveyed):
    run, root = surveyed
    assert f"The page: {root}/smt_survey.html" in run.stdout
    page = (root / "smt_survey.html").read_text()
    assert "x86_64-2s18c36t-split-" in page and "gone" in page and "is not a directory" in page


# ---- with a look -----------------------------------------------------------------------------------------------------


def test_how_much_room_is_left_is_beside_the_state_where_somebody_looked(known):
    seen = survey.looked_at(survey.row("seen", known), looks.looked())
    failed = cores_in_use.if_looked("failed", {"failed": True, "msg": f"it burns {EVIL}"})
    rows = [seen, survey.looked_at(survey.row("failed", known), failed), survey.row("other", known)]
    head, _line, *lines = survey.table(rows)[:5]
    assert re.split("  +", head)[-6:] == ["vulnerable by SMT", *cores_in_use.ROOM_COLUMNS, "not known"]
    said = {line.split()[0]: " ".join(line.split()) for line in lines}
    assert "50 % 76 to 84 % 19 to 32 % more 100 % more" in said["seen"]
    assert "- - - - how its CPUs are used: it burns" in said["failed"] and said["other"].endswith("- - - - -")
    assert survey.sentence(rows).endswith("Use of CPUs: 2 hosts: 1 with less room than usage says, 1 without a look.")
    page = survey.page(rows, "now")
    assert 'data-head="of its work">76 to 84 %<' in page and "<script>alert" not in page


def test_without_a_look_nothing_is_said_of_room(known):
    skipped = cores_in_use.if_looked("a", {"skipped": True})
    gone = survey.looked_at(survey.unreached("b", "gone"), looks.looked())
    rows = [survey.looked_at(survey.row("a", known), skipped), gone]
    assert "of its work" not in "".join(survey.table(rows)) + survey.page(rows, "now")


# ---- programs that count CPUs ----------------------------------------------------------------------------------------


def test_who_would_not_follow_a_switch_is_said_before_anybody_switches(known):
    counts = {
        "program": "nginx",
        "unit": "nginx.service",
        "is_service": True,
        "counted": 36,
        "cpus": 18,
        "has": f"nginx.service has 36 worker processes for 36 CPUs {EVIL}",
        "remedy": "restart it",
    }
    rows = [survey.row("web", dict(known, consumers_after_switch=[counts, None])), survey.row("db", known)]
    page, texts = read_page(rows)
    assert "<script>alert" not in page and any("and would have 18: restart it" in text for text in texts.text)
    assert "1 with programs that would not follow a switch" in survey.sentence(rows)
    assert "would not follow a switch" not in survey.page(rows[1:], "now")
