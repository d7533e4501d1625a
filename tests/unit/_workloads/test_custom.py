# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users' own commands: declarations that run, or are refused with the reason."""

from __future__ import annotations

import functools
import math
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
    assert (made["title"], made["multithreaded"], made["timeout"]) == ("own", False, 60)
    keys = ("nice", "co_runners", "co_runners_on", "co_runners_nice")
    assert [made[key] for key in keys] == [0, 0, "same", 0]
    given = [-5, 2, "sibling", 10]
    assert [declared(**dict(zip(keys, given)))[key] for key in keys] == given
    assert declared(**metric(pattern=None, json=["a", "0"]))["metrics"][0]["json"] == ["a", "0"]


CLOCK = {"better": "lower", "pattern": None, "clock": "wall_seconds"}
CPU_CLOCK = {**CLOCK, "clock": "cpu_seconds"}


@pytest.mark.parametrize(
    ("changed", "about", "aggregate"),
    [
        ({}, {}, "sum"),
        ({"better": "lower"}, {}, "undeclared"),
        # Each worker does the whole job, so the time per job describes the placement.
        (CLOCK, {}, "per_job"),
        *(({**CPU_CLOCK, **given}, {}, "mean_per_job") for given in ({}, {"aggregate": "per_job"})),
        (CLOCK, {"multithreaded": True}, "max"),
    ],
)
def test_how_the_numbers_of_workers_are_combined(changed, about, aggregate):
    assert declared(**about, **metric(**changed))["metrics"][0]["aggregate"] == aggregate


def test_parameters_are_values_in_rising_order_and_written_as_they_are_read():
    made = declared(argv=["echo", "{parameter} MB/s"], parameters={"name": "clients", "values": [16.0, 1, 2.5, 1.0]})
    assert made["parameter"] == {"name": "clients", "unit": "clients", "values": [1, 2.5, 16]}
    assert [str(value) for value in made["parameter"]["values"]] == ["1", "2.5", "16"]


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
        ({"name": "own\n"}, "is not a valid name"),
        ({"name": "gzip"}, "gzip is the name of a built-in workload"),
        ({"nice": -21}, "nice of own is -21: it must be from -20 to 19"),
        ({"co_runners": 65}, "co_runners of own is 65: it must be from 0 to 64"),
        ({"co_runners_nice": 20}, "co_runners_nice of own is 20: it must be from -20 to 19"),
        ({"co_runners_on": "x"}, "co_runners_on of own is 'x': it must be one of same, sibling, both"),
        ({"argv": []}, "argv of own is not valid: give 1 to 1000 arguments"),
        ({"argv": ["a\0b"]}, "argv of own"),
        ({"argv": ["x"] * 1001}, "argv of own"),
        ({"argv": "sleep 1"}, r'argv of own is a string: .* such as argv: \[sleep, "1"\]'),
        # What Ansible makes of the strings "sleep 1" and "sh -c 'echo 1,2'".
        ({"argv": ["sleep 1"]}, "argv of own is a string"),
        ({"argv": ["sh -c 'echo 1", "2'"]}, "argv of own is a string"),
        ({"timeout": -1}, "timeout of own is -1: it must be from 1 to 86400"),
        (metric(pattern="("), "metric throughput of own: its pattern is not a valid regular expression"),
        (metric(pattern="MB"), "its pattern has no group"),
        (metric(pattern=None), "give exactly one of pattern, json, clock"),
        (metric(name="a b"), "the name must have only lower-case letters"),
        (metric(better="best"), "better must be higher or lower"),
        (metric(aggregate="median"), "aggregate one of max, mean, mean_per_job, per_job, per_operation, sum"),
        (metric(pattern=None, clock="sun"), "clock must be one of wall_seconds, cpu_seconds"),
        ({"metrics": [METRIC]}, "two metrics of own have the same name"),
        ({"placements": ["singel"]}, "placements of own has 'singel': choose from single, "),
        *(
            ({"parameters": {"name": "clients", "values": values}}, "1 to 50 values above 0")
            for values in ([], [0], [math.inf], [math.nan], [1] * 51)
        ),
        ({"parameters": {"name": "No Name", "values": [1]}}, "the name of the parameters of own must have only"),
        ({"environment": {"A B": "1"}}, "environment of own has the variable 'A B'"),
        ({"environment": {f"A{number}": 1 for number in range(101)}}, "environment of own has 101 variables"),
        ({"start": ["run-it"]}, "own has start: start, and ready, "),
        ({"stop": ["end-it"]}, "own has stop: start, and ready"),
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


@pytest.mark.parametrize(("count", "error"), [(2, "the name own more than once"), (101, "custom has 101 commands")])
def test_duplicate_names_and_too_many_commands_are_refused(count, error):
    with pytest.raises(WorkloadError, match=error):
        custom.declarations([ECHO] * count)


def examples():
    """Return the users' own commands in docs/measuring.md."""
    page = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    return [one for block in blocks for one in block.get("smt_eval_custom", [])]


@pytest.mark.parametrize("given", examples(), ids=lambda given: given["name"])
def test_the_examples_in_the_docs_are_valid(given):
    assert custom.declarations([given])[0]["name"] == given["name"]


def taken(given, tmp_path, parameter=None, **changed):
    """The metrics of one sample of a declaration."""
    files = RunDirectory(str(tmp_path / "runs"), "r")
    files.create()
    sample = prepared.PreparedWorkload({**given, **changed}, files, {}, 0.05, 2).sample([[], []], parameter)
    return {name: one["value"] for name, one in sample["metrics"].items()}


def test_the_example_of_nexmark_reads_what_its_queries_print(tmp_path):
    """What query 5 printed on a machine with two busy CPUs."""
    (play,) = yaml.safe_load((ROOT / "examples" / "nexmark" / "nexmark.yml").read_text(encoding="utf-8"))
    made = custom.declarations(play["vars"]["smt_eval_custom"])
    assert [one["name"] for one in made] == ["nexmark_q0", "nexmark_q1", "nexmark_q2", "nexmark_q5"]
    assert all(one["parameter"]["values"] == [20000, 100000, 500000] and one["server"]["in_each_arm"] for one in made)
    printed = (
        '{"records": 80000, "seconds": 7.425, "records_per_second": 10774.411, "cores": 1.9973, "per_core": 5394.571}'
    )
    found = taken(made[-1], tmp_path, 20000, argv=["echo", printed], server=None)
    assert found == {"throughput": 10774.411, "throughput_per_core": 5394.571, "used_cores": 1.9973}


def test_the_example_for_fio_measures(tmp_path):
    (given,) = [one for one in examples() if one["name"] == "fio_randread"]
    (made,) = custom.declarations([given])
    if absent := missing(made, os.environ["PATH"]):
        pytest.skip(absent)
    small = {"/srv/fio.data": str(tmp_path / "data"), "--size=1g": "--size=4m"}
    argv = [functools.reduce(lambda text, pair: text.replace(*pair), small.items(), one) for one in made["argv"]]
    found = taken(made, tmp_path, argv=argv)
    assert set(found) == {"throughput", "latency_median", "latency_p99"} and min(found.values()) > 0
