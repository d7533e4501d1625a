# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evaluations as a user calls them, on this machine, where they switch nothing."""

import json
import os
import pathlib
import re
import signal
import subprocess

import jsonschema_rs
import one_run
import pytest
from ansible_collections.threadwise.smt.plugins.action import smt_benchmark
from ansible_collections.threadwise.smt.plugins.module_utils._measure.evaluation import run_directory
from interruption import interrupt, lose
from this_machine import GONE, LOCAL, SHORT, call, line, start, this_machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What a user says of a host, as a command line has it.
STATED = {"smt_eval_nominal_ghz": "2.75", "smt_eval_price_per_hour": "0.5", "smt_eval_licence_per": "core"}


def play(directory, playbook, *words, hosts=("here",), **variables):
    """Call a playbook that no other test may disturb. Returns (exit code, what a person sees)."""
    with this_machine():
        return call(directory, playbook, *words, hosts=hosts, **variables)


@pytest.fixture(scope="module", name="evaluated")
def evaluation(tmp_path_factory):
    """A directory in which an evaluation was called, and what a person saw."""

    def make(directory):
        code, seen = play(directory, "smt_eval", smt_eval_run="one", **SHORT, **STATED)
        assert code == 0, seen
        return directory, seen

    return one_run.once(tmp_path_factory, "evaluated", make)


def result_of(directory, run="one", host="here"):
    return json.loads((directory / "smt_eval_results" / run / f"{host}.json").read_text(encoding="utf-8"))


def test_an_evaluation_leaves_its_result_and_report_and_says_both_at_the_end(evaluated):
    directory, seen = evaluated
    for name, schema in (("here.json", "host"), ("results.json", "results")):
        published = json.loads((ROOT / f"docs/{schema}.schema.json").read_text(encoding="utf-8"))
        written = json.loads((directory / "smt_eval_results/one" / name).read_text(encoding="utf-8"))
        jsonschema_rs.Draft202012Validator(published).validate(written)
    result = result_of(directory)
    assert result["environment"]["nominal_mhz"] == 2750 and result["restored"]["ok"]
    assert result["costs"] == {"price_per_hour": 0.5, "licence_per": "core"}
    assert {(one["workload"], one["placement"]) for one in result["samples"] if one["ok"]} == {("gzip", "single")}
    left = {path.name for path in (directory / "smt_eval_results/one").iterdir()}
    assert {"index.html", "here.json", "results.json", "results.csv", "summary.md"} <= left
    assert len(seen.splitlines()) <= 30 and "skipping" not in seen and "smt_eval_stop" in seen, seen
    # The last task fails hosts that could not be evaluated.
    answer, report, task = seen.split("PLAY RECAP")[0].splitlines()[-7:-4]
    assert answer.startswith("here: ") and task.startswith("ok"), seen
    assert report == f"The report: {directory}/smt_eval_results/one/index.html"
    # Each host is as it was.
    assert re.search(r"^here +: .*changed=0 ", seen, re.MULTILINE), seen


def test_a_report_is_built_of_what_was_measured_before(evaluated, tmp_path):
    measured = evaluated[0] / "smt_eval_results/one"
    (tmp_path / "here.json").write_bytes((measured / "here.json").read_bytes())
    code, seen = call(tmp_path, "smt_report", smt_report_run_dir=".")
    assert code == 0 and (tmp_path / "index.html").read_text() == (measured / "index.html").read_text(), seen


@pytest.mark.night
@pytest.mark.parametrize("words", [("--check",), ()])
def test_an_evaluation_under_the_name_of_an_earlier_one_is_refused(evaluated, words):
    def written():
        paths = (directory / "smt_eval_results").rglob("[a-z]*.*")
        return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}

    directory = evaluated[0]
    before = written()
    code, seen = play(directory, "smt_eval", *words, smt_eval_run="one", **SHORT)
    assert code == 2 and "smt_eval_results/one/here.json exists" in line(seen), seen
    assert written() == before


def test_an_evaluation_in_check_mode_leaves_nothing(tmp_path):
    code, seen = play(tmp_path, "smt_eval", "--check", smt_eval_run="one", **SHORT)
    assert code == 0 and "here: " in seen, seen
    assert [path.name for path in tmp_path.iterdir()] == ["inventory.yml"]


@pytest.mark.night
def test_failures_come_last_each_once_and_the_others_have_their_report(tmp_path):
    # Only the host knows that it has no such CPU.
    hosts = {"a": LOCAL, "b": {**LOCAL, "smt_eval_siblings": [[0, 4000]]}, "c": GONE}
    code, seen = play(tmp_path, "smt_eval", hosts=hosts, smt_eval_run="one", smt_eval_serial="34%", **SHORT)
    assert code in (2, 4), seen
    report, _path, failures = seen.partition("The report: ")
    assert {"a.json", "index.html"} <= {path.name for path in (tmp_path / "smt_eval_results/one").iterdir()}
    assert "fatal" not in report and len(re.findall(r"^fatal: \[b\].*CPU 4000", failures, re.MULTILINE)) == 1, seen
    assert len(re.findall("^fatal: .*UNREACHABLE", failures, re.MULTILINE)) == 1, seen
    for host, unreachable, failed in (("a", 0, 0), ("b", 0, 1), ("c", 1, 0)):
        counted = f"^{host} .*changed=0 +unreachable={unreachable} +failed={failed}"
        assert re.search(counted, failures, re.MULTILINE), seen


