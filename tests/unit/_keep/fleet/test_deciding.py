# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What evaluations decide for a hardware class, what that rests on, when it is stale, and re-checks of it."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import math
import random
import re

import compliance_maker
import facts_maker
import pytest
import result_maker
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import goals
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import (
    basis,
    decisions,
    rechecks,
    sample,
    yields,
)
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.conclusion import conclusion
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.pooled import series
from result_maker import accepted

FORMATS = registry.formats()
CLASS = "x86_64-1s2c4t-split-00000000"
NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
INTEL, INTEL_OFF, AMD, AMD_OFF = yaml.safe_load("""
- &intel {itlb_multihit: "KVM: Mitigation: VMX disabled", retbleed: Not affected, meltdown: "Mitigation: PTI",
    l1tf: "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable",
    mds: "Mitigation: Clear CPU buffers; SMT vulnerable", srbds: "Vulnerable: No microcode",
    spectre_v2: "Mitigation: Retpolines; IBPB: conditional; STIBP: conditional; RSB filling; BHI: Not affected"}
- {<<: *intel, l1tf: "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT disabled",
    mds: "Mitigation: Clear CPU buffers; SMT disabled",
    spectre_v2: "Mitigation: Retpolines; IBPB: conditional; RSB filling; BHI: Not affected"}
- {retbleed: "Mitigation: untrained return thunk; SMT enabled with STIBP protection",
    spec_rstack_overflow: "Mitigation: Safe RET",
    spectre_v2: "Mitigation: Retpolines; IBPB: conditional; STIBP: always-on; RSB filling"}
- {retbleed: "Mitigation: untrained return thunk; SMT disabled", spec_rstack_overflow: "Mitigation: SMT disabled",
    spectre_v2: "Mitigation: Retpolines; IBPB: conditional; STIBP: disabled; RSB filling"}
""")


def facts(statuses, kernel="6.1.0-28-amd64", **more):
    vulnerabilities = {name: {"status": text} for name, text in statuses.items()}
    return facts_maker.made(kernel=kernel, vulnerabilities=vulnerabilities, **more)


def rests_on(*statuses, kernels=("6.1.0-28-amd64",)):
    bases = [basis.Basis(kernel=one, mitigations=basis.mitigations(facts(two))) for one in kernels for two in statuses]
    return basis.together(bases, [NOW])


def stale(measured, now):
    return basis.stale(measured, 3, now, 365)


def test_what_the_state_of_smt_changes_makes_no_decision_stale():
    for was, now in ((INTEL, INTEL_OFF), (INTEL_OFF, INTEL), (AMD, AMD_OFF), (AMD_OFF, AMD), ({}, AMD), (AMD, {})):
        assert stale(rests_on(was), facts(now)) == [], (was, now)
        # One host of several that rest on other things is enough.
        assert not was or stale(rests_on({"mds": "Mitigation: other"}, was), facts(now)) == [], (was, now)


BHI = INTEL["spectre_v2"].replace("BHI: Not affected", "BHI: Retpoline")


def test_other_mitigations_make_it_stale():
    for name, status, words in (
        ("mds", "Mitigation: Clear CPU buffers; SMT Host state unknown", ""),
        ("meltdown", "Vulnerable", "no more meltdown: Mitigation: PTI"),
        ("srbds", "Mitigation: Microcode", "has srbds: Mitigation: Microcode"),
        ("gather_data_sampling", "Vulnerable: No microcode", ""),
        ("indirect_target_selection", "Mitigation: Aligned branch/return thunks", "has indirect_target_sel"),
        ("spectre_v2", BHI, "spectre_v2: BHI: Retpol"),
        ("x", "Mitigation: <b>\n\u202e" + "y" * 3900, "<b>"),
    ):
        found = "".join(stale(rests_on(INTEL), facts({**INTEL, name: status})))
        assert bool(found) == bool(words) and words in found, (name, found)
        assert not found or (found.isprintable() and len(found) < 900)


