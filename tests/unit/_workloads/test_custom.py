# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users' own commands: declarations that run, or are refused with the reason."""

from __future__ import annotations

import os
import pathlib
import re

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.run_directory import RunDirectory
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import custom, prepared
from ansible_collections.threadwise.smt.plugins.module_utils._workloads.declaration import WorkloadError, missing

ROOT = pathlib.Path(__file__).resolve().parents[3]
METRIC = {"name": "throughput", "unit": "MB/s", "better": "higher", "pattern": r"([0-9.]+) MB/s"}
ECHO = {"name": "own", "argv": ["echo", "7.5 MB/s {threads}"], "metric": METRIC}


def declared(**changed):
    return custom.declarations([dict(ECHO, **changed)])[0]


def metric(**changed):
    return {"metric": dict(METRIC, **changed)}


def test_a_users_own_command_is_measured_like_a_built_in_workload(tmp_path):
    files = RunDirectory(str(tmp_path / "runs"), "r")
    files.create()
    taken = prepared.PreparedWorkload(declared(), files, {}, 0.05, 2).sample([[], []], None)
    assert taken["metrics"]["throughput"] == {"value": 15.0, "unit": "MB/s", "better": "higher"}
    assert taken["workers"][0]["output"] == "7.5 MB/s 2\n"


def test_missing_keys_have_default_values():
    made = declared()
    assert (made["title"], made["multithreaded"], made["timeout"], made["metrics"][0]["aggregate"]) == (
        "own",
        False,
        60,
        "sum",
    )
    assert declared(**metric(better="lower"))["metrics"][0]["aggregate"] == "undeclared"
    # Each worker does the whole job, so the time per job describes the placement.
    by_the_clock = metric(better="lower", pattern=None, clock="wall_seconds")
    assert declared(**by_the_clock)["metrics"][0]["aggregate"] == "per_job"
    by_cpu_time = {**by_the_clock, "metric": {**by_the_clock["metric"], "clock": "cpu_seconds"}}
    for given in ({}, {"aggregate": "per_job"}, {"aggregate": "mean_per_job"}):
        of_a_job = {**by_cpu_time, "metric": {**by_cpu_time["metric"], **given}}
        assert declared(**of_a_job)["metrics"][0]["aggregate"] == "mean_per_job"
    assert declared(multithreaded=True, **by_the_clock)["metrics"][0]["aggregate"] == "max"
    assert declared(**metric(pattern=None, json=["a", "0"]))["metrics"][0]["json"] == ["a", "0"]
    assert declared(**metric(pattern=None, clock="wall_seconds"))["metrics"][0]["clock"] == "wall_seconds"


def test_parameters_are_values_in_rising_order_and_written_as_they_are_read():
    made = declared(argv=["echo", "{parameter} MB/s"], parameters={"name": "clients", "values": [16.0, 1, 2.5, 1.0]})
    assert made["parameter"] == {"name": "clients", "unit": "clients", "values": [1, 2.5, 16]}
    assert [str(value) for value in made["parameter"]["values"]] == ["1", "2.5", "16"]


def test_co_runners_and_niceness_are_declared_and_none_without():
    keys = ("nice", "co_runners", "co_runners_on", "co_runners_nice")
    assert [declared()[key] for key in keys] == [0, 0, "same", 0]
    given = [-5, 2, "sibling", 10]
    assert [declared(**dict(zip(keys, given)))[key] for key in keys] == given


