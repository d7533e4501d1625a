# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The play of examples/nexmark, with a small stream job in the place of Flink."""

from __future__ import annotations

import json
import pathlib
import socket
import subprocess
import sys

import pytest
import yaml
from this_machine import SHORT, this_machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "nexmark" / "nexmark.yml"
JOB = pathlib.Path(__file__).with_name("stream_job.py")
METRICS = {"throughput", "throughput_per_core", "used_cores"}
# Bids a second, which the job never exceeds.
RATES = [100, 400]
SECONDS = "0.2"


def with_the_job(argv):
    """A command of the example, on the job of the tests; the last argument of a query is its seconds."""
    program, *words = argv
    assert program == "/opt/nexmark/nexmark.sh"
    return [sys.executable, str(JOB), *([*words[:-1], SECONDS] if words[0] == "run" else words)]


def declarations():
    """The example's commands, as many queries and metrics as it has, at lower rates."""
    (play,) = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    for one in play["vars"]["smt_eval_custom"]:
        argvs = {key: with_the_job(one[key]) for key in ("argv", "start", "ready")}
        yield {
            **one,
            **argvs,
            "parameters": {**one["parameters"], "values": RATES},
            "environment": {"STREAM_PORT": port},
        }


@pytest.mark.night
def test_each_query_is_measured_at_each_rate_on_a_cluster_of_its_own(tmp_path):
    custom = list(declarations())
    variables = {
        **SHORT,
        "smt_eval_run": "nexmark",
        "smt_eval_workloads": [],
        "smt_eval_placements": ["all_threads"],
        "smt_eval_custom": custom,
    }
    command = [
        "ansible-playbook",
        "--inventory",
        str(ROOT / "tools" / "this-machine.yml"),
        "threadwise.smt.smt_eval",
        "-e",
        json.dumps(variables),
    ]
    with this_machine():
        done = subprocess.run(
            command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
    assert done.returncode == 0, done.stdout
    results = tmp_path / "smt_eval_results" / "nexmark"
    samples = json.loads((results / "localhost.json").read_text(encoding="utf-8"))["samples"]
    assert {(one["workload"], one["parameter"]) for one in samples if one["ok"]} == {
        (one["name"], rate) for one in custom for rate in RATES
    }, samples
    assert all(set(one["metrics"]) >= METRICS for one in samples)
    for one in samples:
        assert 0 < one["metrics"]["throughput"]["value"] < 1.1 * one["parameter"], one
    levels = json.loads((results / "results.json").read_text(encoding="utf-8"))["hosts"][0]["levels"]
    assert {one["metric"] for one in levels} >= METRICS
    left = subprocess.run(["pgrep", "-f", str(JOB)], capture_output=True, text=True, check=False).stdout
    assert not left, left