# The name of a vulnerability, and statuses that say the same: in the words of other kernels, with the module of KVM
# loaded and a guest started, and from a newer kernel that lists more that it does not mitigate.
SAME = """
spectre_v2 | Mitigation: Enhanced IBRS; IBPB: always-on | Mitigation: Enhanced / Automatic IBRS; IBPB: always-on
spectre_v2 | Mitigation: Full generic retpoline, IBPB: conditional | Mitigation: Retpolines; IBPB: conditional
spectre_v2 | Mitigation: Full AMD retpoline | Mitigation: LFENCE | Vulnerable: LFENCE
spec_rstack_overflow | Mitigation: safe RET | Mitigation: Safe RET
spec_rstack_overflow | Mitigation: microcode | Vulnerable: Microcode, no safe RET
itlb_multihit | KVM: Mitigation: VMX disabled | KVM: Mitigation: Split huge pages | Processor vulnerable
l1tf | Mitigation: PTE Inversion | Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable
l1tf | Mitigation: PTE Inversion; VMX: vulnerable | Mitigation: PTE Inversion; VMX: EPT disabled
spectre_v2 | Vulnerable, IBPB: disabled, STIBP: disabled | Vulnerable; IBPB: disabled; STIBP: disabled; BHI: Vulnerable
spectre_v2 | Mitigation: Enhanced IBRS | Mitigation: Enhanced IBRS; BHI: Vulnerable, KVM: SW loop
mds | Vulnerable; SMT vulnerable | Vulnerable: Clear CPU buffers attempted, no microcode; SMT vulnerable | Not affected
spec_rstack_overflow | Vulnerable | Vulnerable: No microcode | Vulnerable: Safe RET, no microcode
spectre_v1 | Vulnerable | Vulnerable: __user pointer sanitization and usercopy barriers only; no swapgs barriers
meltdown | Unknown (XEN PV detected, hypervisor mitigation required) | Vulnerable
mmio_stale_data | Unknown: No mitigations | Not affected"""


@pytest.mark.parametrize(("name", "texts"), [row.split(" | ", 1) for row in SAME.strip().splitlines()])
def test_the_same_state_in_other_words_makes_no_decision_stale(name, texts):
    for before, now in itertools.permutations(texts.split(" | "), 2):
        assert stale(rests_on({name: before}), facts({name: now})) == [], (before, now)


RETPOLINES = "Mitigation: Retpolines; IBPB: conditional; STIBP: {}; RSB filling"
RETBLEED = "Mitigation: untrained return thunk; SMT {}"


def test_what_protects_siblings_is_compared_where_it_does_not_follow_from_smt():
    for name, status, texts, is_stale in (
        ("spectre_v2", RETPOLINES, ("conditional", "forced"), True),
        ("retbleed", RETBLEED, ("enabled with STIBP protection", "vulnerable"), True),
        ("retbleed", RETBLEED, ("enabled with STIBP protection", "disabled"), False),
    ):
        for was, now in (texts, texts[::-1]):
            found = "".join(stale(rests_on({name: status.format(was)}), facts({name: status.format(now)})))
            assert bool(found) == is_stale and (not found or (was in found and now in found)), (found, was, now)
    # A part that one side does not show is not compared.
    measured, none = rests_on({"spectre_v2": RETPOLINES.format("conditional")}), RETPOLINES.replace(" STIBP: {};", "")
    disabled = {"spectre_v2": RETPOLINES.format("disabled")}
    off = facts(disabled, active=False)
    assert stale(measured, facts({"spectre_v2": none})) == stale(measured, off) == []
    assert stale(measured, facts(disabled, active=True)) != []


KERNELS = yaml.safe_load("""
[[[6.1.0-28-amd64], 6.1.0-40-amd64, null], [[6.1.0-28-amd64], 6.10.1, "6.1"], [[6.12.9, 6.2.1], 6.1.0, 6.2 and 6.12],
[[6.1.0-28-amd64, 6.12.9], 6.12.1, null], [[5.14.0-427.el9.x86_64], 5.14.0-503.el9.x86_64, null], [[], 6.1.0, null],
[[6.1.0-28-amd64], null, null], [[odd], 6.1.0, null], [[6.1.0], "\\e]0;6.12", null]]
""")


