# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What decisions rest on, and when they are stale: by the kernel, the mitigations and their age, and nothing else."""

from __future__ import annotations

import datetime
import itertools
import json

import pytest
import result_maker
import yaml
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import basis, decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.fleet import compliance, compliance_report
from result_maker import accepted

FORMATS = registry.formats()
NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
# Statuses as kernels print them: of an Intel server with SMT on, the same with it off, and of an AMD server.
INTEL = {
    "itlb_multihit": "KVM: Mitigation: VMX disabled",
    "l1tf": "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable",
    "mds": "Mitigation: Clear CPU buffers; SMT vulnerable",
    "meltdown": "Mitigation: PTI",
    "retbleed": "Not affected",
    "spectre_v2": "Mitigation: Retpolines; IBPB: conditional; STIBP: conditional; RSB filling; BHI: Not affected",
    "srbds": "Vulnerable: No microcode",
}
INTEL_OFF = {
    **INTEL,
    "l1tf": "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT disabled",
    "mds": "Mitigation: Clear CPU buffers; SMT disabled",
    "spectre_v2": INTEL["spectre_v2"].replace("STIBP: conditional; ", ""),
}
AMD = {
    "retbleed": "Mitigation: untrained return thunk; SMT enabled with STIBP protection",
    "spec_rstack_overflow": "Mitigation: Safe RET",
    "spectre_v2": "Mitigation: Retpolines; IBPB: conditional; STIBP: always-on; RSB filling",
}
AMD_OFF = {
    "retbleed": "Mitigation: untrained return thunk; SMT disabled",
    "spec_rstack_overflow": "Mitigation: SMT disabled",
    "spectre_v2": "Mitigation: Retpolines; IBPB: conditional; STIBP: disabled; RSB filling",
}


def facts(statuses, kernel="6.1.0-28-amd64"):
    return {"kernel": kernel, "vulnerabilities": {name: {"status": text} for name, text in statuses.items()}}


def rests_on(*statuses, kernels=("6.1.0-28-amd64",)):
    bases = [basis.Basis(kernel=one, mitigations=basis.mitigations(facts(two))) for one in kernels for two in statuses]
    return basis.together(bases, [NOW])


def stale(measured, now, age=3, **known):
    return basis.stale(measured, age, {**now, **known}, 365)


@pytest.mark.parametrize(
    ("measured", "now"),
    [(INTEL, INTEL_OFF), (INTEL_OFF, INTEL), (AMD, AMD_OFF), (AMD_OFF, AMD), (INTEL, INTEL), ({}, AMD), (AMD, {})],
)
def test_what_the_state_of_smt_changes_makes_no_decision_stale(measured, now):
    assert stale(rests_on(measured), facts(now)) == []
    # One host of several that rest on other things is enough.
    assert not measured or stale(rests_on({"mds": "Mitigation: other"}, measured), facts(now)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mds": "Mitigation: Clear CPU buffers; SMT Host state unknown"}, None),
        ({"meltdown": "Vulnerable"}, "no more meltdown: Mitigation: PTI"),
        ({"meltdown": "Not affected"}, "no more meltdown: Mitigation: PTI"),
        ({"srbds": "Mitigation: Microcode"}, "has srbds: Mitigation: Microcode"),
        ({"gather_data_sampling": "Vulnerable: No microcode"}, None),
        ({"indirect_target_selection": "Mitigation: Aligned branch/return thunks"}, "has indirect_target_sel"),
        ({"spectre_v2": INTEL["spectre_v2"].replace("BHI: Not affected", "BHI: Retpoline")}, "spectre_v2: BHI: Retpol"),
        ({"spectre_v2": "Mitigation: Enhanced IBRS; IBPB: conditional"}, "has spectre_v2: Mitigation: Enhanced"),
    ],
)
def test_other_mitigations_make_it_stale(change, words):
    found = stale(rests_on(INTEL), facts({**INTEL, **change}))
    assert bool(found) == bool(words) and (words or "") in "".join(found)


