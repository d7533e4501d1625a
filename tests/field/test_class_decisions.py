# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of many hosts or runs that are set beside each other: cases of public reports about other tools,
each under its source's name.
"""

from __future__ import annotations

import datetime
import html

import night
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._keep.deciding import decisions
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from result_maker import accepted

NOW = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
ORDERS = [("time", "work"), ("work", "time")]


def own(unit="1/s", better="higher", share=0.53, scale=1.0):
    """A workload of one's own, whose number falls by 6 % with SMT off: the sum of rates, or the slowest time."""
    metrics = {"rate": {"unit": unit, "better": better, "aggregate": {"higher": "sum", "lower": "max"}[better]}}
    workload = {**result_maker.GZIP, "rate": 100.0 * scale, "share": share, "metrics": metrics, "title": "own command"}
    if better == "higher":
        return workload
    times = {"smt_on": 200.0 * share * scale, "smt_off": 100.0 * scale}
    return {**workload, "model": lambda arm, _spot, placed: [times[arm]] * len(placed)}


def made(host, workloads, run="now", **options):
    return result_maker.result(
        host=host, run=run, blocks=6, shape=(1, 2, 2), seed=sum(map(ord, host + run)), workloads=workloads, **options
    )


def classes(directory, results, **settings):
    for one in results:
        result_files.save(directory, one)
    return build.build(result_files.result_paths(directory), directory, build.Settings(**settings)).classes


def test_github_action_benchmark_365_and_ion_python_281_each_workload_of_a_suite_has_its_own_direction(tmp_path):
    """A time and a rate that both fall by as much: one is a gain, the other a loss, whichever of them comes first."""
    for number, order in enumerate(ORDERS[: night.number(1, 2)]):
        workloads = {name: own(better={"time": "lower", "work": "higher"}[name]) for name in order}
        (one,) = classes(tmp_path / str(number), [made(host, workloads) for host in "abcde"])
        assert {of["workload"]: of["verdict"] for of in one["workloads"]} == {"time": "gain", "work": "loss"}
        assert one["recommendation"] == "by_workload"


@pytest.mark.night(after=1)
@pytest.mark.parametrize("unit", ["ms", "min"])
def test_dynamo_13873_runs_in_different_units_are_not_compared(tmp_path, unit):
    """The same numbers of another unit, or others of it, look like a change of the machine."""
    for run, stated, scale in (("before", "us", 1.0), ("after", unit, 0.001)):
        for host in "abcd":
            result_files.save(tmp_path / run, made(host, {"own": own(stated, "lower", scale=scale)}, run))
    settings = {"before": tuple(result_files.result_paths(tmp_path / "before"))}
    build.build(result_files.result_paths(tmp_path / "after"), tmp_path / "after", build.Settings(**settings))
    text = html.unescape((tmp_path / "after" / "compare.html").read_text(encoding="utf-8"))
    assert "own is not compared: rate in us, lower is better" in text and f"rate in {unit}, lower is better" in text
    assert "No host compared the same in both runs." in text


def test_outboxx_32_a_host_that_states_another_unit_does_not_count_with_the_others(tmp_path):
    results = [made(host, {"own": own("us", "lower")}) for host in "abcde"]
    (one,) = classes(tmp_path, [*results, made("f", {"own": own("ns", "lower", scale=1000)})])
    assert one["workloads"] == [] and one["refused"][0]["declared"][1]["hosts"] == ["f"]


def test_meta_analysis_42_a_host_that_lacks_a_workload_is_left_out_of_the_others_alone(tmp_path):
    both = {"own": own(), "more": own(share=0.6)}
    (one,) = classes(tmp_path, [*(made(host, both) for host in "abcd"), made("e", {"own": own()})])
    found = {of["workload"]: (of["n"], of["verdict"]) for of in one["workloads"]}
    assert found == {"own": (5, "loss"), "more": (4, "loss")}
    assert "e" not in next(of["turned_by"] for of in one["workloads"] if of["workload"] == "more")


def test_medsci_skills_64_what_is_said_without_a_host_is_judged_anew():
    """Five hosts of which one is unlike the others: without that one they say something else,
    without another one they do not.
    """
    results = [made(host, {"own": own(share=0.4995)}, noise=0.002) for host in "abcd"]
    results.append(made("odd", {"own": own(share=0.56)}, noise=0.002))
    said = [decisions.conclude(accepted(one), NOW) for one in results]
    (found,) = decisions.decisions(said, NOW).values()
    assert found["decision"] is None and "odd" in found["sentence"]
    (others,) = decisions.decisions(said[:4], NOW).values()
    # Performance is equal, and the kernel calls these hosts vulnerable with SMT on.
    assert others["decision"] == "disabled"
