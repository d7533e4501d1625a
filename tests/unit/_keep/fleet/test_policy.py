# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a policy's variables ask of a host, and what evaluations decide where they say auto."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math

import pytest
import result_maker
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.scope import Scope
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import policy
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet.policy import DesiredState
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from result_maker import accepted

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
CLASS = "x86_64-1s2c4t-split-00000000"
EVALUATION = "evaluation of a in run r, 3 days old"


def decided(decision):
    return {CLASS: {"decision": decision, "whose": EVALUATION, "sentence": "Because."}}


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        # The words of smt_state, and what YAML makes of them.
        *((word, DesiredState("enabled")) for word in ("enabled", "on", True)),
        *((word, DesiredState("disabled")) for word in ("disabled", "off", False)),
        ({"threads_per_core": 2}, DesiredState(threads=2)),
        ({"threads_per_core": "2"}, DesiredState(threads=2)),
        ({"disabled_on": {"node": 0}}, DesiredState("disabled", cores=Scope("node", "0"))),
        ({"disabled_on": {"package": "1"}}, DesiredState("disabled", cores=Scope("package", "1"))),
        ({"disabled_on": {"cpus": "0-3,4"}}, DesiredState("disabled", cores=Scope("cpus", "0-4"))),
    ],
)
def test_a_value_becomes_a_desired_state(value, wanted):
    assert policy.desired_state(value, {}, CLASS, None) == wanted
    policy.check(value, None)


@pytest.mark.parametrize(
    "value",
    [
        *("yes", "", 2, 1, [], {}, {"threads_per_core": 2, "more": 1}, {"enabled": True}),
        *({"threads_per_core": count} for count in (0, 9, True, 1.5, "x" * 10**4)),
        {"disabled_on": {"node": 0}, "threads_per_core": 2},
        *(
            {"disabled_on": part}
            for part in (None, {}, "node", {"node": 0, "package": 0}, {"node": "x"}, {"cpus": "0-"})
        ),
        # A policy is compared with facts, which have no units.
        {"disabled_on": {"unit": "db.service"}},
    ],
)
def test_what_is_no_policy_is_refused_also_without_a_host(value):
    for check in (policy.check, lambda *given: policy.desired_state(*given, CLASS, None)):
        with pytest.raises(policy.PolicyError):
            check(value, None)
        with pytest.raises(policy.PolicyError, match=r"smt_policy_classes|disabled_on|threads"):
            check("enabled", {"of-no-host": value})


def test_a_policy_that_some_host_can_have_passes_without_a_host():
    policy.check("auto", {})
    policy.check(None, {CLASS: "disabled"})
    for value, classes in ((None, None), (None, {}), ("on", ["x"])):
        with pytest.raises(policy.PolicyError):
            policy.check(value, classes)


def test_a_class_goes_before_the_policy_of_all():
    for classes, own, state in (
        ({CLASS: "disabled"}, CLASS, "disabled"),
        ({"other": "disabled"}, CLASS, "enabled"),
        ({CLASS: "disabled"}, None, "enabled"),
    ):
        assert policy.desired_state("enabled", classes, own, None) == DesiredState(state)


@pytest.mark.parametrize(("decision", "state"), [("enabled", "enabled"), ("disabled", "disabled"), ("any", None)])
def test_auto_takes_the_decision_and_says_whose_it_is(decision, state):
    desired = policy.desired_state("auto", None, CLASS, decided(decision))
    assert desired == DesiredState(state, decided_by=f"{EVALUATION}: Because.")


# What is asked of desired_state, whether that is a policy that the evaluations leave undecided, and the sentence.
AUTO = "smt_policy is auto, and"
REFUSED = [
    (
        (None, {"other": "on"}, CLASS, None),
        False,
        f"no policy is set: give smt_policy, or its hardware class {CLASS} in",
    ),
    (("auto", None, CLASS, None), False, f"{AUTO} no results are configured: set smt_policy_results to a directory of"),
    # A policy that no host could have is no other where there is no SMT.
    (("auto", None, CLASS, None, None, True), False, f"{AUTO} no results are configured"),
    (("auto", None, None, {}, "gone", True), True, f"{AUTO} the results cannot be read: gone"),
    (
        ("auto", None, None, decided("on")),
        True,
        f"{AUTO} the hardware class of this host is not known, so no evaluation",
    ),
    (("auto", None, CLASS, {}), True, f"{AUTO} the results have no evaluation of hardware class {CLASS}: evaluate a"),
    (("auto", None, CLASS, decided(None)), True, f"{AUTO} the evaluations do not decide: {EVALUATION}: Because."),
    (("auto", None, CLASS, decided("by_workload")), True, f"{AUTO} the evaluations do not decide"),
]


