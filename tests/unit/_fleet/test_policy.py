# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a policy's variables ask of a host, and what evaluations decide where they say auto."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
import re

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._smt.scope import Scope
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import policy
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.deciding import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.policy import DesiredState
from result_maker import accepted

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
CLASS = "x86_64-1s2c4t-split-00000000"


def decided(decision, sentence="Because."):
    return {CLASS: {"decision": decision, "whose": "evaluation of a in run r, 3 days old", "sentence": sentence}}


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("enabled", DesiredState("enabled")),
        ("disabled", DesiredState("disabled")),
        # The words of smt_state, and what YAML makes of them.
        ("on", DesiredState("enabled")),
        ("off", DesiredState("disabled")),
        (True, DesiredState("enabled")),
        (False, DesiredState("disabled")),
        ({"threads_per_core": 2}, DesiredState(threads=2)),
        ({"threads_per_core": "2"}, DesiredState(threads=2)),
        ({"disabled_on": {"node": 0}}, DesiredState("disabled", cores=Scope("node", "0"))),
        ({"disabled_on": {"package": "1"}}, DesiredState("disabled", cores=Scope("package", "1"))),
        ({"disabled_on": {"cpus": "0-3,4"}}, DesiredState("disabled", cores=Scope("cpus", "0-4"))),
    ],
)
def test_a_value_becomes_a_desired_state(value, wanted):
    assert policy.desired_state(value, {}, CLASS, None) == wanted


@pytest.mark.parametrize(
    "value",
    [
        "yes",
        "",
        2,
        1,
        [],
        {},
        {"threads_per_core": 0},
        {"threads_per_core": 9},
        {"threads_per_core": True},
        {"threads_per_core": 1.5},
        {"threads_per_core": "x" * 10**6},
        {"threads_per_core": 2, "more": 1},
        {"enabled": True},
        {"disabled_on": {"node": 0}, "threads_per_core": 2},
    ],
)
def test_what_is_no_policy_is_refused(value):
    with pytest.raises(policy.PolicyError, match="must be"):
        policy.desired_state(value, None, CLASS, None)
    with pytest.raises(policy.PolicyError, match="must be"):
        policy.check(value, None)


@pytest.mark.parametrize(
    ("cores", "reason"),
    [
        (None, "disabled_on: {} does not name cores"),
        ({}, "disabled_on: {} does not name cores"),
        ("node", "disabled_on: 'node' does not name cores"),
        ({"node": 0, "package": 0}, "does not name cores"),
        ({"node": "x"}, "disabled_on: node is 'x': it must be a number"),
        ({"cpus": "0-"}, "disabled_on: cpus: '0-' is not a valid CPU list"),
        (
            {"unit": "db.service"},
            "disabled_on names unit db.service: a policy is compared with the facts of a host, which have no units",
        ),
    ],
)
def test_what_is_no_part_of_a_machine_is_refused(cores, reason):
    with pytest.raises(policy.PolicyError) as refused:
        policy.check({"disabled_on": cores}, None)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("value", "classes"),
    [("enabled", None), ("auto", {}), ({"threads_per_core": 2}, None), (None, {CLASS: "disabled"})],
)
def test_a_policy_that_some_host_can_have_passes_without_a_host(value, classes):
    policy.check(value, classes)


@pytest.mark.parametrize(
    ("value", "classes", "words"),
    [
        (None, None, "no policy is set"),
        (None, {}, "no policy is set"),
        ("enabled", ["x"], "a mapping"),
        ("enabled", {"of-no-host": "enabld"}, "smt_policy_classes has for 'of-no-host' the policy 'enabld'"),
        ("auto", {CLASS: {"disabled_on": {}}}, "does not name cores"),
    ],
)
def test_what_no_host_can_have_needs_no_host_to_be_refused(value, classes, words):
    with pytest.raises(policy.PolicyError, match=words):
        policy.check(value, classes)


