# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run of a name that was used before: nothing is overwritten, nothing is measured in vain, and what no controller collected is fetched."""

from __future__ import annotations

import json

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.action import smt_benchmark
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import text
from ansible_collections.threadwise.smt.plugins.plugin_utils._run import result_files

DESCRIBED = {"announcement": [], "arms": [], "arms_left_out": [], "missing_packages": [], "directory": "/runs", "uncollected": []}


class Benchmark(smt_benchmark.ActionModule):
    """The action with a host that answers what a test says. ``asked`` has the steps that reached the host."""

    def __init__(self, dest, run="one", check_mode=False, kept=(), **described):
        self._task = type("Task", (), {"args": {"run": run, "dest": str(dest)}, "check_mode": check_mode})()
        self.kept = {document["run"]: document for document in kept}
        self.described = {**DESCRIBED, "uncollected": list(self.kept), **described}
        self.asked = []

    def _step(self, task_vars, step, run=None, **arguments):
        self.asked.append(f"{step} {run}" if run else step)
        return {"describe": self.described, "forget": {}, "collect": {"result": self.kept.get(run)}}[step]

    def _measure(self, task_vars, host, directory):
        self.asked.append("measure")
        self.kept["one"] = made("one")
        return {"message": None}

    def evaluate(self):
        return self._evaluate({"inventory_hostname": "web01"})

    def describe(self):
        self._task.args["step"] = "describe"
        return self.evaluate()


def made(run, **fields):
    return result_maker.result(run=run, blocks=1, **fields)


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize("place", ["one/web01.json", "one/boots/one-boot-1/web01.json"])
@pytest.mark.parametrize("content", ["", "{}", json.dumps(made("one"))])
def test_a_run_of_the_same_name_is_refused_before_the_host_is_asked(tmp_path, place, content, check_mode):
    earlier = tmp_path / place
    earlier.parent.mkdir(parents=True)
    earlier.write_text(content, encoding="utf-8")
    again = Benchmark(tmp_path, check_mode=check_mode)
    with pytest.raises(text.BorderError, match=f"{earlier} exists: a run never overwrites another.*another name.*smt_eval_run.*or move that file away"):
        again.evaluate()
    assert again.asked == [] and earlier.read_text(encoding="utf-8") == content


def test_a_host_that_the_run_does_not_have_yet_joins_it(tmp_path):
    result_files.save(tmp_path / "one", made("one", host="db01"))
    added = Benchmark(tmp_path)
    assert added.evaluate()["path"] == str(tmp_path / "one/web01.json")
    assert added.asked == ["describe", "measure", "collect one", "forget one"]


def test_a_result_that_no_controller_collected_is_fetched_and_not_measured_again(tmp_path, capsys):
    """Its controller was lost, and its user starts the same run again."""
    again = Benchmark(tmp_path, kept=[made("one"), made("zero")])
    ended = again.evaluate()
    assert ended["path"] == str(tmp_path / "one/web01.json") and not ended["failed"]
    assert again.asked == ["describe", "collect zero", "forget zero", "collect one", "forget one"]
    assert {path.parent.name for path in tmp_path.glob("*/web01.json")} == {"zero", "one"}
    assert "no controller collected it: it is fetched, and nothing is measured again" in capsys.readouterr().out


def test_a_result_that_was_saved_and_not_yet_removed_from_the_host_is_fetched_again(tmp_path):
    """The controller was lost between the two."""
    result_files.save(tmp_path / "zero", made("zero", collected="2026-01-01T00:00:00Z"))
    following = Benchmark(tmp_path, kept=[made("zero")])
    following.evaluate()
    assert following.asked == ["describe", "collect zero", "forget zero", "measure", "collect one", "forget one"]


def test_what_a_host_kept_of_another_start_stays_there(tmp_path, capsys):
    path, _written = result_files.save(tmp_path / "zero", made("zero"))
    before = path.read_bytes()
    following = Benchmark(tmp_path, kept=[made("zero", started="2020-01-01T00:00:00Z")])
    following.evaluate()
    assert path.read_bytes() == before and "forget zero" not in following.asked
    assert "which is not overwritten by its start at 2020-01-01T00:00:00Z" in " ".join(capsys.readouterr().err.split())


def test_a_role_that_only_asks_shows_nothing_and_starts_nothing(tmp_path, capsys):
    """Neither what it will show when it measures, nor a fetched result."""
    asking = Benchmark(tmp_path, kept=[made("one")], announcement=["CPUs 1 go offline."], missing_packages=["sysbench"])
    assert asking.describe()["missing_packages"] == ["sysbench"]
    assert asking.asked == ["describe"] and capsys.readouterr() == ("", "")