@pytest.mark.parametrize(("asked", "is_undecided", "sentence"), REFUSED)
def test_what_does_not_decide_is_no_fault_of_the_policy(asked, is_undecided, sentence):
    with pytest.raises(policy.PolicyError) as refused:
        policy.desired_state(*asked)
    assert isinstance(refused.value, policy.UndecidedError) == is_undecided
    assert str(refused.value).startswith(sentence)


@pytest.mark.parametrize("hardware_class", [CLASS, None])
def test_auto_has_nothing_to_decide_without_smt(hardware_class):
    assert policy.desired_state("auto", None, hardware_class, {}, without_smt=True).anything
    assert policy.desired_state("enabled", None, CLASS, None, without_smt=True) == DesiredState("enabled")


def test_a_scope_is_one_of_three():
    assert policy.scope("both") == "both"
    with pytest.raises(policy.PolicyError, match="runtime, boot or both"):
        policy.scope("all")


# ---- what evaluations decide -----------------------------------------------------------------------------------------


def says(choice, host="a", run="r", days=3, hardware_class=CLASS):
    at = NOW - datetime.timedelta(days=days)
    return decisions.Conclusion(host, run, hardware_class, choice, f"{host} {choice}.", {}, at)


def of_class(found, classes=None):
    return decisions.decisions(found, NOW, classes)[CLASS]


# One host cannot overrule others.
TOGETHER = yaml.safe_load("""
{"on": enabled, "off": disabled, either: any, on either: null, on on either: enabled, off either either either: null,
off off either either: disabled, on off: null, on undecided: null, by_workload: null, on by_workload: null,
not_compared: null, on not_compared: enabled, on on on on off: null}
""")


@pytest.mark.parametrize(("said", "decision"), TOGETHER.items())
def test_hosts_of_a_run_decide_together(said, decision):
    hosts = [says(one, str(number)) for number, one in enumerate(said.split())]
    assert of_class(hosts)["decision"] == decision


@pytest.mark.parametrize(
    ("found", "sentence", "whose"),
    [
        (
            [says("on", host, "r1", 9) for host in "abcd"],
            "d on.",
            "evaluation of 4 hosts (a, b, c and 1 more) in run r1, 9 days old",
        ),
        (
            [says("on"), says("off", "b")],
            "Its hosts do not agree: a says on, b says off.",
            "evaluation of 2 hosts (a, b) in run r, 3 days old",
        ),
        (
            [*(says("either", host) for host in "abc"), says("off", "liar", days=0)],
            "liar alone says off, the other 3 say either: one host does not decide for the others.",
            None,
        ),
        (
            [says("on", days=0)],
            "a on.",
            "evaluation of a in run r, less than a day old, which alone decides for all hosts",
        ),
    ],
)
def test_what_is_said_of_a_decision(found, sentence, whose):
    one = of_class(found)
    assert one["sentence"].endswith(sentence[1:]) and one["whose"].startswith(whose or "evaluation")


def measured(number, share=0.515, noise=0.03, **options):
    """Return the conclusion of a noisy host that is about 3 % slower with SMT off."""
    workloads = {"gzip": {**result_maker.GZIP, "share": share}}
    given = {"host": f"web{number}", "blocks": 6, "seed": number, "noise": noise, "shape": (1, 2, 2), **options}
    conclusion = decisions.conclude(accepted(result_maker.result(workloads=workloads, **given)), NOW)
    return dataclasses.replace(conclusion, hardware_class=CLASS)


def test_what_hosts_leave_open_by_themselves_is_decided_by_all_of_them_combined():
    hosts = [measured(number) for number in range(7)]
    assert {"undecided", "on"} == {one.choice for one in hosts} and hosts[0].choice == "undecided"
    found = of_class(hosts)
    assert found["decision"] == "enabled", found
    assert found["sentence"].startswith("Its 7 hosts combined, of which web0")
    # A workload that one host has alone does not hinder what all share.
    (shared,) = hosts[1].workloads.values()
    own = dataclasses.replace(hosts[0], workloads={**hosts[0].workloads, ("own", None): shared})
    assert of_class([own, *hosts[1:]])["decision"] == "enabled"
    for said in (hosts[:2], [*hosts, says("off", "liar")], [*hosts, says("by_workload", "other")]):
        assert of_class(said)["decision"] is None


def app(host, ratio, better="higher", seed=1, **declared):
    """Return the conclusion of a host about a user's own workload, with an effect of SMT off that six blocks do not
    decide alone.
    """
    about = {"unit": "1/s", "better": better, "aggregate": "sum", **declared}
    workload = {**result_maker.GZIP, "share": 1 / (2 * ratio), "metrics": {"rate": about}, "title": f"app of {host}"}
    options = {"host": host, "run": f"run_{host}", "blocks": 6, "seed": seed, "noise": 0.05, "shape": (1, 2, 2)}
    result = result_maker.result(workloads={"app": workload}, **options)
    result["facts"].update(hardware_class=CLASS, numbering="split")
    return decisions.conclude(accepted(results.accept(result, host)), NOW)