@pytest.mark.parametrize("hardware_class", [CLASS, None])
def test_auto_has_nothing_to_decide_without_smt(hardware_class):
    assert policy.desired_state("auto", None, hardware_class, {}, without_smt=True).anything
    # A policy that no host could have is no other where there is no SMT.
    with pytest.raises(policy.PolicyError, match="no results are configured"):
        policy.desired_state("auto", None, hardware_class, None, without_smt=True)
    with pytest.raises(policy.UndecidedError, match="the results cannot be read: gone"):
        policy.desired_state("auto", None, hardware_class, None, "gone", without_smt=True)
    assert policy.desired_state("enabled", None, CLASS, None, without_smt=True) == DesiredState("enabled")


def test_what_evaluations_do_not_decide_is_no_fault_of_the_policy():
    for found in ({}, decided("by_workload")):
        with pytest.raises(policy.UndecidedError):
            policy.desired_state("auto", None, CLASS, found)
    with pytest.raises(policy.PolicyError) as refused:
        policy.desired_state("auto", None, CLASS, None)
    assert not isinstance(refused.value, policy.UndecidedError)


def test_a_class_goes_before_the_policy_of_all():
    assert policy.desired_state("enabled", {CLASS: "disabled"}, CLASS, None) == DesiredState("disabled")
    assert policy.desired_state("enabled", {"other": "disabled"}, CLASS, None) == DesiredState("enabled")
    assert policy.desired_state("enabled", {CLASS: "disabled"}, None, None) == DesiredState("enabled")
    with pytest.raises(policy.PolicyError, match="mapping"):
        policy.desired_state("enabled", ["x"], CLASS, None)


def test_no_policy_names_the_class_to_set_one_for():
    with pytest.raises(policy.PolicyError, match=CLASS):
        policy.desired_state(None, {"other": "disabled"}, CLASS, None)


@pytest.mark.parametrize(("decision", "state"), [("enabled", "enabled"), ("disabled", "disabled"), ("any", None)])
def test_auto_takes_the_decision_and_says_whose_it_is(decision, state):
    desired = policy.desired_state("auto", None, CLASS, decided(decision))
    assert (desired.state, desired.threads, desired.anything) == (state, None, state is None)
    assert desired.decided_by == "evaluation of a in run r, 3 days old: Because."


@pytest.mark.parametrize(
    ("known", "found", "words"),
    [
        (None, decided("enabled"), "hardware class of this host is not known"),
        (CLASS, None, "smt_policy_results"),
        (CLASS, {}, "no evaluation of hardware class"),
        (CLASS, decided(None), "do not decide"),
    ],
)
def test_auto_refuses_without_a_decision(known, found, words):
    with pytest.raises(policy.PolicyError, match=words):
        policy.desired_state("auto", None, known, found)


def test_a_scope_is_one_of_three():
    assert policy.scope("both") == "both"
    with pytest.raises(policy.PolicyError, match="runtime, boot or both"):
        policy.scope("all")


# ---- what evaluations decide -----------------------------------------------------------------------------------------


def says(choice, host="a", run="r", days=3, hardware_class=CLASS):
    return decisions.Conclusion(
        host, run, hardware_class, choice, f"{host} {choice}.", {}, NOW - datetime.timedelta(days=days)
    )


@pytest.mark.parametrize(
    ("said", "decision"),
    [
        (["on"], "enabled"),
        (["off"], "disabled"),
        (["either"], "any"),
        (["on", "either"], None),
        (["on", "on", "either"], "enabled"),
        (["off", "either", "either", "either"], None),
        (["off", "off", "either", "either"], "disabled"),
        (["off", "off"], "disabled"),
        (["on", "off"], None),
        (["on", "undecided"], None),
        (["undecided"], None),
        (["by_workload"], None),
        (["on", "by_workload"], None),
        (["not_compared"], None),
        (["on", "not_compared"], "enabled"),
    ],
)
def test_hosts_of_a_run_decide_together(said, decision):
    found = decisions.decisions([says(one, host=str(number)) for number, one in enumerate(said)], NOW)
    assert found[CLASS]["decision"] == decision