def test_another_series_of_the_kernel_and_age_make_it_stale():
    for kernels, now, measured in KERNELS:
        sentence = f"it was measured on Linux {measured}, and the host runs {basis.series(now)}"
        found = stale(rests_on(INTEL, kernels=kernels), facts(INTEL, now))
        assert found == [sentence] * bool(measured), (kernels, now)
    ages = {365: [], 366: ["it is 366 days old, more than smt_policy_max_age (365)"], None: ["its age is not known"]}
    assert {age: basis.stale(rests_on(INTEL), age, facts({}), 365) for age in ages} == ages


def test_a_decision_carries_what_its_results_rest_on():
    documents = [result_maker.result(host=host, noise=0.0005, blocks=6) for host in ("a", "b")]
    documents[1]["environment"].update(kernel="6.12.9", microcode=None, governor=None, boost=True)
    documents[1]["collected"] = "2026-02-27T23:30:00Z"
    later = NOW + datetime.timedelta(days=999)
    (decision,) = decisions.decisions([decisions.conclude(accepted(one), later) for one in documents], later).values()
    first_day, last_day = decision["rests_on"].pop("first_day"), decision["rests_on"].pop("last_day")
    assert first_day <= last_day == max(documents[0]["finished"][:10], "2026-02-27")
    mitigations = ["mds: Mitigation: Clear CPU buffers", "meltdown: Mitigation: PTI"]
    of_host = {"microcode": ["0x1"], "mitigations": [mitigations], "governors": ["performance"], "boost": [True]}
    versions = {"kernels": ["6.1.0-38-cloud-amd64", "6.12.9"]}
    versions["collection_versions"] = [documents[0]["collection_version"]]
    assert decision["rests_on"] == {**versions, **of_host}
    # As earlier releases wrote it.
    documents[0].update(environment={}, facts={**documents[0]["facts"], "vulnerabilities": {}})
    found = basis.Basis.from_result(accepted(documents[0]))
    assert found == basis.Basis(collection_version=documents[0]["collection_version"])
    assert basis.stale(basis.together([found], [None]), 3, facts(INTEL), 365) == []


def test_what_is_to_be_measured_again():
    # An evaluation of one host of a class whose others are too old leaves the decision as old as they are.
    for hosts, age, reasons, again_on in (
        ("abcd", 423, ["age"], "abcd"),
        ("abcd", 423, ["age", "kernel"], "abcde"),
        ("abcd", 0, ["kernel"], "e"),
        ("abcd", 0, [], ""),
        ("a", None, ["age"], "a"),
    ):
        assert basis.to_measure("e", [*hosts], age, reasons, 365) == [*again_on], (age, reasons)


def test_a_stale_decision_is_said_everywhere_and_counts_as_before():
    known = {"rests_on": rests_on(INTEL), "rechecks": []}
    old, fresh = {"stale": ["old", "another"], "measure": ["d", "e"]}, {"stale": [], "measure": []}
    held = (("a", "c1", {**known, **old}), ("b", "c1", {**known, **fresh}), ("c", "c2", None))
    judged = [(host, compliance_maker.found(hardware_class=kind, decision=one)) for host, kind, one in held]
    said = "the decision of its class is stale: old; another"
    assert said in compliance_report.table(judged)[2] and not compliance_report.exit_worthy(judged)
    assert compliance_report.sentence(judged) == "3 hosts: 3 compliant. Decisions to measure again: c1."
    page, document, metrics = (FORMATS[name].make(Check(judged, NOW)) for name in ("page", "json", "metrics"))
    assert page.count(said) == 1 and "smt_eval --limit d,e" in page
    assert [host["stale"] for host in json.loads(document)["hosts"]] == [["old", "another"], [], None]
    assert json.loads(document)["decisions"] == [{"hardware_class": "c1", "stale_hosts": 1, **known}]
    assert re.findall(r"^threadwise_smt_decision_stale\{.* (\d)$", metrics, re.MULTILINE) == ["1", "0"]


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


def test_hosts_of_a_run_decide_together():
    hosts = {said: [says(one, str(number)) for number, one in enumerate(said.split())] for said in TOGETHER}
    assert {said: of_class(some)["decision"] for said, some in hosts.items()} == TOGETHER


