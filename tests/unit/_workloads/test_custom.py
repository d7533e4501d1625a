# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the user's own: made declarations that run, or refused with the reason."""

from __future__ import annotations

import os
import pathlib
import re

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark.run_directory import RunDirectory
from ansible_collections.threadwise.smt.plugins.module_utils._workloads import built_in, custom, prepared

ROOT = pathlib.Path(__file__).resolve().parents[3]
METRIC = {"name": "throughput", "unit": "MB/s", "better": "higher", "pattern": r"([0-9.]+) MB/s"}
ECHO = {"name": "own", "argv": ["echo", "7.5 MB/s {threads}"], "metric": METRIC}


def declared(**changed):
    return custom.declarations([dict(ECHO, **changed)])[0]


def metric(**changed):
    return {"metric": dict(METRIC, **changed)}


def test_a_command_of_ones_own_is_measured_like_any_other(tmp_path):
    files = RunDirectory(str(tmp_path / "runs"), "r")
    files.create()
    taken = prepared.Ready(declared(), files, {}, 0.05, 2).sample([[], []], None)
    assert taken["metrics"]["throughput"] == {"value": 15.0, "unit": "MB/s", "better": "higher"}
    assert taken["workers"][0]["output"] == "7.5 MB/s 2\n"


def test_what_is_not_said_is_plain():
    made = declared()
    assert (made["title"], made["together"], made["timeout"], made["metric"]["aggregate"]) == ("own", False, 60, "sum")
    assert declared(**metric(better="lower"))["metric"]["aggregate"] == "max"
    # Each worker does the whole job: what it takes by job tells of the placement.
    by_the_clock = metric(better="lower", pattern=None, clock="wall_seconds")
    assert declared(**by_the_clock)["metric"]["aggregate"] == "per_job"
    assert declared(together=True, **by_the_clock)["metric"]["aggregate"] == "max"
    assert declared(**metric(pattern=None, json=["a", "0"]))["metric"]["json"] == ["a", "0"]
    assert declared(**metric(pattern=None, clock="wall_seconds"))["metric"]["clock"] == "wall_seconds"


@pytest.mark.parametrize(
    ("changed", "trouble"),
    [
        ({"name": "No such"}, "'No such' cannot be a name"),
        ({"name": ""}, "cannot be a name"),
        ({"name": "own\n"}, "cannot be a name"),
        ({"name": "gzip"}, "gzip is the name of a built-in workload"),
        ({"argv": []}, "argv of own: from 1 to 1000 words"),
        ({"argv": [""]}, "argv of own"),
        ({"argv": ["a\0b"]}, "argv of own"),
        ({"argv": ["x" * 5000]}, "argv of own"),
        ({"argv": ["x"] * 1001}, "argv of own"),
        ({"timeout": -1}, "timeout of own is -1: it must be from 1 to 86400"),
        ({"timeout": 10**9}, "timeout of own"),
        (metric(pattern="("), "metric throughput of own: its pattern is no regular expression"),
        (metric(pattern="MB"), "its pattern has no group"),
        (metric(pattern="(a){9999999999}"), "no regular expression"),
        (metric(pattern=None), "name one of pattern, json, clock"),
        (metric(json=["a"]), "name one of pattern, json, clock"),
        (metric(name="a b"), "a name is lower-case letters"),
        (metric(better="best"), "better is higher or lower"),
        (metric(aggregate="median"), "aggregate one of max, mean, per_job, sum"),
        (metric(pattern=None, clock="sun"), "clock is one of wall_seconds, cpu_seconds"),
        ({"metrics": [METRIC]}, "own has two metrics of one name"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_it_may_be(changed, trouble):
    with pytest.raises(built_in.WorkloadError, match=trouble):
        declared(**changed)


def test_two_commands_of_one_name_and_too_many_are_refused():
    with pytest.raises(built_in.WorkloadError, match="custom names own more than once"):
        custom.declarations([ECHO, ECHO])
    with pytest.raises(built_in.WorkloadError, match="custom names 101 commands"):
        custom.declarations([ECHO] * 101)


def examples():
    """The commands of one's own that docs/measuring.md shows."""
    page = (ROOT / "docs" / "measuring.md").read_text(encoding="utf-8")
    blocks = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    return [one for block in blocks for one in block.get("smt_eval_custom", [])]


@pytest.mark.parametrize("given", examples(), ids=lambda given: given["name"])
def test_the_examples_in_the_docs_are_taken(given):
    assert custom.declarations([given])[0]["name"] == given["name"]


def test_there_is_an_example_for_fio_and_for_a_stream_processor():
    assert {"fio_randread", "nexmark_q5"} <= {given["name"] for given in examples()}


def test_the_example_for_nexmark_reads_what_nexmark_prints(tmp_path):
    """The row is one that Nexmark's README shows: query, events, cores, time, cores x time, throughput by core."""
    given = next(one for one in examples() if one["name"] == "nexmark_q5")
    row = "|q5                 |100,000,000        |10.8               |418.242            |4516.930           |22.14 K/s          |"
    files = RunDirectory(str(tmp_path / "runs"), "r")
    files.create()
    taken = prepared.Ready(custom.declarations([dict(given, argv=["echo", row])])[0], files, {}, 0.05, 2).sample([[]], None)
    assert taken["metrics"] == {"time": {"value": 418.242, "unit": "s", "better": "lower"}}


def test_the_example_for_fio_measures(tmp_path):
    given = next(one for one in examples() if one["name"] == "fio_randread")
    absent = built_in.missing(custom.declarations([given])[0], os.environ["PATH"])
    if absent:
        pytest.skip(absent)
    argv = [word.replace("/srv/fio.data", str(tmp_path / "data")).replace("--size=1g", "--size=4m") for word in given["argv"]]
    files = RunDirectory(str(tmp_path / "runs"), "r")
    files.create()
    taken = prepared.Ready(custom.declarations([dict(given, argv=argv)])[0], files, {}, 0.05, 2).sample([[], []], None)
    assert set(taken["metrics"]) == {"throughput", "latency_median", "latency_p99"}
    assert all(told["value"] > 0 for told in taken["metrics"].values())