def measured(number, **options):
    """Return the conclusion of a noisy host that is about 3 % slower with SMT off."""
    workloads = {"gzip": {**result_maker.GZIP, "share": 0.515}}
    result = result_maker.result(
        host=f"web{number}", blocks=6, seed=number, noise=0.03, shape=(1, 2, 2), workloads=workloads, **options
    )
    return dataclasses.replace(decisions.conclude(accepted(result), NOW), hardware_class=CLASS)


def test_what_hosts_leave_open_by_themselves_is_decided_by_all_of_them_combined():
    hosts = [measured(number) for number in range(7)]
    assert {"undecided", "on"} == {one.choice for one in hosts} and hosts[0].choice == "undecided"
    found = decisions.decisions(hosts, NOW)[CLASS]
    assert found["decision"] == "enabled", found
    assert re.fullmatch(
        r"Its 7 hosts combined, of which web0.* undecided alone: gzip of a fixed stream −[0-9]\.[0-9] % with SMT off"
        r" \(worse\)\.",
        found["sentence"],
    )
    for said in (hosts[:2], [*hosts, says("off", "liar")], [*hosts, says("by_workload", "other")]):
        found = decisions.decisions(said, NOW)[CLASS]
        assert found["decision"] is None and found["sentence"].startswith("Its hosts do not agree: ")


def test_a_host_counts_once_by_its_latest_run_that_compared_anything():
    older, newer, blind = says("on", "b", "r1", 9), says("off", "b", "r2", 5), says("not_compared", "b", "r3", 1)
    found = decisions.decisions([newer, blind, older], NOW)[CLASS]
    assert (found["decision"], found["hosts"], found["runs"], found["age_days"]) == ("disabled", ["b"], ["r2"], 5)
    assert found["whose"] == "evaluation of b in run r2, 5 days old, which alone decides for all hosts of this class"


def test_one_host_cannot_overrule_others():
    honest = [says("on", host, "r1", 9) for host in ("a", "b", "c", "d")]
    found = decisions.decisions([*honest, says("off", "liar", "r2", 0)], NOW)[CLASS]
    assert found["decision"] is None and found["sentence"].startswith("Its hosts do not agree: liar says off, ")
    together = decisions.decisions(honest, NOW)[CLASS]
    assert (
        together["decision"] == "enabled"
        and together["whose"] == "evaluation of 4 hosts (a, b, c and 1 more) in run r1, 9 days old"
    )


def app(host, ratio, better="higher", seed=1, **declared):
    """Return the conclusion of a host about a user's own workload,
    with an effect of SMT off that six blocks do not decide alone.
    """
    about = {"unit": "1/s", "better": better, "aggregate": "sum", **declared}
    workload = {**result_maker.GZIP, "share": 1 / (2 * ratio), "metrics": {"rate": about}, "title": f"app of {host}"}
    result = result_maker.result(
        host=host, run=f"run_{host}", blocks=6, seed=seed, noise=0.05, shape=(1, 2, 2), workloads={"app": workload}
    )
    result["facts"].update(hardware_class=CLASS, numbering="split")
    return decisions.conclude(accepted(results.accept(result, host)), NOW)


@pytest.mark.parametrize("place", [0, 3, 6])
def test_one_host_does_not_turn_the_direction_of_a_workload_for_all(place):
    honest = [app(f"web{number}", 0.943, seed=number) for number in range(6)]
    assert "undecided" in {one.choice for one in honest}
    assert decisions.decisions(honest, NOW)[CLASS]["decision"] == "enabled"
    liar = app("liar", 0.94, "lower", seed=7, aggregate="max")
    found = decisions.decisions([*honest[:place], liar, *honest[place:]], NOW)[CLASS]
    assert found["decision"] is None
    assert re.fullmatch(
        r"Its hosts declare app of web[0-9] differently: rate in 1/s, higher is better, sum of its workers on web[0-9],"
        r" web[0-9], web[0-9] and 3 more; "
        r"rate in 1/s, lower is better, max of its workers on liar\.",
        found["sentence"],
    ), found["sentence"]