def test_what_is_said_of_a_decision():
    agree, mixed = [says("on", host, "r1", 9) for host in "abcd"], [says("on"), says("off", "b")]
    liar = [*(says("either", host) for host in "abc"), says("off", "liar", days=0)]
    alone = "a in run r, less than a day old, which alone decides for all hosts"
    overruled = "liar alone says off, the other 3 say either: one host does not decide for the others."
    for found, sentence, whose in (
        (agree, "d on.", "4 hosts (a, b, c and 1 more) in run r1, 9 days old"),
        (mixed, "Its hosts do not agree: a says on, b says off.", "2 hosts (a, b) in run r, 3 days old"),
        (liar, overruled, "4 hosts"),
        ([says("on", days=0)], "a on.", alone),
    ):
        one = of_class(found)
        assert one["sentence"].endswith(sentence[1:]) and one["whose"].startswith(f"evaluation of {whose}"), one


def noisy(number, share=0.515, noise=0.03):
    """Return the conclusion of a noisy host that is about 3 % slower with SMT off."""
    workloads = {"gzip": {**result_maker.GZIP, "share": share}}
    given = {"host": f"web{number}", "blocks": 6, "seed": number, "noise": noise, "shape": (1, 2, 2)}
    concluded = decisions.conclude(accepted(result_maker.result(workloads=workloads, **given)), NOW)
    return dataclasses.replace(concluded, hardware_class=CLASS)


def test_what_hosts_leave_open_by_themselves_is_decided_by_all_of_them_combined():
    hosts = [noisy(number) for number in range(7)]
    assert {"undecided", "on"} == {one.choice for one in hosts} and hosts[0].choice == "undecided"
    found = of_class(hosts)
    assert found["decision"] == "enabled" and found["sentence"].startswith("Its 7 hosts combined, of which web0"), found
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
    first, second = [next(iter(one.workloads.values())) for one in hosts]
    middle = math.sqrt(first["ratio"] * second["ratio"])
    exact = {**first, "ratio": middle, "ci_low": middle * 0.9999, "ci_high": middle * 1.0001, "verdict": "loss"}
    exact["candidate_value"] = exact["baseline_value"] * middle
    hosts.insert(place, decisions.Conclusion("liar", "r", CLASS, "on", "On.", {("app", None): exact}, NOW))
    found = of_class(hosts)
    assert found["decision"] is None and "liar alone turns this: without it the other 2" in found["sentence"], found


def test_a_host_counts_once_by_its_latest_run_that_compared_anything_and_for_one_class():
    older, newer, blind = says("on", "b", "r1", 9), says("off", "b", "r2", 5), says("not_compared", "b", "r3", 1)
    found = of_class([newer, blind, older])
    assert [found[name] for name in ("decision", "hosts", "runs", "age_days")] == ["disabled", ["b"], ["r2"], 5]
    # The age is that of the oldest.
    assert of_class([newer, says("off", "c", days=2)])["age_days"] == 5
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


def test_results_are_found_in_a_run_and_in_a_directory_of_runs_and_one_in_the_file_of_another_host_is_none(tmp_path):
    run = tmp_path / "runs" / "r1"
    run.mkdir(parents=True)
    for name in ("web01.json", "web02.json", "results.json", "index.html"):
        (run / name).write_text(json.dumps(result_maker.result(host="web01")))
    for folder in (run, tmp_path / "runs"):
        files = decisions.result_files_below(folder)
        assert [path.name for path in files] == ["web01.json", "web02.json"]
    found, refused = decisions.read_all(files, NOW)
    assert [one.host for one in found] == ["web01"] and "web01.json" in refused[0]["reason"]
    assert [one["file"] for one in refused] == [str(run / "web02.json")]


