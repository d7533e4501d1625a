# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What decisions rest on, and when they are stale: by the kernel, the mitigations and their age, and nothing else."""

from __future__ import annotations

import copy
import datetime
import itertools
import json

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import environment
from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet import compliance, compliance_report
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files import registry
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.compliance_files.base import Check
from ansible_collections.threadwise.smt.plugins.plugin_utils._fleet.deciding import basis, decisions
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


def test_what_a_vulnerable_kernel_lacks_is_no_mitigation():
    lacks = {"spectre_v1": "Vulnerable: __user pointer sanitization and usercopy barriers only; no swapgs barriers"}
    assert basis.mitigations(facts(lacks)) == ()


@pytest.mark.parametrize(
    ("measured", "now"),
    [(INTEL, INTEL_OFF), (INTEL_OFF, INTEL), (AMD, AMD_OFF), (AMD_OFF, AMD), (INTEL, INTEL), ({}, AMD), (AMD, {})],
)
def test_what_the_state_of_smt_changes_makes_no_decision_stale(measured, now):
    assert stale(rests_on(measured), facts(now)) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"mds": "Mitigation: Clear CPU buffers; SMT Host state unknown"}, None),
        ({"meltdown": "Vulnerable"}, "the host has no more meltdown: Mitigation: PTI"),
        ({"meltdown": "Not affected"}, "the host has no more meltdown: Mitigation: PTI"),
        ({"srbds": "Mitigation: Microcode"}, "the host has srbds: Mitigation: Microcode"),
        ({"gather_data_sampling": "Not affected"}, None),
        ({"gather_data_sampling": "Vulnerable: No microcode"}, None),
        ({"indirect_target_selection": "Mitigation: Aligned branch/return thunks"}, "the host has indirect_target_sel"),
        ({"spectre_v2": INTEL["spectre_v2"].replace("BHI: Not affected", "BHI: Retpoline")}, "spectre_v2: BHI: Retpol"),
        (
            {"spectre_v2": "Mitigation: Enhanced IBRS; IBPB: conditional"},
            "the host has spectre_v2: Mitigation: Enhanced",
        ),
    ],
)
def test_other_mitigations_make_it_stale(change, words):
    found = stale(rests_on(INTEL), facts({**INTEL, **change}))
    assert bool(found) == bool(words) and (words or "") in "".join(found)


OFF = "Vulnerable, IBPB: disabled, STIBP: disabled"


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        (
            "spectre_v2",
            ["Mitigation: Enhanced IBRS; IBPB: always-on", "Mitigation: Enhanced / Automatic IBRS; IBPB: always-on"],
        ),
        (
            "spectre_v2",
            ["Mitigation: Full generic retpoline, IBPB: conditional", "Mitigation: Retpolines; IBPB: conditional"],
        ),
        ("spectre_v2", ["Mitigation: Full AMD retpoline", "Mitigation: LFENCE", "Vulnerable: LFENCE"]),
        ("spec_rstack_overflow", ["Mitigation: safe RET", "Mitigation: Safe RET"]),
        ("spec_rstack_overflow", ["Mitigation: microcode", "Vulnerable: Microcode, no safe RET"]),
        # A guest is started, and the module of KVM is loaded.
        (
            "itlb_multihit",
            [
                "KVM: Mitigation: VMX disabled",
                "KVM: Mitigation: Split huge pages",
                "KVM: Vulnerable",
                "Processor vulnerable",
            ],
        ),
        (
            "l1tf",
            [
                "Mitigation: PTE Inversion",
                "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable",
                "Mitigation: PTE Inversion; VMX: vulnerable",
                "Mitigation: PTE Inversion; VMX: EPT disabled",
            ],
        ),
        # A newer kernel lists more that it does not mitigate.
        (
            "spectre_v2",
            [OFF, OFF.replace(",", ";"), OFF.replace(",", ";") + "; PBRSB-eIBRS: Vulnerable; BHI: Vulnerable"],
        ),
        (
            "spectre_v2",
            [
                "Mitigation: Enhanced IBRS",
                "Mitigation: Enhanced IBRS; BHI: Vulnerable, KVM: SW loop; PBRSB-eIBRS: Not affected",
            ],
        ),
        (
            "mds",
            [
                "Vulnerable; SMT vulnerable",
                "Vulnerable: Clear CPU buffers attempted, no microcode; SMT vulnerable",
                "Unknown: No mitigations",
                "Not affected",
            ],
        ),
        ("spec_rstack_overflow", ["Vulnerable", "Vulnerable: No microcode", "Vulnerable: Safe RET, no microcode"]),
        ("meltdown", ["Unknown (XEN PV detected, hypervisor mitigation required)", "Vulnerable"]),
    ],
)
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
        ("spectre_v2", RETPOLINES, "conditional", "conditional", False),
        ("retbleed", RETBLEED, "enabled with STIBP protection", "vulnerable", True),
        ("retbleed", RETBLEED, "disabled", "vulnerable", False),
        ("retbleed", RETBLEED, "enabled with STIBP protection", "disabled", False),
        ("retbleed", RETBLEED, "vulnerable", "vulnerable", False),
    ],
)
def test_what_protects_siblings_is_compared_where_it_does_not_follow_from_smt(name, status, before, now, is_stale):
    texts = [status.format(one) for one in (before, now)]
    for was, now_is in (texts, texts[::-1]):
        found = stale(rests_on({name: was}), facts({name: now_is}))
        assert bool(found) == is_stale, found
        assert not found or all(one in found[0] for one in (before, now))