@pytest.mark.parametrize("declared", [{"unit": "1/min"}, {"aggregate": "mean"}])
def test_hosts_that_mean_something_else_by_a_workload_do_not_decide_together(declared):
    found = decisions.decisions([app("a", 0.9), app("b", 0.9), app("c", 0.9, **declared)], NOW)[CLASS]
    assert (
        found["decision"] is None
        and "on c." in found["sentence"]
        and found["sentence"].startswith("Its hosts declare app of ")
    )


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_decision_of_hosts_combined_holds_without_any_one_of_them(place):
    """Two hosts that are undecided, and lean to one side: a third one that claims to know cannot decide for them."""
    hosts = [app(f"web{seed}", 0.943, seed=seed) for seed in (4, 12)]
    assert {one.choice for one in hosts} == {"undecided"}
    known = [next(iter(one.workloads.values())) for one in hosts]
    middle = math.sqrt(known[0]["ratio"] * known[1]["ratio"])
    exact = {**known[0], "ratio": middle, "ci_low": middle * 0.9999, "ci_high": middle * 1.0001, "verdict": "loss"}
    exact["candidate_value"] = exact["baseline_value"] * middle
    hosts.insert(place, decisions.Conclusion("liar", "r", CLASS, "on", "On.", {("app", None): exact}, NOW))
    found = decisions.decisions(hosts, NOW)[CLASS]
    assert found["decision"] is None
    assert found["sentence"].endswith(
        "liar alone turns this: without it the other 2 say not decided; it takes about 2 more hosts."
    ), found["sentence"]


def test_one_host_alone_does_not_decide_where_all_others_say_either():
    found = decisions.decisions([*(says("either", f"web{number}") for number in range(6)), says("off", "liar")], NOW)[
        CLASS
    ]
    assert (found["decision"], found["sentence"]) == (
        None,
        "liar alone says off, the other 6 say either: one host does not decide for the others.",
    )


@pytest.mark.parametrize(("others", "decision"), [("either", "any"), ("undecided", None)])
def test_without_a_host_that_turns_what_is_combined_the_others_may_say_it_by_themselves(monkeypatch, others, decision):
    monkeypatch.setattr(
        decisions, "_together", lambda _counted: (conclusion.EITHER, "figures", {"open": "open alone turns this."})
    )
    hosts = [says("undecided", "open"), *(says(others, f"web{number}") for number in range(3))]
    assert decisions.decisions(hosts, NOW)[CLASS]["decision"] == decision


def test_a_workload_that_one_host_has_alone_does_not_hinder_what_all_share():
    honest = [measured(number) for number in range(7)]
    own = dataclasses.replace(
        honest[0], workloads={**honest[0].workloads, ("own", None): next(iter(honest[1].workloads.values()))}
    )
    assert decisions.decisions([own, *honest[1:]], NOW)[CLASS]["decision"] == "enabled"


def test_a_host_decides_for_one_class_alone_however_many_its_results_state():
    runs = [says("off", "liar", f"r{number}", days=number, hardware_class=f"class{number}") for number in range(1, 5)]
    found = decisions.decisions(runs, NOW)
    assert {name: one["decision"] for name, one in found.items()} == {
        "class1": "disabled",
        "class2": None,
        "class3": None,
        "class4": None,
    }
    assert (
        found["class2"]["whose"]
        == "no evaluation (liar does not count by run r2: its latest run, r1, shows hardware class class1)"
    )
    assert found["class2"]["hosts"] == [] and found["class2"]["age_days"] is None