OF_COMMAND = {name: value for name, value in SHORT.items() if name != "smt_eval_workloads"}
LONG = {**SHORT, "smt_eval_budget": 3600, "smt_eval_margin": 0.0001, "smt_eval_progress": 1000}


@pytest.mark.night
def test_ctrl_c_leaves_a_plan_that_can_be_ended_fetched_and_reported(tmp_path):
    # No other test evaluates this machine before the plan has ended.
    with this_machine():
        try:
            process = start(tmp_path, "smt_eval", hosts=["here"], smt_eval_run="long", **LONG)
            lines = iter(process.stdout.readline, "")
            assert any(" %, block " in one for one in lines)
            # As a terminal does: to all of Ansible's processes.
            interrupt(process, signal.SIGINT)
            lose(process)
            code, seen = call(tmp_path, "smt_eval_stop", "--check", hosts=["here"])
            assert code == 0 and not list(tmp_path.rglob("smt_eval_results/long/*.json")), seen
            code, seen = call(tmp_path, "smt_eval_stop", hosts=["here"])
            assert code == 0 and re.search(r"\d+ samples: .*smt_eval_results/long/here.json", seen), seen
        finally:
            # Also of a test that failed no plan goes on.
            seen = call(tmp_path, "smt_eval_stop", hosts=["here"])[1]
    assert "no evaluation is running here" in seen
    result = result_of(tmp_path, "long")
    assert result["outcome"] == "interrupted" and "SIGTERM" in result["message"], result["message"]
    code, seen = call(tmp_path, "smt_report", smt_report_run_dir="smt_eval_results/long")
    assert code == 0 and (tmp_path / "smt_eval_results/long/index.html").is_file(), seen


@pytest.mark.night
def test_a_reader_that_goes_in_the_middle_ends_the_plan_and_the_host_is_restored(tmp_path):
    """As the end of a pager does. What was measured is fetched; its report can be built later."""
    unread = {"errors": subprocess.DEVNULL, "smt_eval_goal": "precision"}
    with this_machine(), start(tmp_path, "smt_eval", hosts=["here"], smt_eval_run="one", **unread, **LONG) as process:
        next(one for one in process.stdout if " left" in one)
        process.stdout.close()
        assert process.wait(600) == 2
    result = result_of(tmp_path)
    assert result["outcome"] == "interrupted" and result["restored"]["ok"], result["message"]
    assert not (tmp_path / "smt_eval_results/one/index.html").exists()


@pytest.mark.night
def test_a_sample_of_each_class_is_measured_and_the_hosts_of_a_class_share_the_work_of_one(tmp_path):
    hosts = dict.fromkeys(("one", "two", "three"), LOCAL)
    code, seen = play(tmp_path, "smt_eval", hosts=hosts, smt_eval_run="s", smt_eval_sample=1, **SHORT)
    assert code == 0 and "one measured, for one, two, three." in seen, seen
    assert {path.name for path in (tmp_path / "smt_eval_results/s").glob("*.json")} == {"one.json", "results.json"}
    options = {**SHORT, "smt_eval_run": "t", "smt_eval_sample": 2, "smt_eval_budget": 60}
    code, seen = play(tmp_path, "smt_eval", "--check", hosts=hosts, **options)
    assert code == 0 and "one, two measured, for one, two, three." in seen, seen
    for host in ("one", "two"):
        assert re.search(f"^{host}: .*about 30 s of about 60 s", seen, re.MULTILINE), seen
    assert "three: " not in seen.replace("[three]", "")


@pytest.mark.night
def test_a_command_in_one_line_with_the_number_that_it_prints(tmp_path):
    """As it is typed in a shell, which takes the quotes: Ansible alone would keep the first word."""
    command = "smt_eval_command=sh -c 'echo progress 1 req/s; echo total 1.5k req/s'"
    words = ("-e", command, "-e", r"smt_eval_metric=(\S+) req/s")
    code, seen = play(tmp_path, "smt_eval", *words, smt_eval_run="one", **OF_COMMAND)
    assert code == 0, seen
    result = result_of(tmp_path)
    assert [one["name"] for one in result["plan"]["workloads"]] == ["command"]
    metrics = [one["metrics"]["throughput"] for one in result["samples"]]
    assert {(one["value"], one["unit"]) for one in metrics} == {(1500.0, "req/s")}


@pytest.mark.night
def test_a_plan_that_is_killed_says_so_in_one_sentence(tmp_path):
    """The command that is measured kills the plan; Ansible's wrapper of the job lives, and fails to read its answer."""
    base = run_directory.ROOT_BASE if os.geteuid() == 0 else tmp_path / ".local/state/threadwise-smt/runs"
    command = f"sh -c 'kill -9 $(cat {base}/killed/pid.json); sleep 1'"
    with this_machine():
        code, seen = call(
            tmp_path, "smt_eval", hosts=["here"], smt_eval_run="killed", smt_eval_command=command, **OF_COMMAND
        )
    assert code == 2 and f"{smt_benchmark.LOST} Nothing was switched." in line(seen) and "Traceback" not in seen, seen
    result = json.loads((tmp_path / "smt_eval_results/killed/here.json").read_text(encoding="utf-8"))
    assert (result["outcome"], result["message"]) == ("interrupted", smt_benchmark.LOST)
