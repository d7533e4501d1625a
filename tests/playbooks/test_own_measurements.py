# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What users bring: files of their own measurements, and a command in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from ansible_collections.threadwise.smt.plugins.action import smt_benchmark
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import run_directory
from this_machine import SHORT, this_machine

ENVIRONMENT = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCALHOST_WARNING": "False", "LC_ALL": "C.UTF-8"}


def play(name, folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", f"threadwise.smt.{name}", *arguments],
        cwd=folder,
        env={**ENVIRONMENT, "HOME": str(folder), "PATH": "/usr/local/bin:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_two_files_are_compared_without_a_host(tmp_path):
    exports = {"b.json": [16.1, 16.2, 16.0, 16.3, 16.1], "a.json": [12.4, 12.5, 12.3, 12.6]}
    for name, times in exports.items():
        results = [{"command": "{{ 1 + 1 }}\x1b[1m", "times": times}]
        (tmp_path / name).write_text(json.dumps({"results": results}), encoding="utf-8")
    status, shown = play("smt_compare", tmp_path, "-e", "before=b.json", "-e", "after=a.json")
    assert status == 0, shown
    assert "{{ 1 + 1 }}" in shown and "\x1b" not in shown
    assert " -> " in shown and "better, n = 4" in shown and "has 1 value more on one side" in shown
    document = json.loads((tmp_path / "smt_compare.json").read_text(encoding="utf-8"))
    assert [(one["verdict"], one["n"], one["better"]) for one in document["comparisons"]] == [("gain", 4, "lower")]
    # What is there is replaced, but not somebody else's, and nothing is written in check mode.
    assert play("smt_compare", tmp_path, "-e", "before=a.json", "-e", "after=b.json", "--check")[0] == 0
    assert json.loads((tmp_path / "smt_compare.json").read_text(encoding="utf-8")) == document
    status, shown = play(
        "smt_compare", tmp_path, "-e", "before=b.json", "-e", "after=a.json", "-e", "smt_compare_dest=a.json"
    )
    assert status == 2 and json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["results"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "missing required arguments: after, before"),
        (("-e", "before=none.txt", "-e", "after=none.txt"), "none.txt cannot be read: No such file or directory"),
        (("-e", "before=b.txt", "-e", "after=b.txt"), "it is not known which way this number is better"),
        (
            ("-e", "before=b.txt", "-e", "after=b.txt", "-e", "smt_compare_bettr=lower"),
            "the nearest is smt_compare_better",
        ),
    ],
)
def test_what_cannot_be_compared_gets_one_sentence(arguments, reason, tmp_path):
    (tmp_path / "b.txt").write_text("1 2 3 4", encoding="utf-8")
    status, shown = play("smt_compare", tmp_path, *arguments)
    assert status == 2 and reason in shown
    assert not (tmp_path / "smt_compare.json").exists()


def test_a_command_in_one_line_with_the_number_that_it_prints(tmp_path):
    """As it is typed in a shell, which takes the quotes: Ansible alone would keep the first word."""
    short = {name: value for name, value in SHORT.items() if name != "smt_eval_workloads"}
    line = "smt_eval_command=sh -c 'echo progress 1 req/s; echo total 1.5k req/s'"
    with this_machine():
        status, shown = play(
            "smt_eval",
            tmp_path,
            *("-i", "localhost,", "-c", "local", "-e", json.dumps(short), "-e", "smt_eval_run=own"),
            *("-e", f"ansible_python_interpreter={sys.executable}"),
            *("-e", line, "-e", r"smt_eval_metric=(\S+) req/s"),
        )
    assert status == 0, shown
    result = json.loads((tmp_path / "smt_eval_results/own/localhost.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in result["plan"]["workloads"]] == ["command"]
    values = {one["metrics"]["throughput"]["value"] for one in result["samples"]}
    assert values == {1500.0} and result["samples"][0]["metrics"]["throughput"]["unit"] == "req/s"


def test_a_plan_that_is_killed_says_so_in_one_sentence(tmp_path):
    """The command that is measured kills the plan; Ansible's wrapper of the job lives, and fails to read its answer."""
    base = run_directory.ROOT_BASE if os.geteuid() == 0 else tmp_path / ".local/state/threadwise-smt/runs"
    short = {name: value for name, value in SHORT.items() if name != "smt_eval_workloads"}
    short["smt_eval_command"] = f"sh -c 'kill -9 $(cat {base}/killed/pid.json); sleep 1'"
    with this_machine():
        status, shown = play(
            "smt_eval",
            tmp_path,
            *("-i", "localhost,", "-c", "local", "-e", json.dumps(short), "-e", "smt_eval_run=killed"),
            *("-e", f"ansible_python_interpreter={sys.executable}"),
        )
    assert status == 2 and f"{smt_benchmark.LOST} Nothing was switched." in shown and "Traceback" not in shown, shown
    result = json.loads((tmp_path / "smt_eval_results/killed/localhost.json").read_text(encoding="utf-8"))
    assert (result["outcome"], result["message"]) == ("interrupted", smt_benchmark.LOST)
