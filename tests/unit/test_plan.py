# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: its order, its budget and its failures, with real workloads on this machine; toggles are judged in guests (molecule/smt_eval)."""

from __future__ import annotations

import os
import re

import pytest

from ansible_collections.threadwise.smt.plugins.module_utils import changes, cpu_state, plan, workloads
from ansible_collections.threadwise.smt.plugins.module_utils.placement import PlacementError
from ansible_collections.threadwise.smt.plugins.module_utils.run_directory import RunDirectory
from ansible_collections.threadwise.smt.plugins.module_utils.topology import Topology

HERE = tuple(sorted(os.sched_getaffinity(0)))[:2]
SETTINGS = {
    "change": "smt_runtime", "workloads": ["gzip"], "placements": ["single", "siblings", "all_threads"],
    "budget": 60, "blocks": 3, "sample_seconds": 0.05, "settle_seconds": 0, "bystanders": "warn", "overcommit_ratio": None, "custom": [], "margin": 0.01, "sources": {},
}
ORIGIN = {"control": "on", "active": True, "online": list(HERE), "present": list(HERE)}
FACTS = {
    "control": "on", "supported": True, "complete": True, "threads_per_core": {"max": 2},
    "methods": {"runtime": {"chosen": "smt_control", "possible": ["smt_control"], "impossible": {}}},
}


def facts(**changed):
    return dict(FACTS, **changed)


def outline(settings, host_facts=None, cores=(HERE,), isolated=(), allowed=HERE, online=HERE):
    cpus = tuple(sorted(cpu for core in cores for cpu in core))
    topology = Topology(present=cpus, online=online, isolated=isolated, cores=cores, packages=(cpus,), source="sysfs", complete=True)
    return plan.Outline(changes.of(host_facts or FACTS, topology, settings, ORIGIN), allowed, settings["placements"])


@pytest.fixture(name="toggles")
def recorded_toggles(monkeypatch):
    """What the plan wants of the SMT state; this machine's is not touched."""
    wanted = []
    for name, told in (("enable", "on"), ("disable", "off")):
        monkeypatch.setattr(cpu_state, name, lambda sysroot, cores, origin, told=told: wanted.append((told, origin)))
    return wanted


def measured(tmp_path, settings, **kwargs):
    files = RunDirectory(str(tmp_path), "r")
    files.create()
    done = plan.Plan(files, outline(settings, **kwargs), settings)
    done.measure()
    return done, files.read_lines("samples.jsonl"), files


@pytest.mark.skipif(len(HERE) < 2, reason="two CPUs are needed to stand for siblings")
def test_blocks_alternate_and_every_second_runs_backwards(tmp_path, toggles):
    _done, samples, _files = measured(tmp_path, SETTINGS)
    order = [(sample["block"], sample["condition"], sample["placement"]) for sample in samples]
    assert order == [
        (0, "smt_on", "single"), (0, "smt_on", "siblings"), (0, "smt_off", "single"),
        (1, "smt_off", "single"), (1, "smt_on", "siblings"), (1, "smt_on", "single"),
        (2, "smt_on", "single"), (2, "smt_on", "siblings"), (2, "smt_off", "single"),
    ]
    assert toggles == [("on", ORIGIN), ("off", ORIGIN), ("on", ORIGIN), ("off", ORIGIN)]
    assert [sample["index"] for sample in samples] == list(range(9))
    assert all(sample["ok"] and sample["metric"]["value"] > 0 for sample in samples)


def test_nothing_is_switched_when_not_asked_for(tmp_path, toggles):
    settings = dict(SETTINGS, change="none", placements=["single"], blocks=2)
    _done, samples, _files = measured(tmp_path, settings)
    assert toggles == []
    assert [sample["condition"] for sample in samples] == ["as_found"] * 2


def test_the_budget_ends_a_plan_at_a_whole_block(tmp_path):
    settings = dict(SETTINGS, change="none", placements=["single", "all_threads"], blocks=None, budget=1)
    done, samples, files = measured(tmp_path, settings)
    assert done.block >= 1
    assert len(samples) == done.block * len({sample["placement"] for sample in samples})
    assert files.read("progress.json")["last"]["workload"] == "gzip"


