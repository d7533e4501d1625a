# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of files for pipelines that their readers refuse or take wrongly, each tried on ours.
A test is named after its source.
"""

import datetime
import json
from xml.etree import ElementTree

import compliance_maker
import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry, sarif
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance_report, waivers
from ansible_collections.threadwise.smt.plugins.plugin_utils._preflight import variables

NOW = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)


def drifted(sentence="x"):
    return compliance_maker.found("drifted", sentence)


def results(judged):
    return json.loads(registry.formats()["sarif"].make(Check(judged, NOW)))["runs"][0]["results"]


def read_tests(judged):
    return ElementTree.fromstring(registry.formats()["junit"].make(Check(judged, NOW))).findall(".//testcase")


def test_codeql_action_1230_1738_2456_scorecard_action_1149_and_trufflehog_5165_results_of_sarif():
    for one in results([("h", drifted())]):
        uri = one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert uri and " " not in uri and not uri.startswith(("/", "..", "file:"))
    waiver = waivers.parse({"until": "2026-03-09", "reason": "x", "owner": "y"})
    assert results([("h", drifted().under(waiver, NOW))]) == []
    found = prints([("a", drifted()), ("b", drifted())])
    assert len(set(found)) == 2
    assert found == prints([("a", drifted("it says something else today")), ("b", drifted())])


def test_tfsec_sarif_action_43_more_results_than_are_taken(monkeypatch):
    monkeypatch.setattr(sarif, "MAX_RESULTS", 3)
    fleet = [(f"h{number}", drifted()) for number in range(5)]
    (run,) = json.loads(registry.formats()["sarif"].make(Check(fleet, NOW)))["runs"]
    assert len(run["results"]) == 3 and run["properties"]["counts"]["drifted"] == 5
    (said,) = run["invocations"][0]["toolExecutionNotifications"]
    assert said["message"]["text"].startswith("2 of 5 hosts that need action are left out")


def prints(judged):
    return [one["partialFingerprints"]["primaryLocationLineHash"] for one in results(judged)]


@pytest.mark.parametrize(
    "character", ["\x00", "\x01", "\x10", "\x1b", "\x7f", "\x85", "\ufffe", "\uffff", "\ud800", "]]>"]
)
def test_surefire_57_1899_and_mocha_jenkins_reporter_34_98_characters_that_xml_does_not_have(character):
    text = f"a{character}b"
    (one,) = read_tests([(text, drifted(text))])
    assert "a" in one.get("name") and one.find("failure").text.startswith("a")


def test_gitlab_237920_eslint_11068_and_awx_tests_are_told_apart_and_counts_are_known_variables():
    found = read_tests([("a", drifted()), ("b", drifted()), ("c", compliance_maker.found())])
    assert len({(one.get("classname"), one.get("name")) for one in found}) == 3 and all(
        one.get("classname") for one in found
    )
    specs = variables.known()
    setting = variables.Setting("h", "smt_compliance_counts", compliance_report.counts([("h", drifted())]))
    assert variables.is_ours(setting.name, specs) and variables.problems([setting], specs, 1) == []