def test_a_host_decides_for_the_class_that_its_facts_show_now():
    honest = [says("on", "a"), says("on", "b")]
    stated = [*honest, says("off", "liar", days=1), says("off", "liar", "older", 5, "own")]
    found = decisions.decisions(stated, NOW, {"liar": "own", "a": CLASS})
    assert (found[CLASS]["decision"], found[CLASS]["hosts"]) == ("enabled", ["a", "b"])
    assert found[CLASS]["whose"].endswith("(liar does not count by run r: its facts show hardware class own)")
    assert (found["own"]["decision"], found["own"]["runs"]) == ("disabled", ["older"])
    assert decisions.decisions(stated, NOW, {"liar": None})[CLASS]["not_counted"] == {
        "liar": "liar does not count by run r: its facts show hardware class unknown"
    }
    assert decisions.classes_of(stated) == {"a": CLASS, "b": CLASS, "liar": CLASS}


def test_a_result_in_the_file_of_another_host_decides_nothing(tmp_path):
    result = result_maker.result(host="web01")
    for name in ("web01", "web02"):
        (tmp_path / f"{name}.json").write_text(json.dumps(result))
    assert decisions.read(tmp_path / "web01.json", NOW).host == "web01"
    with pytest.raises(
        decisions.DecisionError, match=r"web02\.json: holds a result of web01, whose file is web01\.json"
    ):
        decisions.read(tmp_path / "web02.json", NOW)


@pytest.mark.parametrize("name", ["started", "finished", "collected"])
def test_what_has_not_come_yet_decides_nothing(name):
    with pytest.raises(decisions.DecisionError, match=f"web01: {name} is 9999-01-01T00:00:00Z, which is in the future"):
        decisions.conclude(accepted(dict(result_maker.result(), **{name: "9999-01-01T00:00:00Z"})), NOW)


def test_when_a_run_was_taken_is_what_the_controller_noted():
    at = decisions.conclude(
        accepted(dict(result_maker.result(), finished="2026-01-02T00:00:00Z", collected="2026-01-01T00:00:00Z")), NOW
    ).at
    assert at == datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_each_class_speaks_for_itself():
    found = decisions.decisions([says("on"), says("off", "b", hardware_class="other")], NOW)
    assert {name: one["decision"] for name, one in found.items()} == {CLASS: "enabled", "other": "disabled"}


def test_a_result_is_read_as_its_report_reads_it():
    result = result_maker.result(host="web01")
    one = decisions.conclude(accepted(result), NOW)
    assert (one.host, one.hardware_class, one.run) == ("web01", result["facts"]["hardware_class"], result["run"])
    assert one.choice in (
        conclusion.ON,
        conclusion.OFF,
        conclusion.EITHER,
        conclusion.BY_WORKLOAD,
        conclusion.UNDECIDED,
    )
    assert decisions.conclude(accepted(result_maker.policy_result()), NOW) is None
    assert (
        decisions.conclude(accepted(result_maker.result(arms={"smt_on": 1.0, "isolated": 1.2}, blocks=5)), NOW) is None
    )
    many = result_maker.result(arms={"smt_on": 1.0, "smt_off": 1.0, "isolated": 1.2}, blocks=8)
    assert decisions.conclude(accepted(many), NOW).choice == conclusion.ON
    result["facts"]["hardware_class"] = None
    assert decisions.conclude(accepted(result), NOW) is None


def test_results_are_found_in_a_run_and_in_a_directory_of_runs(tmp_path):
    run = tmp_path / "runs" / "r1"
    run.mkdir(parents=True)
    for name in ("a.json", "results.json", "index.html"):
        (run / name).write_text("{}")
    assert [path.name for path in decisions.result_files_below(run)] == ["a.json"]
    assert [path.name for path in decisions.result_files_below(tmp_path / "runs")] == ["a.json"]
