# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every workload has measured on the guest, in each arm and at each value of its parameter,
and nothing of it is left.
"""

from __future__ import annotations

import os
import pathlib

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.built_in.load_levels import LEVELS
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.catalogue import BUILT_IN
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import parts
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files

RESULT = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "results" / "converge" / "smt-workloads.json"

# The guest reserves no huge pages.
RESERVED = "random_access_reserved"


@pytest.fixture(name="result", scope="module")
def result_of_converge():
    """The guest's result, as the schema lets it through."""
    return parts.plain(result_files.load(RESULT))


def good(result, name):
    return [sample for sample in result["samples"] if sample["workload"] == name and sample["ok"]]


@pytest.mark.parametrize("name", sorted({*BUILT_IN, "fio_write"} - {RESERVED}))
def test_each_workload_measured_in_each_arm(result, name):
    skipped = [skip for skip in result["skipped"] if skip["workload"] == name]
    samples = good(result, name)
    assert {sample["arm"] for sample in samples} == {"smt_on", "smt_off"}, skipped
    assert [sample["error"] for sample in result["samples"] if sample["workload"] == name and not sample["ok"]] == []
    workload = BUILT_IN.get(name)
    if workload:
        assert all(set(sample["metrics"]) == {metric["name"] for metric in workload["metrics"]} for sample in samples)


@pytest.mark.parametrize(
    ("name", "values"),
    [("load_levels", LEVELS), ("oltp", [2, 4, 8, 12, 16, 32]), ("nginx", [4, 8, 16, 32]), ("jvm", [4, 8, 16, 32])],
)
def test_parameter_values_are_the_same_on_and_off(result, name, values):
    assert next(one for one in result["plan"]["workloads"] if one["name"] == name)["parameter"]["values"] == values
    for arm in ("smt_on", "smt_off"):
        assert sorted({sample["parameter"] for sample in good(result, name) if sample["arm"] == arm}) == values


def test_cores_are_known_by_their_online_threads(result):
    on, off = (next(sample for sample in good(result, "gzip") if sample["arm"] == arm) for arm in ("smt_on", "smt_off"))
    assert set(on["telemetry"]["core_usage"]) == {"0,1", "2,3", "4,5", "6,7"}
    assert set(off["telemetry"]["core_usage"]) == {"0", "2", "4", "6"}


def test_why_there_are_no_counters_is_said(result):
    assert all(sample["telemetry"]["perf"]["reason"] for sample in good(result, "gzip"))


def test_what_does_not_fit_into_memory_is_left_out_with_the_reason(result):
    left_out = [(skip["placement"], skip["arm"]) for skip in result["skipped"] if skip["workload"] == "stream"]
    assert left_out == [("all_threads", "smt_on")]
    assert "8 workers of stream need 1600 MB of memory" in next(
        skip["reason"] for skip in result["skipped"] if skip["workload"] == "stream"
    )


def test_huge_pages_that_nobody_reserves_are_named(result):
    reasons = {skip["reason"] for skip in result["skipped"] if skip["workload"] == RESERVED}
    assert any("needs 128 huge pages of 2048 kB for 1 worker, and 0 are reserved" in reason for reason in reasons)
    assert good(result, RESERVED) == []


def test_what_hangs_is_named_with_its_last_words(result):
    assert [skip["reason"] for skip in result["skipped"] if skip["workload"] == "hangs"] == [
        "sh did not end within 3 s and was ended: waiting for nothing"
    ]


def test_the_host_is_as_it_was_and_nothing_is_left(host, result):
    assert result["outcome"] == "completed" and result["restored"]["ok"]
    assert result["plan"]["stopped"] == "budget"
    assert host.run("ls /var/lib/threadwise-smt/runs").stdout == ""
    assert host.run("pgrep -f '[t]hreadwise-smt|[s]leep 1000'").stdout == ""


def test_who_runs_the_database_cannot_look_at_runs(host):
    assert host.run("runuser -u postgres -- ls /var/lib/threadwise-smt/runs").rc != 0
