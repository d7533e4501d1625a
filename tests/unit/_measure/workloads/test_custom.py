# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Users' own commands, declared or in one line: they run, or are refused with the reason."""

import math
import os
import pathlib
import re

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import settings
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation.run_directory import RunDirectory
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import command, custom, prepared
from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads.declaration import (
    WorkloadError,
    missing,
)

ROOT = pathlib.Path(__file__).resolve().parents[4]
METRIC = {"name": "throughput", "unit": "MB/s", "better": "higher", "pattern": r"([0-9.]+) MB/s"}
ECHO = {"name": "own", "argv": ["echo", "7.5 MB/s {threads}"], "metric": METRIC}


def declared(**changed):
    return custom.declarations([dict(ECHO, **changed)])[0]


def metric(**changed):
    return {"metric": dict(METRIC, **changed)}


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


HERE = sorted(os.sched_getaffinity(0))


def of_line(line, pattern=None):
    return custom.declarations(command.entries(line, pattern))[0]


def test_without_a_pattern_it_is_the_time_of_a_run():
    made = of_line("xz -9 '/srv/a b'")
    assert (made["name"], made["title"], made["argv"]) == ("command", "xz", ["xz", "-9", "/srv/a b"])
    assert made["metrics"] == [
        {"name": "time", "unit": "s", "better": "lower", "aggregate": "per_job", "clock": "wall_seconds"}
    ]


@pytest.mark.parametrize(
    ("pattern", "unit", "better", "aggregate"),
    [
        (r"Requests/sec: (\S+)", "requests/s", "higher", "sum"),
        (r"Requests per second: +(\S+)", "requests/s", "higher", "sum"),
        (r"events per second: +([0-9.]+)", "events/s", "higher", "sum"),
        (r"([0-9.]+) MB/s", "MB/s", "higher", "sum"),
        (r"(?P<value>[0-9.]+) (?P<unit>[kMG]i?B/s)", "B/s", "higher", "sum"),
        (r"([0-9.]+) GiB/s", "GiB/s", "higher", "sum"),
        (r"tps = (\S+)", "tps", "higher", "sum"),
        (r"IOPS=(\S+)", "IOPS", "higher", "sum"),
        (r"\s(\S+) ns/op", "ns/op", "lower", "per_operation"),
        (r"Mean \+- std dev: (\S+) ms", "ms", "lower", "per_operation"),
        (r"latency average = (\S+) ms", "ms", "lower", "undeclared"),
        (r"99% in (\S+) secs per request", "secs", "lower", "undeclared"),
        (r"errors/s: (\S+)", None, None, None),
        (r"misses per second (\S+)", None, None, None),
        (r"score: (\d+)", None, None, None),
        (r"(\S+) requests/sec in 5 s", None, None, None),
        (r"real\s+(\S+)", None, None, None),
    ],
)
def test_what_a_number_is_by_the_words_of_its_pattern(pattern, unit, better, aggregate):
    if unit is None:
        with pytest.raises(WorkloadError, match="which way its number is better"):
            of_line("true", pattern)
        return
    (made,) = of_line("true", pattern)["metrics"]
    assert (made["unit"], made["better"], made["aggregate"]) == (unit, better, aggregate)


@pytest.mark.parametrize(
    ("line", "pattern", "reason"),
    [
        ("cat a | wc", None, r"the command has '\|', and no shell reads it: put it into sh -c"),
        ("a && b", None, "the command has '&&'"),
        ("echo 'x", None, "the command cannot be split into words: No closing quotation"),
        (" ", None, "the command is empty"),
        ("", r"tps = (\S+)", "metric is set, and no command that prints it"),
        ("true", "tps = (", "its pattern is not a valid regular expression"),
        ("true", "tps", "its pattern has no group"),
    ],
)
def test_what_cannot_be_measured_is_named(line, pattern, reason):
    with pytest.raises(WorkloadError, match=reason):
        custom.declarations(command.entries(line, pattern))


def test_a_command_is_measured_alone_unless_others_are_named():
    def names(**given):
        return [one["name"] for one in settings.chosen({"workloads": None, "custom": [], **given})]

    assert names() == ["gzip", "sysbench_cpu"]
    assert names(command="true") == ["command"]
    assert names(command="true", workloads=["gzip"]) == ["gzip", "command"]
    assert names(workloads=[]) == []


@pytest.mark.parametrize(
    ("seconds", "refused"),
    [
        # Of it alone, of two on one CPU, and of it alone once more.
        ([1.0, 1.9], False),
        ([5.0, 2.0, 1.0], False),
        ([1.0, 1.05, 1.0], True),
        ([2.0, 1.2, 1.1], True),
        # Two take too long: that is no waiting.
        ([1.0, WorkloadError("own did not end within 60 s")], False),
    ],
)
def test_a_time_that_is_set_is_no_time_of_work(seconds, refused, files, monkeypatch):
    times, asked = iter(seconds), []

    def timed(self, workers):
        asked.append(len(workers))
        taken = next(times)
        if isinstance(taken, WorkloadError):
            raise taken
        self._alone = taken
        return taken

    monkeypatch.setattr(prepared.PreparedWorkload, "_time", timed)
    one = prepared.PreparedWorkload(of_line("true"), files, {}, 0.1, len(HERE))
    if refused:
        with pytest.raises(
            WorkloadError, match="it runs for a time that is set, or waits, and the time of its run says"
        ):
            one.calibrate([[HERE[0]]])
    else:
        # A sample takes what it takes alone.
        assert one.calibrate([[HERE[0]]]) == "command: 1.00 s per sample"
    assert asked == [1, 2, 1][: len(seconds)] and next(times, None) is None


@pytest.mark.parametrize(
    ("line", "pattern", "cpus"),
    [("sh -c 'sleep 0.1; echo 5 ops/s'", r"(\d+) ops/s", HERE[:1]), ("sleep 0.1", None, [])],
)
def test_a_number_of_its_own_or_a_worker_without_a_cpu_needs_no_such_proof(line, pattern, cpus, files):
    assert prepared.PreparedWorkload(of_line(line, pattern), files, {}, 0.1, len(HERE)).calibrate([cpus])