def test_a_part_that_one_side_does_not_show_is_not_compared():
    conditional, none = RETPOLINES.format("conditional"), "Mitigation: Retpolines; IBPB: conditional; RSB filling"
    off = {**facts({"spectre_v2": RETPOLINES.format("disabled")}), "active": False}
    for now in (facts({"spectre_v2": none}), off):
        assert stale(rests_on({"spectre_v2": conditional}), now) == []
    assert stale(rests_on({"spectre_v2": conditional}), {**off, "active": True}) != []


@pytest.mark.parametrize(
    ("kernels", "now", "is_stale"),
    [
        (["6.1.0-28-amd64"], "6.1.0-40-amd64", False),
        (["6.1.0-28-amd64"], "6.12.9-1-amd64", True),
        (["6.1.0-28-amd64"], "6.10.1", True),
        (["6.12.9"], "6.1.0", True),
        (["6.1.0-28-amd64", "6.12.9"], "6.12.1", False),
        (["5.14.0-427.el9.x86_64"], "5.14.0-503.el9.x86_64", False),
        (["6.1.0-28-amd64"], None, False),
        (["odd"], "6.1.0", False),
        ([], "6.1.0", False),
        (["6.1.0"], "\x1b]0;6.12", False),
    ],
)
def test_another_series_of_the_kernel_makes_it_stale(kernels, now, is_stale):
    found = stale(rests_on(INTEL, kernels=kernels), facts(INTEL, now))
    assert bool(found) == is_stale
    if is_stale:
        measured = basis.series(kernels[0])
        assert found == [f"it was measured on Linux {measured}, and the host runs {basis.series(now)}"]


def test_age_makes_it_stale():
    assert basis.stale(rests_on(INTEL), 365, {}, 365) == []
    assert basis.stale(rests_on(INTEL), 366, {}, 365) == ["it is 366 days old, more than smt_policy_max_age (365)"]
    assert basis.stale(rests_on(INTEL), None, {}, 365) == ["its age is not known"]


@pytest.mark.parametrize("odd", [None, [], 1, "x", {"mds": None}, {"mds": {"status": 7}}, {"mds": "Mitigation: PTI"}])
def test_odd_facts_are_not_compared_or_have_no_mitigation(odd):
    found = basis.stale(rests_on(INTEL), 1, {"kernel": odd, "vulnerabilities": odd}, 365)
    assert all(reason.startswith("the mitigations are others") for reason in found)


def test_hostile_statuses_are_lines_that_can_be_read():
    found = stale(rests_on(INTEL), facts({**INTEL, "x\x1b[31m": "Mitigation: <b>\n\u202e" + "y" * 9000}))
    assert len(found) == 1 and found[0].isprintable() and len(found[0]) < 900