SAME = yaml.safe_load("""
- [spectre_v2, ["Mitigation: Enhanced IBRS; IBPB: always-on",
    "Mitigation: Enhanced / Automatic IBRS; IBPB: always-on"]]
- [spectre_v2, ["Mitigation: Full generic retpoline, IBPB: conditional", "Mitigation: Retpolines; IBPB: conditional"]]
- [spectre_v2, ["Mitigation: Full AMD retpoline", "Mitigation: LFENCE", "Vulnerable: LFENCE"]]
- [spec_rstack_overflow, ["Mitigation: safe RET", "Mitigation: Safe RET"]]
- [spec_rstack_overflow, ["Mitigation: microcode", "Vulnerable: Microcode, no safe RET"]]
# A guest is started, and the module of KVM is loaded.
- [itlb_multihit, ["KVM: Mitigation: VMX disabled", "KVM: Mitigation: Split huge pages", "KVM: Vulnerable",
    "Processor vulnerable"]]
- [l1tf, ["Mitigation: PTE Inversion", "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable",
    "Mitigation: PTE Inversion; VMX: vulnerable", "Mitigation: PTE Inversion; VMX: EPT disabled"]]
# A newer kernel lists more that it does not mitigate.
- [spectre_v2, ["Vulnerable, IBPB: disabled, STIBP: disabled", "Vulnerable; IBPB: disabled; STIBP: disabled",
    "Vulnerable; IBPB: disabled; STIBP: disabled; PBRSB-eIBRS: Vulnerable; BHI: Vulnerable"]]
- [spectre_v2, ["Mitigation: Enhanced IBRS",
    "Mitigation: Enhanced IBRS; BHI: Vulnerable, KVM: SW loop; PBRSB-eIBRS: Not affected"]]
- [mds, ["Vulnerable; SMT vulnerable", "Vulnerable: Clear CPU buffers attempted, no microcode; SMT vulnerable",
    "Unknown: No mitigations", "Not affected"]]
- [spec_rstack_overflow, ["Vulnerable", "Vulnerable: No microcode", "Vulnerable: Safe RET, no microcode"]]
- [spectre_v1, ["Vulnerable: __user pointer sanitization and usercopy barriers only; no swapgs barriers",
    "Vulnerable"]]
- [meltdown, ["Unknown (XEN PV detected, hypervisor mitigation required)", "Vulnerable"]]
""")


@pytest.mark.parametrize(("name", "texts"), SAME)
def test_the_same_state_in_other_words_makes_no_decision_stale(name, texts):
    for before, now in itertools.permutations(texts, 2):
        assert stale(rests_on({name: before}), facts({name: now})) == [], (before, now)


RETPOLINES = "Mitigation: Retpolines; IBPB: conditional; STIBP: {}; RSB filling"
RETBLEED = "Mitigation: untrained return thunk; SMT {}"


@pytest.mark.parametrize(
    ("name", "status", "before", "now", "is_stale"),
    [
        ("spectre_v2", RETPOLINES, "conditional", "forced", True),
        ("spectre_v2", RETPOLINES, "disabled", "always-on", True),
        ("retbleed", RETBLEED, "enabled with STIBP protection", "vulnerable", True),
        ("retbleed", RETBLEED, "disabled", "vulnerable", False),
        ("retbleed", RETBLEED, "enabled with STIBP protection", "disabled", False),
    ],
)
def test_what_protects_siblings_is_compared_where_it_does_not_follow_from_smt(name, status, before, now, is_stale):
    texts = [status.format(one) for one in (before, now)]
    for was, now_is in (texts, texts[::-1]):
        found = stale(rests_on({name: was}), facts({name: now_is}))
        assert bool(found) == is_stale, found
        assert not found or all(one in found[0] for one in (before, now))


def test_a_part_that_one_side_does_not_show_is_not_compared():
    measured, none = rests_on({"spectre_v2": RETPOLINES.format("conditional")}), RETPOLINES.replace(" STIBP: {};", "")
    off = {**facts({"spectre_v2": RETPOLINES.format("disabled")}), "active": False}
    assert stale(measured, facts({"spectre_v2": none})) == stale(measured, off) == []
    assert stale(measured, {**off, "active": True}) != []


KERNELS = yaml.safe_load(r"""
[[[6.1.0-28-amd64], 6.1.0-40-amd64, null], [[6.1.0-28-amd64], 6.12.9-1-amd64, "6.1"], [[6.1.0-28-amd64], 6.10.1, "6.1"],
[[6.12.9, 6.2.1], 6.1.0, 6.2 and 6.12], [[6.1.0-28-amd64, 6.12.9], 6.12.1, null], [[6.1.0-28-amd64], null, null],
[[5.14.0-427.el9.x86_64], 5.14.0-503.el9.x86_64, null], [[odd], 6.1.0, null], [[], 6.1.0, null],
[[6.1.0], "\e]0;6.12", null]]
""")


@pytest.mark.parametrize(("kernels", "now", "measured"), KERNELS)
def test_another_series_of_the_kernel_makes_it_stale(kernels, now, measured):
    sentence = f"it was measured on Linux {measured}, and the host runs {basis.series(now)}"
    assert stale(rests_on(INTEL, kernels=kernels), facts(INTEL, now)) == [sentence] * bool(measured)


