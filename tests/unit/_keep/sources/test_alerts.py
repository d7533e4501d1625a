# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The alerts of examples/prometheus-rules.yml about hosts, by promtool: each is raised, and holds over what happens to
series in months - other labels, a target of another name, a restart, missed scrapes - and ends with its reason.
"""

from __future__ import annotations

import json
import pathlib
import subprocess

import prometheus_server
import pytest
import yaml

RULES = pathlib.Path(__file__).resolve().parents[4] / "examples" / "prometheus-rules.yml"
HOUR, DAY = 60, 24 * 60
# Minutes between two evaluations of the rules, and where days pass.
EVALUATED, RARELY = 10, 30
WAIVED_UNTIL = 10 * 86400
# Name -> the metric and labels of its own, what is wrong and right in it, minutes until the alert, its severity.
ALERTS = {
    "SmtPolicyDrifted": ("drifted", {"aspect": "running"}, 1, 0, 3 * HOUR, "warning"),
    "SmtServicesWrong": ("services_wrong", {}, 2, 0, 3 * HOUR, "info"),
    "SmtDecisionStale": ("decision_stale", {}, 1, 0, DAY, "info"),
    "SmtPolicyUnknown": ("status", {"status": "unknown"}, 1, None, DAY, "warning"),
    "SmtPullRefused": ("pull_success", {}, 0, 1, DAY, "warning"),
    "SmtRebootPending": ("reboot_pending", {}, 1, 0, DAY, "info"),
}
# The labels of a series that have nothing to do with what is wrong.
FIRST = {"job": "node", "instance": "h1:9100", "hardware_class": "c1"}
# What an alert keeps of them.
KEPT = {"SmtDecisionStale": ("hardware_class",)}
# What happens in the middle of the time until the alert, and which labels the series has from then on.
EVENTS = {
    "another class": {"hardware_class": "c2"},
    "another target": {"instance": "10.0.0.1:9100"},
    "a restart of 20 minutes": None,
    "mended as another target": {"instance": "10.0.0.1:9100"},
}


@pytest.fixture(name="promtool", scope="module")
def promtool_of_debian():
    return prometheus_server.unpacked("prometheus", "usr/bin/promtool")


def series(metric, labels, values):
    pairs = ",".join(f'{name}="{value}"' for name, value in {"host": "h1", **labels}.items())
    return {"series": f"threadwise_smt_{metric}{{{pairs}}}", "values": values}


def judged(promtool, tmp_path, *cases, evaluated=EVALUATED):
    """Expect alerts: of each case its series, the minutes between two samples, and (name, minute, labels of each
    alert).
    """
    # Without the rules about usage, which take most of the time.
    rules = [{name: value for name, value in rule.items() if name != "annotations"} for rule in of_hosts()]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "x", "rules": rules}]}))
    tests = []
    for inputs, interval, expected in cases:
        alerts = [(name, minute, [{"exp_labels": one} for one in labels]) for name, minute, labels in expected]
        found = [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": some} for name, minute, some in alerts]
        tests.append({"interval": f"{interval}m", "input_series": inputs, "alert_rule_test": found})
    document = {"rule_files": ["rules.yml"], "evaluation_interval": f"{evaluated}m", "tests": tests}
    (tmp_path / "test.yml").write_text(json.dumps(document))
    command = [promtool, "test", "rules", "test.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def of_hosts():
    """The alerts about hosts; promtool takes minutes to get to the end of a month."""
    found = yaml.safe_load(RULES.read_text(encoding="utf-8").replace("for: 30d", "for: 1d"))["groups"]
    (rules,) = [group["rules"] for group in found if group["name"] == "threadwise-smt"]
    assert {rule["alert"] for rule in rules} == {*ALERTS, "SmtWaiverEnding", "SmtPolicyNotJudged"}
    return rules


def alert(name, labels):
    kept = {label: labels[label] for label in ("aspect", *KEPT.get(name, ())) if label in labels}
    return {"severity": ALERTS[name][5], "host": "h1", **kept}


def of_event(name, event):
    """A case: something is wrong, the event happens half way to the alert, and what was wrong is mended after it."""
    metric, own, wrong, right, until, _severity = ALERTS[name]
    more = max(until // 4, 40)
    half = until + more if event.startswith("mended") else until // 2
    after = {**FIRST, **(EVENTS[event] or {})}
    inputs = [series(metric, {**FIRST, **own}, f"{wrong}x{half} stale")]
    if EVENTS[event]:
        inputs += [series(metric, {**after, **own}, f"_x{half} {wrong}x{max(1, until - half + more)}")]
    else:
        inputs = [series(metric, {**FIRST, **own}, f"{wrong}x{half} _x20 {wrong}x{until - half - 20 + more}")]
    end, slack = until + more + 2, 3 * EVALUATED
    # What is right then is another series of a status, and another value of the others.
    inputs[-1]["values"] += " stale" if right is None else f" {right}x{HOUR}"
    if right is None:
        inputs.append(series(metric, {**after, "status": "compliant"}, f"_x{end} 1x{HOUR}"))
    begins_anew = name == "SmtDecisionStale" and event == "another class"
    moments = [(until - slack, []), (until + slack, [] if begins_anew else [alert(name, {**after, **own})])]
    return inputs, 1, [(name, minute, labels) for minute, labels in [*moments, (end + slack, [])]]


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_about_a_host_whatever_happens_to_its_series_and_ends_with_its_reason(name, promtool, tmp_path):
    judged(promtool, tmp_path, *(of_event(name, event) for event in EVENTS))


def test_a_host_that_is_unknown_for_one_reason_after_the_other_is_unknown_and_one_now_and_then_not(promtool, tmp_path):
    half = DAY // 2
    said = {"unknown": f"1x{half} stale", "unreachable": f"_x{half} 1x{half}", "silent": f"_x{2 * half} 1x{DAY}"}
    said["unreachable"] += " stale"
    inputs = [series("status", {**FIRST, "status": one}, values) for one, values in said.items()]
    expected = [("SmtPolicyUnknown", DAY - 30, []), ("SmtPolicyUnknown", DAY + 30, [alert("SmtPolicyUnknown", {})])]
    now_and_then = {"compliant": " ".join(["1x40 _x10"] * 40), "unknown": " ".join(["_x40 1x10"] * 40)}
    others = [series("status", {**FIRST, "status": one}, values) for one, values in now_and_then.items()]
    judged(promtool, tmp_path, (inputs, 1, expected), (others, 1, [("SmtPolicyUnknown", DAY + 60, [])]))


def test_a_host_that_is_not_checked_is_named_gone_or_not_until_it_is(promtool, tmp_path):
    first, days, day = 3 * DAY // 4, 6 * DAY // 4, DAY // 4
    # A series of before its labels changed has an old time for ever, and says nothing of the host.
    later = f"_x{first + 1} {(first + 1) * 240}+240x{days - first}"
    inputs = [
        series("checked_timestamp_seconds", FIRST, f"0+240x{first} stale"),
        series("checked_timestamp_seconds", {**FIRST, **EVENTS["another target"]}, later),
    ]
    changed = inputs, 4, [("SmtPolicyNotJudged", 6 * DAY - 60, [])]
    # It is seen again between two full hours.
    values = f"0+240x{day} {day * 240}x{3 * day} _x{day + 2} {(5 * day + 2) * 240}+240x{day}"
    named = [{"severity": "warning", "host": "h1"}]
    moments = [(3 * DAY - 60, []), (3 * DAY + 60, named), (5 * DAY - 60, named), (5 * DAY + 45, [])]
    expected = [("SmtPolicyNotJudged", minute, labels) for minute, labels in moments]
    gone = [series("checked_timestamp_seconds", FIRST, values)], 4, expected
    judged(promtool, tmp_path, changed, gone, evaluated=RARELY)


def test_a_waiver_is_named_before_its_end_over_a_gap_and_another_class(promtool, tmp_path):
    status, other = {**FIRST, "status": "waived"}, {"hardware_class": "c2"}
    inputs = [
        series("status", status, "1x100 _x20 1x20 stale"),
        series("waiver_end_timestamp_seconds", FIRST, f"{WAIVED_UNTIL}x100 _x20 {WAIVED_UNTIL}x20 stale"),
        series("status", {**status, **other}, "_x143 1x300"),
        series("waiver_end_timestamp_seconds", {**FIRST, **other}, f"_x143 {WAIVED_UNTIL}x300"),
        # What differs is waived in a gap too.
        series("drifted", {**FIRST, "aspect": "running"}, "1x100 _x20 1x20 stale"),
        series("drifted", {**FIRST, **other, "aspect": "running"}, "_x143 1x300"),
    ]
    named = [{"severity": "info", "host": "h1"}]
    expected = [("SmtWaiverEnding", minute, named) for minute in (60, 115, 160, 300)]
    expected += [("SmtPolicyDrifted", minute, []) for minute in (115, 200, 350)]
    judged(promtool, tmp_path, (inputs, 1, expected))
