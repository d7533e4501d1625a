# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts of a fleet for people and programs."""

from __future__ import annotations

import datetime
import json
import re

import looks
import markup
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import metrics, registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, compliance_report, waivers
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.exposure import cores_in_use
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

FORMATS = registry.formats()
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
EVIL = "<script>alert(1)</script>\x1b[31m\"'&\\\n{{ 7 * 7 }}"
ORDER = ["drifted", "bad_policy", "unreachable", "silent", "unknown_to_server", "unknown", "waived", "compliant"]


def verdict(status="compliant", **known):
    usual = {"wanted": "disabled", "hardware_class": "c1", "reboot_pending": False}
    return compliance.refused("because", status, **{**usual, **known})


def aspect(status):
    return {"status": status, "reasons": ["x"], "blocked_by": None}


FLEET = [
    ("a", verdict()),
    ("b", verdict("drifted", running=aspect("drifted"), configured=aspect("compliant"))),
    ("c", verdict("unknown")),
    ("d", compliance.refused("no route", "unreachable")),
]


def made(name, fleet=tuple(FLEET), at=NOW, *left_out, **known):
    return FORMATS[name].make(Check(fleet, at, *left_out, **known))


def hosts_of(fleet=tuple(FLEET), **known):
    return json.loads(made("json", fleet, **known))["hosts"]


@pytest.mark.parametrize(
    ("fleet", "sentence"),
    [
        ([], "0 hosts: none."),
        (FLEET, "4 hosts: 1 drifted, 1 unreachable, 1 unknown, 1 compliant."),
        ([("a", verdict("unknown_to_server"))], "1 host: 1 unknown to server."),
        ([("a", verdict())], "1 host: 1 compliant. Not checked: 1 other host of the inventory."),
    ],
)
def test_the_counts_and_the_sentence(fleet, sentence):
    assert compliance_report.sentence(fleet, ["x"] if "Not checked" in sentence else []) == sentence
    counted = compliance_report.counts(fleet)
    assert set(counted) == set(compliance.STATUSES) and sum(counted.values()) == len(fleet)


def test_what_needs_action_comes_first_and_a_link_chooses_each_status():
    fleet = [(f"{status}-{name}", verdict(status)) for name in "ba" for status in compliance.STATUSES]
    names = [f"{status}-{name}" for status in ORDER for name in "ab"]
    page = markup.whole(made("page", fleet))
    assert re.findall('<tr><th scope="row">([a-z_]+-[ab])</th>', page) == names
    assert [line.split()[0] for line in compliance_report.table(fleet)[2:18]] == names
    links = [(f"#status={one.replace('_', '+')}", f"{one.replace('_', ' ')} 2") for one in ORDER]
    assert re.findall('<a href="(.*?)" data-chooses="hosts">(.*?)</a>', page) == links


@pytest.mark.parametrize(
    ("fleet", "last"), [([("a", verdict("drifted"))], ["scope"]), (FLEET, ["scope", "running", "configured"])]
)
def test_columns_that_are_empty_on_all_hosts_are_left_out(fleet, last):
    heads = re.findall('<th scope="col">(.*?)</th>', markup.whole(made("page", fleet)))
    assert [one for one in heads[5:-1] if one != "wanted"] == last


def test_the_largest_class_comes_first():
    fleet = [(str(place), verdict(hardware_class=name)) for place, name in enumerate(["x", "yy", "yy"])]
    page = markup.whole(made("page", fleet))
    assert re.findall('<tr><th scope="row">(x|yy)</th>', page) == ["yy", "x"]


@pytest.mark.parametrize("status", [None, *ORDER])
def test_a_pipeline_stops_for_anything_but_compliant_and_waived(status):
    fleet = [("a", verdict()), *([("b", verdict(status))] if status else [])]
    assert compliance_report.exit_worthy(fleet) == (status not in (None, "compliant", "waived"))


def test_json_says_all_of_it():
    actual = json.loads(made("json"))
    assert actual["at"] == "2026-03-01T12:00:00Z" and [host["host"] for host in actual["hosts"]] == list("abcd")
    assert actual["hosts"][1]["running"] == {"status": "drifted", "reasons": ["x"]}
    assert actual["hosts"][1]["memory"] is None


def test_a_change_that_nobody_confirmed_is_shown_everywhere_with_what_the_host_can_be_brought_back_to():
    rollback = {"since": "2026-03-01T12:00:00Z", "back_to": "CPUs 0-4,6 online"}
    fleet = [
        (name, {**verdict(), "sentence": "", "pending_rollback": pending})
        for name, pending in (("a", rollback), ("b", None), ("c", {"since": None, "back_to": None}))
    ]
    said = "changed by a rollout that was interrupted before the host was found healthy"
    back = " (it can be brought back to CPUs 0-4,6 online, as of 2026-03-01T12:00:00Z)"
    lines = compliance_report.table(fleet)[2:5]
    assert [line.partition(said)[1:] for line in lines] == [(said, back), ("", ""), (said, "")]
    assert made("page", fleet).count(said) == 2
    assert [host["pending_rollback"] for host in hosts_of(fleet)] == [True, False, True]


