# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of many hosts or runs that are set beside each other, and the changes that other tools print: cases of public
reports, each under its source's name.
"""

import datetime
import html
import json
import re

import night
import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results
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
        assert {of.workload: of.verdict for of in one.workloads} == {"time": "gain", "work": "loss"}
        assert one.recommendation == "by_workload"


@pytest.mark.night(after=1)
@pytest.mark.parametrize("unit", ["ms", "min"])
def test_dynamo_13873_runs_in_different_units_are_not_compared(tmp_path, unit):
    for run, stated, scale in (("before", "us", 1.0), ("after", unit, 0.001)):
        for host in "abcd":
            result_files.save(tmp_path / run, made(host, {"own": own(stated, "lower", scale=scale)}, run))
    settings = {"before": tuple(result_files.result_paths(tmp_path / "before"))}
    build.build(result_files.result_paths(tmp_path / "after"), tmp_path / "after", build.Settings(**settings))
    text = html.unescape((tmp_path / "after" / "compare.html").read_text(encoding="utf-8"))
    assert "own is not compared: rate in us, lower is better" in text and f"rate in {unit}, lower is better" in text
    assert "No host compared the same in both runs." in text


def test_outboxx_32_and_meta_analysis_42_hosts_of_another_unit_or_without_a_workload_do_not_count_there(
    tmp_path,
):
    results = [made(host, {"own": own("us", "lower")}) for host in "abcde"]
    (one,) = classes(tmp_path / "units", [*results, made("f", {"own": own("ns", "lower", scale=1000)})])
    assert one.workloads == [] and list(one.refused[0].declared.values())[1] == ["f"]
    both = {"own": own(), "more": own(share=0.6)}
    (one,) = classes(tmp_path, [*(made(host, both) for host in "abcd"), made("e", {"own": own()})])
    found = {of.workload: (of.n, of.verdict) for of in one.workloads}
    assert found == {"own": (5, "loss"), "more": (4, "loss")}
    assert "e" not in next(of.turned_by for of in one.workloads if of.workload == "more")


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


TIME = {"unit": "ms", "better": "lower", "aggregate": "mean"}
RATE = {"unit": "ops/s", "better": "higher", "aggregate": "sum"}


def measured(metric, before, after, noise=0.002):
    workload = {
        "title": "orders",
        "metrics": {"orders": metric},
        "model": lambda arm, _spot, workers: [before if arm == "smt_on" else after] * len(workers),
    }
    return result_maker.result(workloads={"orders": workload}, names=["one_per_core"], blocks=8, noise=noise)


def reported(directory, document):
    result_files.save(directory, document)
    build.build(result_files.result_paths(directory), directory)
    (of_host,) = json.loads((directory / "results.json").read_text(encoding="utf-8"))["hosts"]
    pages = [(directory / name).read_text(encoding="utf-8") for name in ("index.html", "summary.md")]
    (compared,) = (one for one in of_host["comparisons"] if one["metric"] == "orders")
    return compared, of_host["conclusion"]["sentence"], html.unescape(pages[0]) + re.sub(r"\\(.)", r"\1", pages[1])


@pytest.mark.night(after=2)
@pytest.mark.parametrize(
    ("metric", "before", "after", "change", "word"),
    [
        pytest.param(TIME, 1669.90, 1277.31, -0.235, "better", id="php-version-benchmarks 5"),
        pytest.param(RATE, 5_522_394.0, 258_163.0, -0.953, "worse", id="jsperf.app 12"),
        pytest.param(TIME, 15_348.0, 4022.0, -0.738, "better", id="opensearch project-website 2374"),
        pytest.param(TIME, 4.25, 4.7, 0.106, "worse", id="opensearch project-website 2374, rounded"),
        pytest.param(RATE, 100.0, 87.93, -0.121, "worse", id="fastify benchmarks 38"),
        pytest.param(RATE, 1000.0, 1250.0, 0.25, "better", id="ion-python 281"),
        pytest.param(TIME, 4000.0, 1000.0, -0.75, "better", id="tasty-bench 31"),
    ],
)
def test_a_change_is_that_of_the_metric(tmp_path, metric, before, after, change, word):
    compared, sentence, read = reported(tmp_path, measured(metric, before, after))
    assert compared["change"] == pytest.approx(change, abs=0.002)
    said = re.search(r"by ([+−][\d.]+) % \(([+−][\d.]+) to ([+−][\d.]+) %\), (better|worse)", sentence)
    number, low, high = (float(text.replace("−", "-")) / 100 for text in said.groups()[:3])
    assert number == pytest.approx(change, abs=0.002) and low <= number <= high and said[4] == word
    # Nothing that can be understood in two ways.
    assert not re.search(r"(faster|slower)\b", read)


def test_benchmark_ips_49_and_sightglass_141_two_that_are_equal_and_both_directions(tmp_path):
    found = {}
    for name, values in (("equal", (1000.0, 1000.0)), ("there", (1000.0, 1250.0)), ("back", (1250.0, 1000.0))):
        (tmp_path / name).mkdir()
        found[name] = reported(tmp_path / name, measured(RATE, *values))
    assert [found[name][0]["verdict"] for name in found] == ["equivalent", "gain", "loss"]
    assert not re.search("better|worse", found["equal"][1])
    there, back = found["there"][0]["change"], found["back"][0]["change"]
    assert (1 + there) * (1 + back) == pytest.approx(1, abs=0.005)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_jsperf_app_12_a_rate_that_is_no_number(value):
    document = measured(RATE, 1000.0, 1250.0)
    document["samples"][0]["metrics"]["orders"]["value"] = value
    with pytest.raises(results.ResultError, match=r"metrics\.orders\.value"):
        result_maker.accepted(document)


@pytest.mark.night(after=1)
@pytest.mark.parametrize("value", [0.0, -5.0])
def test_jsperf_app_12_a_rate_without_work_is_compared_with_nothing(tmp_path, value):
    document = measured(RATE, 1000.0, 1250.0)
    document["samples"][0]["metrics"]["orders"]["value"] = value
    compared = reported(tmp_path, document)[0]
    assert (compared["n"], compared["dropped_blocks"]) == (7, 1)
    assert compared["change"] == pytest.approx(0.25, abs=0.005)
    for name in ("index.html", "summary.md", "comparisons.csv", "metrics.prom"):
        assert not re.search(r"\b(inf|nan|infinity)\b", (tmp_path / name).read_text(encoding="utf-8"), re.IGNORECASE)
