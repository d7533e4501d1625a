# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of the changes that other tools print, each tried on what a report of ours says of the same raw
numbers. A test is named after its source.
"""

from __future__ import annotations

import html
import json
import re

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build

TIME = {"unit": "ms", "better": "lower", "aggregate": "mean"}
RATE = {"unit": "ops/s", "better": "higher", "aggregate": "sum"}


def made(metric, before, after, noise=0.002):
    """A result of these values of each worker with SMT on and with SMT off, on as many workers."""
    workload = {
        "title": "orders",
        "metrics": {"orders": metric},
        "model": lambda arm, _spot, workers: [before if arm == "smt_on" else after] * len(workers),
    }
    return result_maker.result(workloads={"orders": workload}, names=["one_per_core"], blocks=8, noise=noise)


def reported(directory, document):
    """The comparison, the sentence, and all that a person reads."""
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
    compared, sentence, read = reported(tmp_path, made(metric, before, after))
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
        found[name] = reported(tmp_path / name, made(RATE, *values))
    assert [found[name][0]["verdict"] for name in found] == ["equivalent", "gain", "loss"]
    assert not re.search("better|worse", found["equal"][1])
    there, back = found["there"][0]["change"], found["back"][0]["change"]
    assert (1 + there) * (1 + back) == pytest.approx(1, abs=0.005)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_jsperf_app_12_a_rate_that_is_no_number(value):
    document = made(RATE, 1000.0, 1250.0)
    document["samples"][0]["metrics"]["orders"]["value"] = value
    with pytest.raises(results.ResultError, match=r"metrics\.orders\.value"):
        result_maker.accepted(document)


@pytest.mark.night(after=1)
@pytest.mark.parametrize("value", [0.0, -5.0])
def test_jsperf_app_12_a_rate_without_work_is_compared_with_nothing(tmp_path, value):
    document = made(RATE, 1000.0, 1250.0)
    document["samples"][0]["metrics"]["orders"]["value"] = value
    compared = reported(tmp_path, document)[0]
    assert (compared["n"], compared["dropped_blocks"]) == (7, 1)
    assert compared["change"] == pytest.approx(0.25, abs=0.005)
    for name in ("index.html", "summary.md", "comparisons.csv", "metrics.prom"):
        assert not re.search(r"\b(inf|nan|infinity)\b", (tmp_path / name).read_text(encoding="utf-8"), re.IGNORECASE)