def test_a_result_is_read_as_its_report_reads_it_and_one_that_has_not_come_yet_decides_nothing():
    result = result_maker.result(host="web01")
    # When a run was taken is what the controller noted.
    result.update(finished="2026-01-02T00:00:00Z", collected="2026-01-01T00:00:00Z")
    one = decisions.conclude(accepted(result), NOW)
    assert (one.host, one.hardware_class, one.run) == ("web01", result["facts"]["hardware_class"], result["run"])
    assert one.choice == conclusion.ON and one.at == datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    many = result_maker.result(arms={"smt_on": 1.0, "smt_off": 1.0, "isolated": 1.2}, blocks=8)
    assert decisions.conclude(accepted(many), NOW).choice == conclusion.ON
    for name in ("started", "finished", "collected"):
        with pytest.raises(decisions.DecisionError, match=f"web01: {name} is 9999-01-01T00:00:00Z"):
            decisions.conclude(accepted({**result, name: "9999-01-01T00:00:00Z"}), NOW)
    result["facts"]["hardware_class"] = None
    without = result_maker.result(arms={"smt_on": 1.0, "isolated": 1.2}, blocks=5)
    for nothing in (result, result_maker.policy_result(), without):
        assert decisions.conclude(accepted(nothing), NOW) is None


# ---- re-checks -------------------------------------------------------------------------------------------------------

TODAY = datetime.datetime(2026, 11, 27, tzinfo=datetime.UTC)
LATER = TODAY - datetime.timedelta(days=1)
OLD, NEW = "6.1.0-28-amd64", "6.12.9-1-amd64"
PTI = {"meltdown": {"status": "Mitigation: PTI", "smt": None}}


def measured(host="a", day="2026-10-01", share=0.6, kernel=OLD, goal=goals.DECISION, blocks=20, noise=0.005, **more):
    """What an evaluation of a host says, in which second threads give twice ``share``."""
    options = {"workloads": {"gzip": {**result_maker.GZIP, "share": share}}, "names": ("all_threads",), **more}
    of_run = {"host": host, "run": f"{goal}-{day}", "blocks": blocks, "noise": noise, "seed": sum(map(ord, host + day))}
    document = result_maker.result(**of_run, **options)
    document["plan"]["goal"] = goal
    document["environment"]["kernel"] = kernel
    document["facts"]["vulnerabilities"] = PTI
    document.update(collected=f"{day}T00:00:00Z")
    return decisions.conclude(accepted(document), TODAY)


def again(host="a", day="2026-11-20", kernel=NEW, **options):
    """A re-check, which ends at a wide interval."""
    return measured(host, day, kernel=kernel, goal=goals.RECHECK, **{"blocks": 6, "noise": 0.02, **options})


def decided(*found, **options):
    (decision,) = decisions.decisions(found, TODAY, **options).values()
    assert json.loads(json.dumps(decision)) == decision
    return decision


def stale_now(decision, kernel=NEW, vulnerabilities=None, max_age=365):
    return rechecks.stale(decision, facts_maker.made(kernel=kernel, vulnerabilities=vulnerabilities or PTI), max_age)


def to_measure(decision, kernel):
    facts = facts_maker.made(kernel=kernel, vulnerabilities=PTI)
    return rechecks.to_measure("z", decision, facts, rechecks.stale(decision, facts, 365), 365)


FIRST = [measured(host) for host in "abc"]


def test_a_coarse_run_never_takes_the_place_of_a_precise_one():
    before, after = decided(*FIRST), decided(*FIRST, again(share=0.59, noise=0.2))
    assert after["decision"] == before["decision"] == "enabled"
    assert all(after[name] == before[name] for name in ("runs", "age_days", "rests_on", "sentence", "whose"))
    assert [one["state"] for one in after["rechecks"]] == [series.NOT_DECIDED]


def test_what_holds_confirms_the_decision_and_ends_staleness_by_kernel_age_and_mitigations():
    assert stale_now(decided(*FIRST)) == ["it was measured on Linux 6.1, and the host runs 6.12"]
    decision = decided(*FIRST, again())
    assert decision["whose"].endswith(f"days old, confirmed on 2026-11-20 with Linux {NEW}")
    assert stale_now(decision) == stale_now(decision, OLD) == []
    assert stale_now(decision, "6.18.1") == ["it was measured on Linux 6.1 and 6.12, and the host runs 6.18"]
    (one,) = decision["rechecks"]
    run = {"host": "a", "run": "recheck-2026-11-20", "day": "2026-11-20", "age_days": 7, "kernel": NEW}
    assert one == {**run, "mitigations": ["meltdown: Mitigation: PTI"], "state": "holds"}
    now = {**PTI, "mds": {"status": "Mitigation: Clear CPU buffers"}}
    old, held = [measured(host, "2025-10-01") for host in "abc"], again(kernel=OLD)
    assert len(stale_now(decided(*old), OLD, now)) == 2
    assert ["mds" in one for one in stale_now(decided(*old, held), OLD, now)] == [True]
    now_on = basis.Basis(OLD, mitigations=("mds: Mitigation: Clear CPU buffers", "meltdown: Mitigation: PTI"))
    assert stale_now(decided(*old, dataclasses.replace(held, basis=now_on)), OLD, now) == []
    # It gets old itself, and that of another host does not count for a kernel that it is not about.
    assert len(stale_now(decided(*old, held), OLD, max_age=5)) == 1
    beside = decided(*old, held, again("b", day="2026-11-25", share=0.53))
    assert stale_now(beside, OLD) == [] and to_measure(beside, OLD) == []