def test_metrics_say_what_is_known_and_leave_the_rest_out():
    lines = made("metrics").splitlines()
    assert 'threadwise_smt_drifted{host="b",hardware_class="c1",aspect="running"} 1' in lines
    assert 'threadwise_smt_drifted{host="b",hardware_class="c1",aspect="configured"} 0' in lines
    assert 'threadwise_smt_compliant{host="d",hardware_class=""} 0' in lines
    assert not any(line.startswith("threadwise_smt_checked") and 'host="d"' in line for line in lines)
    assert not any("memory" in line for line in lines if not line.startswith("#"))


def test_what_a_call_was_not_about_is_named_and_keeps_its_metrics():
    def of_others(lines):
        return [line for line in lines if 'host="a"' in line or 'host="c"' in line]

    earlier, others, later = made("metrics"), ["a", "c"], NOW + datetime.timedelta(hours=1)
    assert json.loads(made("json", FLEET[1:2], later, others))["left_out"] == others
    assert "2 other hosts of the inventory" in made("page", FLEET[1:2], later, others)
    assert "Not checked" not in made("page", FLEET[1:2], later)
    lines = made("metrics", FLEET[1:2], later, others, earlier=earlier).splitlines()
    assert of_others(lines) == of_others(earlier.splitlines()) != []
    # A host that is in the inventory no more goes, and nothing is there twice.
    assert not any('host="d"' in line for line in lines) and len(lines) == len(set(lines))
    assert f'threadwise_smt_checked_timestamp_seconds{{host="b",hardware_class="c1"}} {later.timestamp():.0f}' in lines
    # A name with each character that is special there.
    (other,) = made("metrics", [(EVIL, FLEET[0][1])]).splitlines()[2:3]
    assert other in made("metrics", [], NOW, [EVIL], earlier=other + "\n")


def test_nothing_from_a_host_becomes_markup_or_steers_a_terminal():
    known = {"hardware_class": EVIL, "decided_by": EVIL, "sentence": EVIL}
    fleet = [(EVIL, {**verdict("drifted", running=aspect("drifted")), **known})]
    page = made("page", fleet)
    assert page.count("<script") == 1 and "&lt;script&gt;alert(1)" in page
    assert all(line.isprintable() for line in compliance_report.table(fleet))


@pytest.mark.parametrize("parse", [parser, openmetrics_parser], ids=["node_exporter's format", "OpenMetrics"])
def test_metrics_are_what_other_parsers_read(parse):
    waiver = waivers.Waiver(datetime.date(2026, 3, 9), EVIL, EVIL)
    decision = {"rests_on": {}, "rechecks": [], "stale": [EVIL], "measure": ["a"]}
    odd = waivers.applied(verdict("drifted", running=aspect("drifted"), decision=decision), waiver, NOW)
    text = made("metrics", [*FLEET, (EVIL, odd)])
    families = {family.name: family for family in parse.text_string_to_metric_families(text)}
    assert set(families) == set(metrics.METRICS) and {family.type for family in families.values()} == {"gauge"}
    found = {one.labels["host"]: one.labels["status"] for one in families["threadwise_smt_status"].samples}
    assert found == {**{host: one["status"] for host, one in FLEET}, EVIL: "waived"}
    (end,) = families["threadwise_smt_waiver_end_timestamp_seconds"].samples
    assert end.value == datetime.datetime(2026, 3, 10, tzinfo=datetime.UTC).timestamp()
    assert {one.value for one in families["threadwise_smt_checked_timestamp_seconds"].samples} == {NOW.timestamp()}


def test_of_many_hosts_those_that_comply_are_counted_and_not_listed():
    fleet = [(f"h{number:04}", verdict("drifted" if number % 100 == 0 else "compliant")) for number in range(200)]
    assert len(compliance_report.table(fleet)) == 2 + 2 + 2
    assert made("page", fleet).count("<tr>") == 200 + 3 and len(hosts_of(fleet)) == 200


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_tells_nothing_new_but_the_time_is_written_and_is_no_change(tmp_path, name):
    path, (first, later) = tmp_path / "written", (NOW, NOW + datetime.timedelta(days=1))
    same, other = [("h", verdict())], [("h", verdict(status="drifted"))]
    assert result_files.write_page(path, made(name, same, first))
    new = made(name, same, later)
    assert not result_files.write_page(path, new) and path.read_text(encoding="utf-8") == new
    for content in (made(name, other, later), new + "\n", new.rpartition("\n")[0]):
        assert result_files.write_page(path, content, dry_run=True)
    assert path.read_text(encoding="utf-8") == new


def test_how_much_room_is_left_is_in_the_document_and_on_the_page_where_somebody_looked():
    burns = cores_in_use.if_looked("b", {"msg": f"it burns {EVIL}"})
    seen = {"a": looks.looked(), "b": burns, "c": None}
    hosts = {one["host"]: one["look"] for one in hosts_of(looks=seen)}
    method = {"reason": None, "seconds": 600.0, "method": "switches", "source": "proc_stat", "guessed": True}
    assert hosts["a"] == {**method, "use": looks.USE}
    assert hosts["b"]["reason"].startswith("it burns") and hosts["b"]["use"] is None
    assert hosts["c"] is None and hosts["d"] is None
    page = made("page", looks=seen)
    assert 'data-head="room for">19 to 32 % more<' in page and page.count("<script") == 1 and "<li>b: it burns" in page
    assert "of its work" not in made("page", looks={"a": None})
