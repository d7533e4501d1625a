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
    assert (made["serve"], made["ready"], made["end"]) == (["run-it"], ["true"], ["end-it"]) and made["in_each_arm"]
    made = declared(start=["no-such-server"], ready=["true"])
    assert missing(made, os.environ["PATH"]) == "no-such-server is not installed"


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"name": "No such"}, "'No such' is not a valid name"),
        ({"name": "own\n"}, "is not a valid name"),
        ({"name": "gzip"}, "gzip is the name of a built-in workload"),
        ({"co_runners_on": "x"}, "co_runners_on of own is 'x': it must be one of same, sibling, both"),
        ({"argv": []}, "argv of own is not valid: give 1 to 1000 arguments"),
        ({"argv": "sleep 1"}, r'argv of own is a string: .* such as argv: \[sleep, "1"\]'),
        # What Ansible makes of the strings "sleep 1" and "sh -c 'echo 1,2'".
        ({"argv": ["sh -c 'echo 1", "2'"]}, "argv of own is a string"),
        (metric(pattern="("), "metric throughput of own: its pattern is not a valid regular expression"),
        (metric(pattern="MB"), "its pattern has no group"),
        (metric(name="a b"), "the name must have only lower-case letters"),
        (metric(aggregate="median"), "aggregate one of max, mean, mean_per_job, per_job, per_operation, sum"),
        ({"metrics": [METRIC]}, "two metrics of own have the same name"),
        ({"parameters": {"name": "clients", "values": [0]}}, "1 to 50 values above 0"),
        ({"parameters": {"name": "clients", "values": [math.nan]}}, "1 to 50 values above 0"),
        ({"environment": {f"A{number}": 1 for number in range(101)}}, "environment of own has 101 variables"),
        ({"stop": ["end-it"]}, "own has stop: start, and ready"),
    ],
)
def test_an_invalid_command_is_refused_with_the_allowed_values(changed, error):
    with pytest.raises(WorkloadError, match=error):
        declared(**changed)


def examples():
    """Return the users' own commands in docs/measuring.md."""
    page = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    return [one for block in blocks for one in block.get("smt_eval_custom", [])]


@pytest.mark.parametrize("given", examples(), ids=lambda given: given["name"])
def test_the_examples_in_the_docs_are_valid(given):
    assert custom.declarations([given])[0]["name"] == given["name"]


def test_the_example_of_nexmark_reads_what_its_queries_print(files):
    """What query 5 printed on a machine with two busy CPUs."""
    (play,) = yaml.safe_load((ROOT / "examples" / "nexmark" / "nexmark.yml").read_text(encoding="utf-8"))
    made = custom.declarations(play["vars"]["smt_eval_custom"])
    assert all(one["parameter"]["values"] == [20000, 100000, 500000] and one["server"]["in_each_arm"] for one in made)
    printed = '{"records": 80000, "records_per_second": 10774.411, "cores": 1.9973, "per_core": 5394.571}'
    ready = prepared.PreparedWorkload({**made[-1], "argv": ["echo", printed], "server": None}, files, {}, 0.05, 2)
    found = {name: one["value"] for name, one in ready.sample([[], []], 20000)["metrics"].items()}
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
        (r"(?P<value>[0-9.]+) (?P<unit>[kMG]i?B/s)", "B/s", "higher", "sum"),
        (r"\s(\S+) ns/op", "ns/op", "lower", "per_operation"),
        (r"Mean \+- std dev: (\S+) ms", "ms", "lower", "per_operation"),
        (r"99% in (\S+) secs per request", "secs", "lower", "undeclared"),
        (r"errors/s: (\S+)", None, None, None),
        (r"(\S+) requests/sec in 5 s", None, None, None),
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
        ("", r"tps = (\S+)", "metric is set, and no command that prints it"),
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


@pytest.mark.parametrize(("seconds", "refused"), [([1.0, 1.9], False), ([1.0, 1.05, 1.0], True)])
def test_a_time_that_is_set_is_no_time_of_work(seconds, refused, files, monkeypatch):
    """Of it alone, of two on one CPU, and of it alone once more."""
    times, asked = iter(seconds), []

    def timed(self, workers):
        asked.append(len(workers))
        self._alone = next(times)
        return self._alone

    monkeypatch.setattr(prepared.PreparedWorkload, "_time", timed)
    one = prepared.PreparedWorkload(of_line("true"), files, {}, 0.1, len(HERE))
    if refused:
        with pytest.raises(WorkloadError, match="it runs for a time that is set, or waits, and the time of its run"):
            one.calibrate([[HERE[0]]])
    else:
        assert one.calibrate([[HERE[0]]]) == "command: 1.00 s per sample", "what it takes alone"
    assert asked == [1, 2, 1][: len(seconds)]