@pytest.mark.parametrize("place", [0, 6])
def test_one_host_does_not_turn_the_direction_of_a_workload_for_all(place):
    honest = [app(f"web{number}", 0.943, seed=number) for number in range(6)]
    assert "undecided" in {one.choice for one in honest} and of_class(honest)["decision"] == "enabled"
    liar = app("liar", 0.94, "lower", seed=7, aggregate="max")
    found = of_class([*honest[:place], liar, *honest[place:]])
    assert found["decision"] is None and found["sentence"].startswith("Its hosts declare app of web")
    assert found["sentence"].endswith("rate in 1/s, lower is better, max of its workers on liar.")


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
    found = of_class(hosts)
    assert found["decision"] is None and "liar alone turns this: without it the other 2" in found["sentence"], found


def test_a_host_counts_once_by_its_latest_run_that_compared_anything():
    older, newer, blind = says("on", "b", "r1", 9), says("off", "b", "r2", 5), says("not_compared", "b", "r3", 1)
    found = of_class([newer, blind, older])
    assert [found[name] for name in ("decision", "hosts", "runs", "age_days")] == ["disabled", ["b"], ["r2"], 5]
    # The age is that of the oldest.
    assert of_class([newer, says("off", "c", days=2)])["age_days"] == 5


def test_a_host_decides_for_one_class_alone_however_many_its_results_state():
    runs = [says("off", "liar", f"r{number}", days=number, hardware_class=f"class{number}") for number in range(1, 5)]
    found = decisions.decisions(runs, NOW)
    assert {name: one["decision"] for name, one in found.items() if one["decision"]} == {"class1": "disabled"}
    assert found["class2"]["hosts"] == [] and found["class2"]["age_days"] is None


def test_a_host_decides_for_the_class_that_its_facts_show_now():
    honest = [says("on", "a"), says("on", "b")]
    stated = [*honest, says("off", "liar", days=1), says("off", "liar", "older", 5, "own")]
    found = decisions.decisions(stated, NOW, {"liar": "own", "a": CLASS})
    assert (found[CLASS]["decision"], found[CLASS]["hosts"]) == ("enabled", ["a", "b"])
    assert found[CLASS]["whose"].endswith("(liar does not count by run r: its facts show hardware class own)")
    assert (found["own"]["decision"], found["own"]["runs"]) == ("disabled", ["older"])
    assert [*of_class(stated, {"liar": None})["not_counted"]] == ["liar"]
    assert decisions.classes_of(stated) == {"a": CLASS, "b": CLASS, "liar": CLASS}


def test_a_result_in_the_file_of_another_host_decides_nothing(tmp_path):
    for name in ("web01", "web02"):
        (tmp_path / f"{name}.json").write_text(json.dumps(result_maker.result(host="web01")))
    assert decisions.read(tmp_path / "web01.json", NOW).host == "web01"
    found, refused = decisions.read_all([tmp_path / "web02.json", tmp_path / "web01.json"], NOW)
    assert [one.host for one in found] == ["web01"]
    assert [one["file"] for one in refused] == [str(tmp_path / "web02.json")] and "web01.json" in refused[0]["reason"]


@pytest.mark.parametrize("name", ["started", "finished", "collected"])
def test_what_has_not_come_yet_decides_nothing(name):
    with pytest.raises(decisions.DecisionError, match=f"web01: {name} is 9999-01-01T00:00:00Z"):
        decisions.conclude(accepted({**result_maker.result(), name: "9999-01-01T00:00:00Z"}), NOW)


def test_a_result_is_read_as_its_report_reads_it():
    result = result_maker.result(host="web01")
    # When a run was taken is what the controller noted.
    result.update(finished="2026-01-02T00:00:00Z", collected="2026-01-01T00:00:00Z")
    one = decisions.conclude(accepted(result), NOW)
    assert (one.host, one.hardware_class, one.run) == ("web01", result["facts"]["hardware_class"], result["run"])
    assert one.choice == conclusion.ON and one.at == datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    many = result_maker.result(arms={"smt_on": 1.0, "smt_off": 1.0, "isolated": 1.2}, blocks=8)
    assert decisions.conclude(accepted(many), NOW).choice == conclusion.ON
    result["facts"]["hardware_class"] = None
    without = result_maker.result(arms={"smt_on": 1.0, "isolated": 1.2}, blocks=5)
    for nothing in (result, result_maker.policy_result(), without):
        assert decisions.conclude(accepted(nothing), NOW) is None


def test_results_are_found_in_a_run_and_in_a_directory_of_runs(tmp_path):
    run = tmp_path / "runs" / "r1"
    run.mkdir(parents=True)
    for name in ("a.json", "results.json", "index.html"):
        (run / name).write_text("{}")
    for folder in (run, tmp_path / "runs"):
        assert [path.name for path in decisions.result_files_below(folder)] == ["a.json"]
