# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's directory: a killed plan loses no data, no run overwrites another, and no path outside is accessed."""

from __future__ import annotations

import itertools
import os
import resource
import shutil

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation.run_directory import (
    RunDirectory,
    RunDirectoryError,
    base_directory,
    kept_runs,
    sweep,
)
from crash import assert_durable, fresh, killed_at_each, needs_trace

HEADER = {"run": "r1", "plan": {"blocks": None}, "arms": [{"name": "as_found"}], "started": "2026-01-01T00:00:00Z"}
ENDING = {"outcome": "completed", "message": None, "finished": "x", "restored": None, "skipped": []}


@pytest.fixture(name="files")
def a_created_run(tmp_path):
    files = RunDirectory(str(tmp_path / "runs"), "r1")
    files.create()
    files.write("header.json", HEADER)
    return files


def written_to(files, name, text):
    with open(files.file(name), "a", encoding="utf-8") as lines:
        lines.write(text)


def test_a_full_disk_loses_no_earlier_data(files):
    files.append("samples.jsonl", {"block": 0})
    size, limits = os.path.getsize(files.file("samples.jsonl")), resource.getrlimit(resource.RLIMIT_FSIZE)
    # This affects pytest too, so it must be short.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, limits[1]))
    try:
        with pytest.raises(RunDirectoryError, match=r"samples.jsonl: File too large"):
            files.append("samples.jsonl", {"block": 1})
        with pytest.raises(RunDirectoryError, match=r"header.json"):
            files.amend(environment={"more": "x" * 100})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    result = files.result()
    assert result["samples"] == [{"block": 0}] and result["run"] == "r1" and "environment" not in result
    assert result["events"] == [], "no part of a line is left"
    assert sorted(os.listdir(files.path)) == ["header.json", "lock", "samples.jsonl"]


@pytest.mark.parametrize("name", ["", ".", "..", "../r1", "a/b", ".hidden", "a b", "a\n", "-x", "x" * 101, "a\0"])
def test_names_that_lead_to_another_path_are_refused(name, tmp_path):
    with pytest.raises(RunDirectoryError, match=r"a run cannot be called"):
        RunDirectory(str(tmp_path), name)


def test_runs_are_listed_and_removed_and_never_overwrite_another(files):
    base = os.path.dirname(files.path)
    with pytest.raises(RunDirectoryError, match=r"never overwrites"):
        RunDirectory(base, "r1").create()
    with pytest.raises(RunDirectoryError, match=r"no run r9"):
        RunDirectory(base, "r9").result()
    files.release()
    assert kept_runs(base) == ["r1"]
    files.remove()
    assert kept_runs(base) == [] == kept_runs(os.path.join(base, "nowhere"))


def test_runs_are_private_to_the_user(files, monkeypatch):
    base = os.path.dirname(files.path)
    assert os.stat(files.path).st_mode & 0o077 == os.stat(base).st_mode & 0o077 == 0
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", "/home/me/state")
    assert base_directory() == "/home/me/state/threadwise-smt/runs"


@pytest.mark.parametrize(("user", "mode"), [(0, 0o755), (1000, 0o700)])
def test_what_a_host_keeps_beside_them_stays_readable_whatever_comes_first(tmp_path, monkeypatch, user, mode):
    monkeypatch.setattr(os, "geteuid", lambda: user)
    RunDirectory(str(tmp_path / "threadwise-smt/runs"), "r1").create()
    assert os.stat(tmp_path / "threadwise-smt").st_mode & 0o777 == mode
    assert os.stat(tmp_path / "threadwise-smt/runs").st_mode & 0o777 == 0o700


DAMAGED = [*("7", "null", "[]", "{}", '"x"', '{"block": "0"}', '{"block": -1}', '{"block": true}', '{"block": NaN}')]
DAMAGED += ["[" * 5000, "\0\0\0", '{"block": 1, "x"']


@pytest.mark.parametrize("name", ["samples.jsonl", "observations.jsonl", "events.jsonl"])
def test_damaged_lines_are_left_out_and_counted(files, name):
    files.append("samples.jsonl", {"block": 0})
    files.event("block")
    written_to(files, name, "".join(line + "\n" for line in DAMAGED))
    result = files.result()
    assert result["samples"] == [{"block": 0}] and result["plan"]["blocks_done"] == 1 and result["observations"] == []
    assert [event["event"] for event in result["events"]] == ["block", "damaged"]
    assert f"{name}: {len(DAMAGED)} lines" in result["events"][1]["detail"]
    # The rest of a line from an interrupted write does not affect the next one.
    written_to(files, "samples.jsonl", '{"block": 1, "wor')
    files.append("samples.jsonl", {"block": 2})
    assert files.result()["samples"][-1] == {"block": 2}


