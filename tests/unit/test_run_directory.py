# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A run's folder: nothing is lost by a plan that is killed, nothing overwritten, nothing reached outside of it."""

from __future__ import annotations

import contextlib
import os
import resource

import pytest

from ansible_collections.threadwise.smt.plugins.module_utils.run_directory import RunDirectory, RunDirectoryError, base_directory, kept_runs

HEADER = {"run": "r1", "plan": {"blocks": None}, "started": "2026-01-01T00:00:00Z"}


@pytest.fixture(name="files")
def a_created_run(tmp_path):
    files = RunDirectory(str(tmp_path / "runs"), "r1")
    files.create()
    files.write("header.json", HEADER)
    return files


def test_a_plan_that_was_killed_leaves_each_whole_sample(files):
    for block in range(3):
        files.append("samples.jsonl", {"block": block})
    with open(files.file("samples.jsonl"), "a", encoding="utf-8") as samples:
        samples.write('{"block": 3, "wor')
    result = files.result()
    assert [sample["block"] for sample in result["samples"]] == [0, 1, 2]
    assert result["outcome"] == "interrupted" and "killed" in result["message"] and result["restored"] is None
    assert result["plan"]["blocks_done"] == 3


@contextlib.contextmanager
def no_file_larger_than(size):
    """A write of this process fails half-way, as on a full disk; also what pytest writes, so it must not last longer than what is tested."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_loses_nothing_that_was_written_before(files):
    files.append("samples.jsonl", {"block": 0})
    with no_file_larger_than(os.path.getsize(files.file("samples.jsonl")) + 5):
        with pytest.raises(RunDirectoryError, match="samples.jsonl: File too large"):
            files.append("samples.jsonl", {"block": 1})
        with pytest.raises(RunDirectoryError, match="header.json"):
            files.amend(environment={"more": "x" * 100})
    result = files.result()
    assert result["samples"] == [{"block": 0}] and result["run"] == "r1" and "environment" not in result
    assert sorted(os.listdir(files.path)) == ["header.json", "samples.jsonl"]


def test_a_plan_that_ended_says_how(files):
    files.event("skipped", "gzip: gone")
    files.write("ending.json", {"outcome": "completed", "message": None, "finished": "x", "restored": {"ok": True}, "skipped": []})
    result = files.result()
    assert (result["outcome"], result["samples"], result["plan"]["blocks_done"]) == ("completed", [], 0)
    assert result["events"][0]["detail"] == "gzip: gone"


def test_a_run_never_overwrites_another(files):
    with pytest.raises(RunDirectoryError, match="never overwrites"):
        RunDirectory(os.path.dirname(files.path), "r1").create()


@pytest.mark.parametrize("name", ["", ".", "..", "../r1", "a/b", ".hidden", "a b", "a\n", "-x", "x" * 101, "a\0"])
def test_names_that_could_lead_elsewhere_are_refused(name, tmp_path):
    with pytest.raises(RunDirectoryError, match="a run cannot be called"):
        RunDirectory(str(tmp_path), name)


def test_an_unknown_run_is_named(tmp_path):
    with pytest.raises(RunDirectoryError, match="there is no run r9"):
        RunDirectory(str(tmp_path), "r9").result()


def test_runs_are_listed_and_removed(files):
    base = os.path.dirname(files.path)
    assert kept_runs(base) == ["r1"]
    files.remove()
    assert kept_runs(base) == [] == kept_runs(os.path.join(base, "nowhere"))


def test_only_inputs_are_removed_after_measuring(files):
    for name in ("gzip.input", "guard.log"):
        with open(files.file(name), "w", encoding="utf-8") as some:
            some.write("x")
    files.remove_inputs()
    assert sorted(os.listdir(files.path)) == ["guard.log", "header.json"]


def test_runs_are_private_to_the_user(files, monkeypatch):
    assert os.stat(files.path).st_mode & 0o077 == 0
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("XDG_STATE_HOME", "/home/me/state")
    assert base_directory() == "/home/me/state/threadwise-smt/runs"