def test_a_decision_carries_what_its_results_rest_on():
    documents = [result_maker.result(host=host, noise=0.0005, blocks=6) for host in ("a", "b")]
    documents[1]["environment"].update(kernel="6.12.9", microcode=None, governor=None, boost=True)
    documents[1].update(collected="2026-02-27T23:30:00Z")
    # As earlier releases wrote it.
    assert "boost" not in documents[0]["environment"]
    found = [decisions.conclude(accepted(one), NOW + datetime.timedelta(days=999)) for one in documents]
    (decision,) = decisions.decisions(found, NOW + datetime.timedelta(days=999)).values()
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


def test_what_is_to_be_measured_again_ends_it():
    """An evaluation of one host of a class whose others are too old leaves the decision as old as they are."""
    first = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC)
    now = first + datetime.timedelta(days=423)

    def evaluated(host, at, kernel):
        document = result_maker.result(host=host, noise=0.0005, blocks=6)
        document.update({name: at.strftime("%Y-%m-%dT%H:%M:%SZ") for name in ("started", "finished", "collected")})
        document["environment"]["kernel"] = kernel
        return decisions.conclude(accepted(document), now)

    def judged(found, kernel):
        (decision,) = decisions.decisions(found, now).values()
        age = decision["age_days"]
        reasons = basis.stale(decision["rests_on"], age, {"kernel": kernel}, 365)
        return len(reasons), basis.to_measure("e", decision["hosts"], age, reasons, 365)

    old, new = "6.1.0-38-cloud-amd64", "6.12.9"
    before = [evaluated(host, first, old) for host in "abcd"]
    assert judged(before, old) == (1, ["a", "b", "c", "d"])
    assert judged(before, new) == (2, ["a", "b", "c", "d", "e"])
    again = [evaluated(host, now, old) for host in "abcd"]
    assert judged(again, old) == (0, []) and judged(again, new) == (1, ["e"])
    assert judged([*again, evaluated("e", now, new)], new) == (0, [])
    assert basis.to_measure("e", ["a"], None, ["its age is not known"], 365) == ["a"]


def test_a_result_without_an_environment_is_read():
    document = result_maker.result(blocks=2)
    document["environment"] = {}
    document["facts"]["vulnerabilities"] = {}
    found = basis.Basis.of(accepted(copy.deepcopy(document)))
    assert found == basis.Basis(collection_version=document["collection_version"])
    assert basis.stale(basis.together([found], [None]), 3, facts(INTEL), 365) == []


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("intel_pstate/no_turbo", "0\n", True),
        ("intel_pstate/no_turbo", "1\n", False),
        ("cpufreq/boost", "1\n", True),
        ("cpufreq/boost", "0\n", False),
        ("cpufreq/boost", "x\n", None),
        ("other", "1\n", None),
    ],
)
def test_the_boost_is_read(tmp_path, path, text, expected):
    place = tmp_path / "sys/devices/system/cpu" / path
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert environment.boost(files.HostFs(str(tmp_path))) is expected


def test_a_stale_decision_is_said_everywhere_and_counts_as_before():
    known = {"rests_on": rests_on(INTEL), "rechecks": []}
    one = compliance.refused("", compliance.COMPLIANT, hardware_class="c1", wanted="disabled")
    judged = [
        ("a", {**one, "decision": {**known, "stale": ["it is 400 days old", "another"], "measure": ["d", "e"]}}),
        ("b", {**one, "decision": {**known, "stale": [], "measure": []}}),
        ("c", {**one, "hardware_class": "c2"}),
    ]
    said = "the decision of its class is stale: it is 400 days old; another"
    assert said in compliance_report.table(judged)[2] and not compliance_report.exit_worthy(judged)
    assert compliance_report.sentence(judged) == "3 hosts: 3 compliant. Decisions to measure again: c1."
    page = FORMATS["page"].make(Check(judged, NOW))
    assert page.count(said) == 1 and "threadwise.smt.smt_eval --limit d,e" in page
    document = json.loads(FORMATS["json"].make(Check(judged, NOW)))
    assert [host["stale"] for host in document["hosts"]] == [["it is 400 days old", "another"], [], None]
    assert document["decisions"] == [{"hardware_class": "c1", "stale_hosts": 1, **known}]
    lines = FORMATS["metrics"].make(Check(judged, NOW)).splitlines()
    metric = [line.rpartition(" ")[2] for line in lines if line.startswith("threadwise_smt_decision_stale{")]
    assert metric == ["1", "0"]