@pytest.mark.parametrize(
    "text", ["", "7", "[]", "{}", '{"plan": 7, "arms": []}', '{"plan": {}, "arms": {}}', "[" * 5000, "\0"]
)
def test_a_damaged_header_is_reported_with_what_to_do(files, text):
    files.append("samples.jsonl", {"block": 0})
    os.truncate(files.file("header.json"), 0)
    written_to(files, "header.json", text)
    with pytest.raises(RunDirectoryError, match=r"header.json is damaged.*by hand"):
        files.result()
    files.release()
    # The measured data is still there, so the run stays listed.
    assert kept_runs(os.path.dirname(files.path)) == ["r1"]
    # A damaged ending is none.
    files.write("header.json", HEADER)
    written_to(files, "ending.json", text)
    assert files.result()["outcome"] == "interrupted"


def test_a_run_without_a_header_is_not_listed_and_is_removed_by_the_next(files):
    base = os.path.dirname(files.path)
    early = RunDirectory(base, "r0")
    early.create()
    early.write("pid.json", 1)
    sweep(base)
    assert os.path.exists(early.path), "it is still running"
    early.release()
    with pytest.raises(RunDirectoryError, match=r"run r0 on this host ended before it measured anything"):
        RunDirectory(base, "r0").result()
    assert "r0" not in kept_runs(base)
    sweep(base)
    assert not os.path.exists(early.path) and os.path.exists(files.path)


def life(base, confirmed):
    """Write all files of a run; ``confirmed`` is called with the index of each sample after it was written."""
    files = RunDirectory(base, "r2")
    files.create()
    files.write("pid.json", 7)
    files.write("header.json", dict(HEADER, run="r2"))
    for index in range(3):
        files.append("samples.jsonl", {"block": index})
        files.append("events.jsonl", {"at": "x", "event": "block", "detail": None})
        files.write("progress.json", {"fraction": 0.1}, lasting=False)
        confirmed(index)
    files.amend(plan={"stopped": "blocks"})
    files.write("ending.json", ENDING)


@needs_trace
def test_a_kill_between_any_two_changes_loses_no_confirmed_sample(tmp_path):
    base = str(tmp_path / "runs")
    marks = tmp_path / "confirmed"

    def prepare():
        shutil.rmtree(base, ignore_errors=True)
        marks.mkdir(exist_ok=True)
        for mark in marks.iterdir():
            mark.unlink()

    def work():
        # The marks are outside the run's directory, so they are not among the counted changes.
        life(base, lambda index: os.symlink("x", marks / str(index)))

    def check(_number, _killed):
        done = sorted(int(mark.name) for mark in marks.iterdir())
        listed = kept_runs(base)
        if done:
            assert listed == ["r2"]
        for name in listed:
            found = [sample["block"] for sample in RunDirectory(base, name).result()["samples"]]
            assert found[: len(done)] == done
        sweep(base)
        assert kept_runs(base) == listed
        # The next call: the run is removed, and another one is created.
        for name in listed:
            RunDirectory(base, name).remove()
        following = RunDirectory(base, "r2")
        following.create()
        following.release()

    assert killed_at_each(prepare, work, check) > 20


@needs_trace
def test_a_kill_during_removal_leaves_the_run_complete_or_removed(tmp_path):
    base, template = str(tmp_path / "runs"), str(tmp_path / "template")
    life(template, lambda index: None)
    os.mkdir(os.path.join(template, "r2", "more"))
    whole = RunDirectory(template, "r2").result()

    def check(_number, _killed):
        for name in kept_runs(base):
            assert RunDirectory(base, name).result() == whole
        sweep(base)
        assert os.listdir(base) in ([], ["r2"])

    assert killed_at_each(lambda: fresh(base, template), lambda: RunDirectory(base, "r2").remove(), check) > 5


@needs_trace
def test_names_are_on_disk_before_the_calls_return(tmp_path):
    base = str(tmp_path / "runs")

    def work():
        files = RunDirectory(base, "r2")
        files.create()
        files.write("header.json", HEADER)
        files.append("samples.jsonl", {"block": 0})

    lasting = {("write", "fsync file"), ("mkdir", "fsync directory")}
    assert {pair for pair in itertools.pairwise(assert_durable(work)) if pair[0] in ("write", "mkdir")} == lasting
    assert_durable(RunDirectory(base, "r2").remove)