@pytest.mark.parametrize(("host_facts", "words"), [
    (facts(control="notsupported", supported=False), "no SMT to switch .smt/control reads notsupported"),
    (facts(threads_per_core={"max": 1}), "no core of this host has a second thread"),
    (facts(methods={"runtime": {"chosen": None, "possible": [], "impossible": {"smt_control": "only root may write it"}}}), "only root may write it"),
    (facts(control="forceoff", methods={"runtime": {"chosen": None, "possible": [], "impossible": {"smt_control": "reboot"}}}),
     "cannot be switched at run time"),
])
def test_why_there_is_no_comparison_is_said(host_facts, words):
    found = outline(SETTINGS, host_facts)
    assert not found.change.compared and found.change.conditions == ["as_found"]
    assert re.search(words, found.change.reason)


def test_smt_off_as_found_is_still_compared():
    assert outline(SETTINGS, facts(control="off"), cores=((0, 1),), online=(0,), allowed=(0,)).change.compared


def test_placements_under_each_condition():
    found = outline(dict(SETTINGS, placements=["siblings", "one_per_core", "all_threads"]), cores=((0, 2), (1, 3)), allowed=(0, 1, 2, 3), online=(0, 1, 2, 3))
    on, off = found.placements("smt_on"), found.placements("smt_off")
    assert on["all_threads"]["workers"] == [[0], [1], [2], [3]]
    assert off["siblings"]["workers"] is None and off["siblings"]["reason"]
    assert off["all_threads"] == {"workers": [[0], [1]], "same_as": "one_per_core", "reason": None}


def test_siblings_that_are_offline_as_found_are_measured_once_online():
    found = outline(SETTINGS, facts(control="off"), cores=((0, 2), (1, 3)), online=(0, 1), allowed=(0, 1))
    assert found.placements("smt_on")["all_threads"]["workers"] == [[0], [1], [2], [3]]
    assert found.placements("smt_off")["all_threads"]["workers"] == [[0], [1]]


def test_a_sibling_that_is_off_on_purpose_takes_no_part():
    found = outline(dict(SETTINGS, placements=["all_threads"]), cores=((0, 2), (1, 3)), online=(0, 1, 2), allowed=(0, 1, 2))
    assert found.placements("smt_on")["all_threads"]["workers"] == [[0], [1], [2]]


def test_isolated_and_forbidden_cpus_are_left_alone():
    found = outline(SETTINGS, cores=((0, 2), (1, 3)), isolated=(3,), allowed=(1, 2, 3), online=(0, 1, 2, 3))
    assert found.placements("smt_on")["all_threads"]["workers"] == [[1], [2]]


def test_a_failing_workload_is_given_up_and_spoils_nothing(tmp_path, monkeypatch):
    script = "[ -e ran ] && { echo no paper; exit 3; }; touch ran; echo events per second: 7; echo 95th percentile: 1"
    broken = dict(workloads.SYSBENCH_CPU, name="broken", argv=["sh", "-c", script], package="sh")
    monkeypatch.setitem(workloads.BUILT_IN, "broken", dict(broken, work=dict(broken["work"], limit=100)))
    monkeypatch.setattr(plan, "CALIBRATION_ROUNDS", 1)
    settings = dict(SETTINGS, change="none", workloads=["broken", "gzip"], placements=["single"], blocks=5)
    done, samples, files = measured(tmp_path, settings)
    failed = [sample for sample in samples if sample["workload"] == "broken"]
    assert [sample["ok"] for sample in failed] == [False] * (plan.FAILURES_ALLOWED + 1)
    assert "exit status 3: no paper" in failed[0]["error"]
    assert sum(sample["ok"] for sample in samples if sample["workload"] == "gzip") == 5
    assert "given up after 3 failures" in done.skipped[0]["reason"]
    assert any(event["event"] == "skipped" for event in files.read_lines("events.jsonl"))


def test_a_missing_workload_is_skipped_and_none_at_all_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(plan.PlanError, match="no workload can be run here: gzip is not installed .package gzip."):
        measured(tmp_path, dict(SETTINGS, change="none"))


@pytest.mark.parametrize(("changed", "trouble"), [
    ({"budget": 0}, "budget is 0: it must be from 1 to"), ({"blocks": 0}, "blocks is 0"), ({"sample_seconds": float("nan")}, "sample_seconds is nan"),
    ({"settle_seconds": -1}, "settle_seconds is -1"), ({"placements": []}, "no placement is named"), ({"placements": ["x"]}, "there is no placement 'x'"),
    ({"workloads": ["x"]}, "there is no workload x"),
])
def test_settings_that_cannot_be_are_refused(changed, trouble):
    with pytest.raises((plan.PlanError, PlacementError, workloads.WorkloadError), match=trouble):
        plan.check_settings(dict(SETTINGS, **changed))