@pytest.mark.parametrize(
    ("age", "reasons"),
    [(365, []), (366, ["it is 366 days old, more than smt_policy_max_age (365)"]), (None, ["its age is not known"])],
)
def test_age_makes_it_stale(age, reasons):
    assert basis.stale(rests_on(INTEL), age, {}, 365) == reasons


@pytest.mark.parametrize("odd", [None, [], 1, "x", {"mds": None}, {"mds": {"status": 7}}, {"mds": "Mitigation: PTI"}])
def test_odd_facts_are_not_compared_or_have_no_mitigation(odd):
    assert len(basis.stale(rests_on(INTEL), 1, {"kernel": odd, "vulnerabilities": odd}, 365)) <= 1


def test_hostile_statuses_are_lines_that_can_be_read():
    found = stale(rests_on(INTEL), facts({**INTEL, "x\x1b[31m": "Mitigation: <b>\n\u202e" + "y" * 9000}))
    assert len(found) == 1 and found[0].isprintable() and len(found[0]) < 900


def test_a_decision_carries_what_its_results_rest_on():
    documents = [result_maker.result(host=host, noise=0.0005, blocks=6) for host in ("a", "b")]
    documents[1]["environment"].update(kernel="6.12.9", microcode=None, governor=None, boost=True)
    documents[1]["collected"] = "2026-02-27T23:30:00Z"
    later = NOW + datetime.timedelta(days=999)
    (decision,) = decisions.decisions([decisions.conclude(accepted(one), later) for one in documents], later).values()
    assert decision["rests_on"] == {
        "kernels": ["6.1.0-38-cloud-amd64", "6.12.9"],
        "microcode": ["0x1"],
        "mitigations": [["mds: Mitigation: Clear CPU buffers", "meltdown: Mitigation: PTI"]],
        "collection_versions": [documents[0]["collection_version"]],
        "governors": ["performance"],
        "boost": [True],
        "first_day": decision["rests_on"]["first_day"],
        "last_day": max(documents[0]["finished"][:10], "2026-02-27"),
    }
    assert json.loads(json.dumps(decision)) == decision
    # As earlier releases wrote it.
    documents[0].update(environment={}, facts={**documents[0]["facts"], "vulnerabilities": {}})
    found = basis.Basis.from_result(accepted(documents[0]))
    assert found == basis.Basis(collection_version=documents[0]["collection_version"])
    assert basis.stale(basis.together([found], [None]), 3, facts(INTEL), 365) == []


@pytest.mark.parametrize(
    ("hosts", "age", "reasons", "again"),
    [
        # An evaluation of one host of a class whose others are too old leaves the decision as old as they are.
        ("abcd", 423, ["age"], "abcd"),
        ("abcd", 423, ["age", "kernel"], "abcde"),
        ("abcd", 0, ["kernel"], "e"),
        ("abcd", 0, [], ""),
        ("a", None, ["age"], "a"),
    ],
)
def test_what_is_to_be_measured_again(hosts, age, reasons, again):
    assert basis.to_measure("e", [*hosts], age, reasons, 365) == [*again]


def test_a_stale_decision_is_said_everywhere_and_counts_as_before():
    known = {"rests_on": rests_on(INTEL), "rechecks": []}
    one = compliance.refused("", compliance.COMPLIANT, hardware_class="c1", wanted="disabled")
    judged = [
        ("a", {**one, "decision": {**known, "stale": ["old", "another"], "measure": ["d", "e"]}}),
        ("b", {**one, "decision": {**known, "stale": [], "measure": []}}),
        ("c", {**one, "hardware_class": "c2"}),
    ]
    said = "the decision of its class is stale: old; another"
    assert said in compliance_report.table(judged)[2] and not compliance_report.exit_worthy(judged)
    assert compliance_report.sentence(judged) == "3 hosts: 3 compliant. Decisions to measure again: c1."
    page, document, metrics = (FORMATS[name].make(Check(judged, NOW)) for name in ("page", "json", "metrics"))
    assert page.count(said) == 1 and "smt_eval --limit d,e" in page
    assert [host["stale"] for host in json.loads(document)["hosts"]] == [["old", "another"], [], None]
    assert json.loads(document)["decisions"] == [{"hardware_class": "c1", "stale_hosts": 1, **known}]
    lines = [line for line in metrics.splitlines() if line.startswith("threadwise_smt_decision_stale{")]
    assert [line.rpartition(" ")[2] for line in lines] == ["1", "0"]
