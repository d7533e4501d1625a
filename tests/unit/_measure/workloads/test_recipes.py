# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Recipes on what their tools really printed: the number is the one that the tool's own summary shows. The files in
`recorded` have a tool's whole output; tests/recipes runs the tools.
"""

import json
import pathlib

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import custom, metrics
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import UnreadableError

RECORDED = {
    path.stem: json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((pathlib.Path(__file__).parent / "recorded").glob("*.json"))
}
# What a person reads in each output, in the metric's unit, and half of its last digit. Of fio it is a sum.
SHOWN = """
7z-26.02 1143 0; ab-2.4.71 1670.91 0; fio-3.33 1468 4; go-1.21 1584 0; go-1.23 1862 0; go-1.26 2507 0;
google_benchmark-1.8.3 478635 0.5; google_benchmark-1.9.1 28763008 0.5; google_benchmark-1.9.4 432861 0.5;
hey-0.1.2 1710.5965 0; hey-0.1.3 1604.3704 0; hey-0.1.4 1178.4162 0; hyperfine-1.15 0.0126 0.00005;
hyperfine-1.18 0.0167 0.00005; hyperfine-1.20 0.0292 0.00005; jmh-1.21 282850.318 0.0005;
jmh-1.34 211052.826 0.0005; jmh-1.37 283181.507 0.0005; openssl-3.0.19 1256030.21 0;
openssl-3.0.19-all-sizes 1661967.75 0; pgbench-15 1432.724284 0; pyperf-2.3 2.18e-6 0.005e-6;
pyperf-2.6 2.37e-6 0.005e-6; pyperf-2.9 1.57e-6 0.005e-6; redis_benchmark-7.0.15 12658.23 0;
redis_benchmark-7.0.15-q 11904.76 0; stress_ng-0.15.06 810.98 0; sysbench-1.0.20-cpu 1340.97 0;
sysbench-1.0.20-memory 1977579.10 0; wrk-4.1.0 824.74 0
"""
SHOWN = {name: (float(number), float(half)) for name, number, half in map(str.split, SHOWN.split(";"))}
FURTHER = {
    "ab-2.4.71": {"latency_mean": 2.394, "latency_median": 2, "latency_p99": 10},
    "hyperfine-1.15": {"median": 0.012723348},
    "pgbench-15": {"latency_mean": 1.392},
    # As this tool rounds it.
    "sysbench-1.0.20-memory": {"latency_mean": 0},
    "wrk-4.1.0": {"latency_mean": 10.52, "latency_p99": 112.11},
}


def declared(**entry):
    return custom.declarations([{"argv": ["tool"], **entry}])[0]


def read(name, folder, workers=1, **changed):
    """The metrics of what a tool printed, of so many workers that printed the same."""
    recorded = {**RECORDED[name], **changed}
    for file, text in recorded["files"].items():
        (folder / file).write_text(text, encoding="utf-8")
    about = {"cpus": [0], "exit_status": 0, "wall_seconds": 1.0, "cpu_seconds": 1.0, "cut": False}
    worker = {**about, "output": recorded["output"], "errors": recorded["errors"]}
    workload = declared(recipe=recorded["recipe"])
    return metrics.read(workload, None, [worker] * workers, [str(folder)] * workers)[0]


def test_each_recipe_has_recorded_output():
    assert set(SHOWN) == set(RECORDED)
    assert {one["recipe"] for one in RECORDED.values()} == set(custom.RECIPES)


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_the_number_is_the_one_that_the_tool_shows_and_two_workers_do_twice_as_much(name, tmp_path):
    number, half = SHOWN[name]
    alone, both = (read(name, tmp_path, workers) for workers in (1, 2))
    (first, one), (_first, of_two) = next(iter(alone.items())), next(iter(both.items()))
    assert one["value"] == pytest.approx(number, rel=1e-12, abs=half), first
    assert of_two["value"] == pytest.approx((2 if one["better"] == "higher" else 0.5) * one["value"])
    for further, value in FURTHER.get(name, {}).items():
        assert alone[further]["value"] == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("go-1.26", lambda one: {"output": one["output"] * 2}),
        ("stress_ng-0.15.06", lambda one: {"errors": one["errors"] * 2}),
        ("hyperfine-1.18", lambda one: {"files": doubled(one, "hyperfine.json", "results")}),
        ("jmh-1.37", lambda one: {"files": {"jmh.json": json.dumps(json.loads(one["files"]["jmh.json"]) * 2)}}),
    ],
)
def test_of_several_results_none_is_chosen(name, changed, tmp_path):
    with pytest.raises(UnreadableError, match="2 results, and one is measured: "):
        read(name, tmp_path, **changed(RECORDED[name]))


def doubled(recorded, file, key):
    document = json.loads(recorded["files"][file])
    return {file: json.dumps({**document, key: document[key] * 2})}


@pytest.mark.parametrize(
    ("recipe", "argv", "made"),
    [
        ("fio", ["fio", "--output-format=json+", "job"], ["fio", "--output-format=json+", "job"]),
        ("hyperfine", ["hyperfine", "a"], ["hyperfine", "a", "--export-json", "hyperfine.json"]),
        ("wrk", ["sh", "-c", "wrk --latency URL"], ["sh", "-c", "wrk --latency URL"]),
    ],
)
def test_what_the_reading_needs_is_added_to_the_command(recipe, argv, made):
    workload = declared(recipe=recipe, argv=argv)
    assert (workload["argv"], workload["name"]) == (made, recipe)