# What is re-checked, in which hosts run the new kernel unless they have another one; what a host on the new kernel, on
# the old one and on a third one hears last, and what is to be measured for a host of these.
CHANGED = f"its re-check by a on 2026-11-20 with Linux {NEW} says that the effect has changed"
CHANGED_OLD = CHANGED.replace(NEW, OLD)
OF_B, B_CHANGED = CHANGED.replace("by a", "by b"), CHANGED_OLD.replace("by a", "by b")
VAGUE = f"its re-check by a on 2026-11-25 with Linux {NEW} does not tell whether it still holds"


@pytest.mark.parametrize(
    ("found", "new", "old", "third", "to_be_measured"),
    [
        # It is said to each host that it is about and stays in force; of a third kernel nothing is known.
        ([again(share=0.53)], CHANGED, "", CHANGED, "az"),
        ([again(share=0.53, kernel=OLD)], CHANGED_OLD, CHANGED_OLD, CHANGED_OLD, "az"),
        # Of kernels that were re-checked each speaks for itself.
        ([again(share=0.53), again(day="2026-11-24", kernel="6.18.1")], CHANGED, "", "", ""),
        ([again(), again("b", share=0.53, kernel=OLD)], "", B_CHANGED, B_CHANGED, "bz"),
        # One that does not decide takes no confirmation away.
        ([again(day="2026-11-25", noise=0.2)], VAGUE, "", VAGUE, "az"),
        ([again(), again(day="2026-11-25", noise=0.2)], "", "", "6.18", "z"),
        # Of a host the latest one counts.
        ([again(day="2026-11-10", share=0.53), again()], "", "", "6.18", "z"),
        # What one host holds another one changes.
        ([again(), again("b", share=0.53)], OF_B, "", OF_B, "bz"),
        # A host that does not decide is compared with nothing, and that is no reason.
        ([again("d")], "6.12", "", "6.18", "z"),
        # Only those since the run that decides count.
        ([again(day="2026-09-01", share=0.53)], "6.12", "", "6.18", "z"),
    ],
)
def test_what_has_changed_is_said_to_each_host_that_it_is_about(found, new, old, third, to_be_measured):
    decision = decided(*FIRST, *found)
    assert decision["decision"] == "enabled"
    for kernel, said in ((NEW, new), (OLD, old), ("6.18.1", third)):
        reasons = stale_now(decision, kernel)
        assert bool(reasons) == bool(said) and said in "".join(reasons[-1:]), (kernel, reasons)
    assert to_measure(decision, "6.18.1") == [*to_be_measured]


def test_each_re_check_is_held_against_the_run_that_decides_and_no_earlier_one_spoils_it():
    for kernel in (NEW, OLD):
        days = [f"2026-11-{day:02}" for day in (3, 10, 20)]
        found = decided(*FIRST, again(day="2026-10-20", share=0.53, kernel=kernel), *(again(day=day) for day in days))
        assert [one["state"] for one in found["rechecks"]] == ["holds"] * 3 + ["changed"]
    # After a change nothing is confirmed by a second look that says the same.
    twice = decided(*FIRST, again(day="2026-11-10", share=0.53), again(share=0.53))
    assert [one["state"] for one in twice["rechecks"]] == ["changed", "changed"] and "confirmed" not in twice["whose"]


