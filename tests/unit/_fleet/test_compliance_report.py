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
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import (
    compliance,
    compliance_report,
    cores_in_use,
    waivers,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files import metrics, registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files.base import Check
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

FORMATS = registry.formats()
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
EVIL = "<script>alert(1)</script>\x1b[31m\"'&\\\n{{ 7 * 7 }}"


def verdict(status="compliant", **known):
    return compliance.refused("because", status, wanted="disabled", hardware_class="c1", reboot_pending=False, **known)


def aspect(status):
    return {"status": status, "reasons": ["x"], "blocked_by": None}


FLEET = [
    ("a", verdict()),
    ("b", verdict("drifted", running=aspect("drifted"), configured=aspect("compliant"))),
    ("c", verdict("unknown")),
    ("d", compliance.refused("no route", "unreachable")),
]


def test_the_counts_and_the_sentence():
    assert compliance_report.counts(FLEET) == {
        "compliant": 1,
        "waived": 0,
        "drifted": 1,
        "bad_policy": 0,
        "unknown": 1,
        "unreachable": 1,
        "silent": 0,
        "unknown_to_server": 0,
    }
    assert compliance_report.sentence([("a", verdict("bad_policy"))]) == "1 host: 1 bad policy."
    assert compliance_report.sentence(FLEET) == "4 hosts: 1 drifted, 1 unreachable, 1 unknown, 1 compliant."
    assert compliance_report.sentence([]) == "0 hosts: none."


def test_what_needs_action_comes_first_and_a_link_chooses_each_status():
    fleet = [(f"{status}-{name}", verdict(status)) for name in "ba" for status in compliance.STATUSES]
    order = [
        "drifted",
        "bad_policy",
        "unreachable",
        "silent",
        "unknown_to_server",
        "unknown",
        "waived",
        "compliant",
    ]
    names = [f"{status}-{name}" for status in order for name in "ab"]
    page = markup.whole(FORMATS["page"].make(Check(fleet, NOW)))
    assert re.findall('<tr><th scope="row">([a-z_]+-[ab])</th>', page) == names
    assert [line.split()[0] for line in compliance_report.table(fleet)[2:18]] == names
    assert re.findall('<a href="(.*?)" data-chooses="hosts">(.*?)</a>', page) == [
        (f"#status={status.replace('_', '+')}", f"{status.replace('_', ' ')} 2") for status in order
    ]


def test_columns_that_are_empty_on_all_hosts_are_left_out():
    heads = re.findall(
        '<th scope="col">(.*?)</th>', markup.whole(FORMATS["page"].make(Check([("a", verdict("drifted"))], NOW)))
    )
    assert heads == ["class", "host", "status", "how", "to do", "wanted", "scope", "class"]
    heads = re.findall('<th scope="col">(.*?)</th>', markup.whole(FORMATS["page"].make(Check(FLEET, NOW))))
    assert heads[6:] == ["scope", "running", "configured", "class"]


@pytest.mark.parametrize(
    ("statuses", "worthy"),
    [
        ([], False),
        (["compliant"], False),
        (["compliant", "drifted"], True),
        (["unknown"], True),
        (["bad_policy"], True),
        (["unreachable"], True),
    ],
)
def test_a_pipeline_stops_for_anything_but_compliant(statuses, worthy):
    assert compliance_report.exit_worthy([("a", verdict(status)) for status in statuses]) is worthy


def test_json_says_all_of_it():
    actual = json.loads(FORMATS["json"].make(Check(FLEET, NOW)))
    assert actual["at"] == "2026-03-01T12:00:00Z" and [host["host"] for host in actual["hosts"]] == list("abcd")
    assert (
        actual["hosts"][1]["running"] == {"status": "drifted", "reasons": ["x"]}
        and actual["hosts"][1]["memory"] is None
    )


def test_a_change_that_nobody_confirmed_is_shown_everywhere():
    fleet = [
        ("a", dict(verdict(), sentence="", pending_rollback={"since": None, "back_to": None})),
        ("b", dict(verdict(), sentence="")),
    ]
    actual = "changed by a rollout that was interrupted before the host was found healthy"
    assert [actual in line for line in compliance_report.table(fleet)[2:4]] == [True, False]
    assert FORMATS["page"].make(Check(fleet, NOW)).count(actual) == 1
    assert [host["pending_rollback"] for host in json.loads(FORMATS["json"].make(Check(fleet, NOW)))["hosts"]] == [
        True,
        False,
    ]


def test_a_change_that_nobody_confirmed_tells_what_the_host_can_be_brought_back_to():
    rollback = {"since": "2026-03-01T12:00:00Z", "back_to": "CPUs 0-4,6 online"}
    line = compliance_report.table([("a", dict(verdict(), sentence="", pending_rollback=rollback))])[2]
    assert line.endswith("was found healthy (it can be brought back to CPUs 0-4,6 online, as of 2026-03-01T12:00:00Z)")


def test_metrics_say_what_is_known_and_leave_the_rest_out():
    lines = FORMATS["metrics"].make(Check(FLEET, NOW)).splitlines()
    assert 'threadwise_smt_drifted{host="b",hardware_class="c1",aspect="running"} 1' in lines
    assert 'threadwise_smt_drifted{host="b",hardware_class="c1",aspect="configured"} 0' in lines
    assert 'threadwise_smt_compliant{host="d",hardware_class=""} 0' in lines
    assert not any(line.startswith("threadwise_smt_checked") and 'host="d"' in line for line in lines)
    assert not any("memory" in line for line in lines if not line.startswith("#"))


def test_what_a_call_was_not_about_is_named_and_keeps_its_metrics():
    earlier = FORMATS["metrics"].make(Check(FLEET, NOW))
    checked, others = [FLEET[1]], ["a", "c"]
    later = NOW + datetime.timedelta(hours=1)
    sentence = compliance_report.sentence(checked, others)
    assert sentence == "1 host: 1 drifted. Not checked: 2 other hosts of the inventory."
    assert json.loads(FORMATS["json"].make(Check(checked, later, others)))["left_out"] == others
    assert "2 other hosts of the inventory" in FORMATS["page"].make(Check(checked, later, others))
    assert "Not checked" not in FORMATS["page"].make(Check(checked, later))
    lines = FORMATS["metrics"].make(Check(checked, later, others, earlier=earlier)).splitlines()
    assert [line for line in lines if 'host="a"' in line or 'host="c"' in line] == [
        line for line in earlier.splitlines() if 'host="a"' in line or 'host="c"' in line
    ]
    # A host that is in the inventory no more goes, and nothing is there twice.
    assert not any('host="d"' in line for line in lines) and len(lines) == len(set(lines))
    assert f'threadwise_smt_checked_timestamp_seconds{{host="b",hardware_class="c1"}} {later.timestamp():.0f}' in lines
    # A name with each character that is special there.
    (other,) = FORMATS["metrics"].make(Check([(EVIL, FLEET[0][1])], NOW)).splitlines()[2:3]
    assert other in FORMATS["metrics"].make(Check([], NOW, [EVIL], earlier=other + "\n"))


def test_nothing_from_a_host_becomes_markup_or_a_metric_or_steers_a_terminal():
    fleet = [
        (EVIL, dict(verdict("drifted", running=aspect("drifted")), sentence=EVIL, hardware_class=EVIL, decided_by=EVIL))
    ]
    page = FORMATS["page"].make(Check(fleet, NOW))
    assert page.count("<script") == 1 and "&lt;script&gt;alert(1)" in page
    assert all(line.isprintable() for line in compliance_report.table(fleet))


@pytest.mark.parametrize(
    "parse",
    [parser.text_string_to_metric_families, openmetrics_parser.text_string_to_metric_families],
    ids=["node_exporter's format", "OpenMetrics"],
)
def test_metrics_are_what_other_parsers_read(parse):
    waiver = waivers.Waiver(datetime.date(2026, 3, 9), EVIL, EVIL)
    decision = {"rests_on": {}, "rechecks": [], "stale": [EVIL], "measure": ["a"]}
    result = verdict("drifted", running=aspect("drifted"), decision=decision)
    odd = (EVIL, waivers.applied(result, waiver, NOW))
    families = {family.name: family for family in parse(FORMATS["metrics"].make(Check([*FLEET, odd], NOW)))}
    assert set(families) == set(metrics.METRICS) and {family.type for family in families.values()} == {"gauge"}
    assert {sample.labels["host"]: sample.labels["status"] for sample in families["threadwise_smt_status"].samples} == {
        "a": "compliant",
        "b": "drifted",
        "c": "unknown",
        "d": "unreachable",
        EVIL: "waived",
    }
    (end,) = families["threadwise_smt_waiver_end_timestamp_seconds"].samples
    assert datetime.datetime.fromtimestamp(end.value, datetime.UTC) == datetime.datetime(
        2026, 3, 10, tzinfo=datetime.UTC
    )
    assert {sample.value for sample in families["threadwise_smt_checked_timestamp_seconds"].samples} == {
        NOW.timestamp()
    }


def test_a_thousand_hosts():
    fleet = [(f"h{number:04}", verdict("drifted" if number % 100 == 0 else "compliant")) for number in range(1000)]
    lines = compliance_report.table(fleet)
    assert len(lines) == 2 + 10 + 2 and lines[-1] == "1000 hosts: 10 drifted, 990 compliant.", (
        "compliant hosts are counted, not listed"
    )
    assert FORMATS["page"].make(Check(fleet, NOW)).count("<tr>") == 1000 + 3
    assert len(json.loads(FORMATS["json"].make(Check(fleet, NOW)))["hosts"]) == 1000


@pytest.mark.parametrize("name", FORMATS)
def test_a_file_that_tells_nothing_new_but_the_time_is_written_and_is_no_change(tmp_path, name):
    def make(fleet, at):
        return FORMATS[name].make(Check(fleet, at))

    first, later = (datetime.datetime(2026, 1, day, 3, 4, 5, tzinfo=datetime.UTC) for day in (2, 3))
    path = tmp_path / "written"
    same, other = [("h", verdict())], [("h", verdict(status="drifted"))]
    assert result_files.write_page(path, make(same, first))
    assert not result_files.write_page(path, make(same, later))
    assert path.read_text(encoding="utf-8") == make(same, later)
    for content in (make(other, later), make(same, later) + "\n", make(same, later).rpartition("\n")[0]):
        assert result_files.write_page(path, content, dry_run=True)
    assert path.read_text(encoding="utf-8") == make(same, later)


def test_how_much_room_is_left_is_in_the_document_and_on_the_page_where_somebody_looked():
    burns = cores_in_use.if_looked("b", {"msg": f"it burns {EVIL}"})
    seen = {"a": looks.looked(), "b": burns, "c": None}
    hosts = {
        one["host"]: one["look"] for one in json.loads(FORMATS["json"].make(Check(FLEET, NOW, looks=seen)))["hosts"]
    }
    assert hosts["a"] == {
        "reason": None,
        "seconds": 600.0,
        "method": "switches",
        "source": "proc_stat",
        "guessed": True,
        "use": looks.USE,
    }
    assert hosts["b"]["reason"].startswith("it burns") and hosts["b"]["use"] is None
    assert hosts["c"] is None and hosts["d"] is None
    page = FORMATS["page"].make(Check(FLEET, NOW, looks=seen))
    assert 'data-head="room for">19 to 32 % more<' in page and "<script>alert" not in page
    assert "How the CPUs of 1 host are used is not known" in page and "<li>b: it burns" in page
    assert "of its work" not in FORMATS["page"].make(Check(FLEET, NOW, looks={"a": None}))