def test_hooks_make_a_server_that_is_started_in_each_arm():
    made = declared(start=["run-it"], ready=["true"], stop=["end-it"])["server"]
    assert (made["serve"], made["ready"], made["end"], made["in_each_arm"], made["user"]) == (
        ["run-it"],
        ["true"],
        ["end-it"],
        True,
        None,
    )
    assert (
        missing(declared(start=["no-such-server"], ready=["true"]), os.environ["PATH"])
        == "no-such-server is not installed"
    )


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"name": "No such"}, "'No such' is not a valid name"),
        ({"name": ""}, "is not a valid name"),
        ({"name": "own\n"}, "is not a valid name"),
        ({"name": "gzip"}, "gzip is the name of a built-in workload"),
        ({"nice": -21}, "nice of own is -21: it must be from -20 to 19"),
        ({"co_runners": 65}, "co_runners of own is 65: it must be from 0 to 64"),
        ({"co_runners_nice": 20}, "co_runners_nice of own is 20: it must be from -20 to 19"),
        ({"co_runners_on": "x"}, "co_runners_on of own is 'x': it must be one of same, sibling, both"),
        ({"argv": []}, "argv of own is not valid: give 1 to 1000 arguments"),
        ({"argv": [""]}, "argv of own"),
        ({"argv": ["a\0b"]}, "argv of own"),
        ({"argv": ["x" * 5000]}, "argv of own"),
        ({"argv": ["x"] * 1001}, "argv of own"),
        ({"argv": "sleep 1"}, r'argv of own is a string: .* such as argv: \[sleep, "1"\]'),
        # What Ansible makes of the strings "sleep 1" and "sh -c 'echo 1,2'".
        ({"argv": ["sleep 1"]}, "argv of own is a string"),
        ({"argv": ["sh -c 'echo 1", "2'"]}, "argv of own is a string"),
        ({"timeout": -1}, "timeout of own is -1: it must be from 1 to 86400"),
        ({"timeout": 10**9}, "timeout of own"),
        (metric(pattern="("), "metric throughput of own: its pattern is not a valid regular expression"),
        (metric(pattern="MB"), "its pattern has no group"),
        (metric(pattern="(a){9999999999}"), "not a valid regular expression"),
        (metric(pattern=None), "give exactly one of pattern, json, clock"),
        (metric(json=["a"]), "give exactly one of pattern, json, clock"),
        (metric(name="a b"), "the name must have only lower-case letters"),
        (metric(better="best"), "better must be higher or lower"),
        (metric(aggregate="median"), "aggregate one of max, mean, mean_per_job, per_job, per_operation, sum"),
        (metric(pattern=None, clock="sun"), "clock must be one of wall_seconds, cpu_seconds"),
        ({"metrics": [METRIC]}, "two metrics of own have the same name"),
        ({"placements": ["singel"]}, "placements of own has 'singel': choose from single, "),
        ({"parameters": {"name": "clients", "values": []}}, "parameters of own must have 1 to 50 values above 0"),
        ({"parameters": {"name": "clients", "values": [0]}}, "parameters of own must have 1 to 50 values above 0"),
        (
            {"parameters": {"name": "clients", "values": [float("inf")]}},
            "parameters of own must have 1 to 50 values above 0",
        ),
        (
            {"parameters": {"name": "clients", "values": [float("nan")]}},
            "parameters of own must have 1 to 50 values above 0",
        ),
        ({"parameters": {"name": "clients", "values": [1] * 51}}, "parameters of own must have 1 to 50 values above 0"),
        ({"parameters": {"name": "No Name", "values": [1]}}, "the name of the parameters of own must have only"),
        ({"environment": {"A B": "1"}}, "environment of own has the variable 'A B'"),
        ({"environment": {"A": "x" * 4001}}, "environment of own has the variable 'A'"),
        ({"environment": {f"A{number}": 1 for number in range(101)}}, "environment of own has 101 variables"),
        (
            {"start": ["run-it"]},
            "own has start: start, and ready, which succeeds when what was started is ready, need each other",
        ),
        ({"stop": ["end-it"]}, "own has stop: start, and ready"),
        ({"ready": ["true"], "stop": ["end-it"]}, "own has ready and stop: start, and ready"),
        ({"start": ["run it all"], "ready": ["true"]}, "start of own is a string"),
        ({"start": ["run-it"], "ready": ["a\0b"]}, "ready of own is not valid"),
    ],
)
def test_an_invalid_command_is_refused_with_the_allowed_values(changed, error):
    with pytest.raises(WorkloadError, match=error):
        declared(**changed)


def test_the_path_of_a_program_may_have_spaces(tmp_path):
    program = tmp_path / "my tool"
    program.touch()
    assert declared(argv=[str(program)])["argv"] == [str(program)]


def test_duplicate_names_and_too_many_commands_are_refused():
    with pytest.raises(WorkloadError, match="custom uses the name own more than once"):
        custom.declarations([ECHO, ECHO])
    with pytest.raises(WorkloadError, match="custom has 101 commands"):
        custom.declarations([ECHO] * 101)


def examples():
    """Return the users' own commands in docs/measuring.md."""
    page = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    return [one for block in blocks for one in block.get("smt_eval_custom", [])]


@pytest.mark.parametrize("given", examples(), ids=lambda given: given["name"])
def test_the_examples_in_the_docs_are_valid(given):
    assert custom.declarations([given])[0]["name"] == given["name"]


def test_there_is_an_example_for_fio_and_for_a_server():
    assert {"fio_randread", "http_files"} <= {given["name"] for given in examples()}


def test_the_example_of_nexmark_reads_what_its_queries_print(tmp_path):
    """What query 5 printed on a machine with two busy CPUs."""
    (play,) = yaml.safe_load((ROOT / "examples" / "nexmark" / "nexmark.yml").read_text(encoding="utf-8"))
    given = play["vars"]["smt_eval_custom"]
    assert [one["name"] for one in given] == ["nexmark_q0", "nexmark_q1", "nexmark_q2", "nexmark_q5"]
    printed = (
        '{"records": 80000, "seconds": 7.425, "records_per_second": 10774.411, "cores": 1.9973, "per_core": 5394.571}'
    )
    files = RunDirectory(str(tmp_path / "runs"), "r")
    files.create()
    for made in custom.declarations(given):
        assert made["parameter"]["values"] == [20000, 100000, 500000] and made["server"]["in_each_arm"]
        echo = {**made, "argv": ["echo", printed], "server": None}
        taken = prepared.PreparedWorkload(echo, files, {}, 0.05, 2).sample([[], []], 20000)
        assert {name: one["value"] for name, one in taken["metrics"].items()} == {
            "throughput": 10774.411,
            "throughput_per_core": 5394.571,
            "used_cores": 1.9973,
        }


def test_the_example_for_fio_measures(tmp_path):
    given = next(one for one in examples() if one["name"] == "fio_randread")
    absent = missing(custom.declarations([given])[0], os.environ["PATH"])
    if absent:
        pytest.skip(absent)
    argv = [
        argument.replace("/srv/fio.data", str(tmp_path / "data")).replace("--size=1g", "--size=4m")
        for argument in given["argv"]
    ]
    files = RunDirectory(str(tmp_path / "runs"), "r")
    files.create()
    taken = prepared.PreparedWorkload(custom.declarations([dict(given, argv=argv)])[0], files, {}, 0.05, 2).sample(
        [[], []], None
    )
    assert set(taken["metrics"]) == {"throughput", "latency_median", "latency_p99"}
    assert all(metric["value"] > 0 for metric in taken["metrics"].values())