@pytest.mark.night(after=2)
@pytest.mark.parametrize(("number", "hosts"), [(8, 1), (1, 8), (2, 20), (1, 1)])
def test_a_change_is_called_in_at_most_five_of_100_re_checks_of_any_number_of_workloads_and_hosts(number, hosts):
    source, usual = random.Random(number), next(iter(FIRST[0].workloads.values()))

    def run(error, **about):
        """What a run says of workloads that did not change, each otherwise by chance, and by the day."""
        logs = [source.gauss(0, error) + source.gauss(0, 0.01) for _workload in range(number)]
        ends = (("ratio", 0), ("ci_low", -1.96 * error), ("ci_high", 1.96 * error))
        said = [{name: math.exp(log + off) for name, off in ends} for log in logs]
        found = {("w", place): {**usual, **one, "interval_confidence": 0.95} for place, one in enumerate(said)}
        return dataclasses.replace(FIRST[0], workloads=found, **about)

    def is_called():
        """Whether a class of some hosts, all of them re-checked, is said to have changed."""
        deciding = [run(0.005, host=str(host)) for host in range(hosts)]
        later = [run(0.01, host=one.host, at=LATER) for one in deciding]
        return rechecks.counting(rechecks.of_class(deciding, later, TODAY))["state"] == series.CHANGED

    # Where five in a hundred are, 33 of 400 are in one of 1000 such tests.
    assert sum(is_called() for _again in range(400)) <= 33


def test_all_that_the_run_which_decides_has_measured_has_to_hold():
    both = {name: {**result_maker.GZIP, "share": 0.6} for name in ("gzip", "own")}
    # The same numbers of another unit say nothing.
    seconds = ({**both, "own": {**both["own"], **change}} for change in ({}, {"share": 0.53}, {"unit": "kB/s"}))
    found = [again(), *(again(workloads=second) for second in seconds)]
    states = [decided(measured(workloads=both), one)["rechecks"][0]["state"] for one in found]
    assert states == ["not decided", "holds", "changed", "not decided"]


def test_who_did_not_decide_or_was_only_re_checked():
    vain = decided(*FIRST, again("d"))
    assert [(one["host"], one["state"]) for one in vain["rechecks"]] == [("d", rechecks.NOT_COMPARED)]
    assert vain["whose"].endswith(", re-checked in vain with d, which did not decide")
    assert decided(*FIRST, again("d", day="2026-09-01"))["rechecks"] == []
    anew = [measured(host, "2026-11-26", share=0.53, kernel=NEW) for host in "abc"]
    assert stale_now(decided(*FIRST, again(share=0.53), *anew)) == []
    alone = decided(again())
    assert alone["decision"] is None and alone["sentence"].startswith("Its hosts were only re-checked")
    assert yields.by_class([again()]) == {}
    # One of a host that is of another class now, or without a comparison, says nothing.
    (one,) = (found for found in decisions.decisions([*FIRST, again(share=0.53)], TODAY, {"a": "other"}).values())
    assert one["rechecks"] == [] and one["hosts"] == ["b", "c"] and "a" in one["not_counted"]
    assert decided(*FIRST, dataclasses.replace(again(), choice=conclusion.NOT_COMPARED))["rechecks"] == []


# ---- which hosts are measured for which others -----------------------------------------------------------------------

CLASSES = {"web2": "x86-b", "db1": "x86-a", "web1": "x86-b", "old1": None, "web3": "x86-b", "old2": None}


def test_the_first_hosts_of_each_class_are_measured_in_the_order_of_the_play():
    shares = sample.choose(CLASSES, 2)
    measured_hosts = [("x86-a", ("db1",)), ("x86-b", ("web2", "web1")), (None, ("old1", "old2"))]
    assert [(one.hardware_class, one.measured) for one in shares] == measured_hosts
    # Hosts of a class share the work of one, and hosts without a class do not.
    assert [one.shared_by for one in shares] == [1, 2, 1]
    of_b = "x86-b: web2, web1 measured, for web2, web1, web3."
    budget = " Each measures for 1/2 of smt_eval_budget, and longer only until it has 6 blocks."
    alone = "Hardware class not known: old1, old2 measured, for no other host."
    assert [sample.sentence(one, True) for one in shares[1:]] == [of_b + budget, alone]
    assert sample.sentence(shares[1], False) == of_b
