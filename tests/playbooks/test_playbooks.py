# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks as a user calls them, on this machine, where they switch nothing."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import jsonschema_rs
import one_run
import pytest
from interruption import interrupt
from this_machine import SHORT, this_machine

ROOT = pathlib.Path(__file__).resolve().parents[2]
ANSIBLE_PLAYBOOK = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))


def play(directory, playbook, *arguments, **variables):
    """Call a playbook in a directory of its own. Returns (exit code, what a person sees)."""
    with this_machine():
        return call(directory, playbook, *arguments, **variables)


def call(directory, playbook, *arguments, inventory=ROOT / "tools/this-machine.yml", **variables):
    """The same for who has this machine already."""
    command = [
        ANSIBLE_PLAYBOOK,
        "--inventory",
        str(inventory),
        playbook,
        "--extra-vars",
        json.dumps(variables),
        *arguments,
    ]
    done = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


# What a user says of a host, as a command line has it.
STATED = {"smt_eval_nominal_ghz": "2.75", "smt_eval_price_per_hour": "0.5", "smt_eval_licence_per": "core"}


@pytest.fixture(scope="module", name="evaluated")
def evaluation(tmp_path_factory):
    """A directory in which an evaluation was called. Gives it, and what a person saw."""

    def make(directory):
        code, seen = play(directory, "threadwise.smt.smt_eval", smt_eval_run="one", **SHORT, **STATED)
        assert code == 0, seen
        return directory, seen

    return one_run.once(tmp_path_factory, "evaluated", make)


@pytest.mark.parametrize(("name", "schema"), [("localhost.json", "host"), ("results.json", "results")])
def test_what_an_evaluation_leaves_for_programs_is_as_its_published_schema_says(evaluated, name, schema):
    published = json.loads((ROOT / f"docs/{schema}.schema.json").read_text(encoding="utf-8"))
    written = json.loads((evaluated[0] / "smt_eval_results/one" / name).read_text(encoding="utf-8"))
    jsonschema_rs.Draft202012Validator(published).validate(written)


def test_what_the_user_says_of_a_host_is_in_its_result(evaluated):
    result = json.loads((evaluated[0] / "smt_eval_results/one/localhost.json").read_text(encoding="utf-8"))
    assert result["environment"]["nominal_mhz"] == 2750
    assert result["costs"] == {"price_per_hour": 0.5, "licence_per": "core"}


def assert_it_left_a_report(directory, seen):
    left = {path.name for path in (directory / "smt_eval_results/one").iterdir()}
    assert {"index.html", "localhost.json", "results.json", "results.csv", "summary.md"} <= left
    assert "smt_eval_results/one/index.html" in seen


def test_an_evaluation_leaves_its_report_below_the_directory_of_the_call(evaluated):
    assert_it_left_a_report(*evaluated)


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_an_evaluation_under_the_name_of_an_earlier_one_is_refused(evaluated, arguments):
    directory = evaluated[0]
    written = {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in (directory / "smt_eval_results").rglob("*")
        if path.is_file()
    }
    code, seen = play(directory, "threadwise.smt.smt_eval", *arguments, smt_eval_run="one", **SHORT)
    assert code == 2, seen
    assert "smt_eval_results/one/localhost.json exists: a run never overwrites another" in " ".join(seen.split())
    assert {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in (directory / "smt_eval_results").rglob("*")
        if path.is_file()
    } == written


@pytest.mark.night
def test_an_evaluation_called_by_the_path_of_its_playbook_does_so_too(tmp_path):
    code, seen = play(tmp_path, str(ROOT / "playbooks/smt_eval.yml"), smt_eval_run="one", **SHORT)
    assert code == 0, seen
    assert_it_left_a_report(tmp_path, seen)


ASKED = {
    "the workers that were alone": "samples[?ok && placement == 'single'].workers[].value | length(@)",
    "what was skipped": "skipped[?contains(reason, 'no')].workload | length(@)",
    "a core's usage": "length(samples[?telemetry.core_usage.keys(@) != `[]`])",
    "the verdicts' words": "hosts[].comparisons[?starts_with(effect, 'smt')].verdict[] | length(@)",
    "whether it was restored": "restored.ok",
}


def test_results_can_be_asked_by_json_query_as_they_are(tmp_path, evaluated):
    """By the filter that playbooks use, on the result of a host and on the report's."""
    results = evaluated[0] / "smt_eval_results/one"
    # Whoever asks writes such a playbook.
    tasks = [
        {
            "ansible.builtin.copy": {
                "dest": str(tmp_path / "answers.json"),
                "mode": "0600",
                "content": "{{ answers | to_json }}",
            },
            "vars": {
                "answers": {
                    name: (
                        "{{{{ lookup('ansible.builtin.file', '{}') | from_json |"
                        " community.general.json_query(asked[{!r}]) }}}}".format(
                            results / ("results.json" if query.startswith("hosts") else "localhost.json"), name
                        )
                    )
                    for name, query in ASKED.items()
                }
            },
        }
    ]
    (tmp_path / "ask.yml").write_text(
        json.dumps([{"hosts": "all", "gather_facts": False, "vars": {"asked": ASKED}, "tasks": tasks}]),
        encoding="utf-8",
    )
    code, seen = play(tmp_path, "ask.yml")
    assert code == 0, seen
    answers = json.loads((tmp_path / "answers.json").read_text(encoding="utf-8"))
    samples = len(
        [line for line in json.loads((results / "localhost.json").read_text(encoding="utf-8"))["samples"] if line["ok"]]
    )
    assert answers["the workers that were alone"] == samples > 0
    assert answers["whether it was restored"] is True
    assert all(isinstance(answer, int) for answer in answers.values()), answers


def test_the_terminal_of_an_evaluation_is_short_and_ends_with_the_answer_and_the_path(evaluated):
    seen = evaluated[1]
    assert len(seen.splitlines()) <= 30 and "skipping" not in seen, seen
    last = seen.split("PLAY RECAP")[0].splitlines()
    # The last task fails hosts that could not be evaluated.
    assert (
        last[-7].startswith("localhost: ")
        and "SMT on and off were not compared here" in last[-7]
        and last[-6].startswith("The report: ")
        and last[-5].startswith("ok")
    ), seen
    # Each host is as it was.
    assert "changed=0" in seen
    assert "The plan goes on until about" in seen and "threadwise.smt.smt_eval_stop" in seen


# Only the host knows that it has no such CPU.
BROKEN = [[0, 4000]]


def test_failures_come_last_each_once_and_the_others_have_their_report(tmp_path):
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    hosts = {
        "a": local,
        "b": {**local, "smt_eval_siblings": BROKEN},
        "c": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1},
    }
    (tmp_path / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    code, seen = play(
        tmp_path,
        "threadwise.smt.smt_eval",
        inventory="inventory.json",
        smt_eval_run="one",
        smt_eval_serial="34%",
        **SHORT,
    )
    assert code in (2, 4), seen
    report, _path, failures = seen.partition("The report: ")
    assert (tmp_path / "smt_eval_results/one/a.json").is_file() and (
        tmp_path / "smt_eval_results/one/index.html"
    ).is_file()
    assert (
        "fatal" not in report
        and len(
            re.findall(r"^fatal: \[b\].*siblings names CPU 4000, which this host does not have", failures, re.MULTILINE)
        )
        == 1
    ), seen
    assert len(re.findall("^fatal: .*UNREACHABLE", failures, re.MULTILINE)) == 1, seen
    assert re.search("^a .*changed=0 +unreachable=0 +failed=0", failures, re.MULTILINE), seen
    assert re.search("^b .*changed=0 +unreachable=0 +failed=1", failures, re.MULTILINE), seen
    assert re.search("^c .*changed=0 +unreachable=1 +failed=0", failures, re.MULTILINE), seen


@pytest.mark.night
def test_ctrl_c_leaves_a_plan_that_can_be_ended_fetched_and_reported(tmp_path):
    # No other test evaluates this machine before the plan has ended.
    with this_machine():
        try:
            interrupt_and_end(tmp_path)
        finally:
            # Also of a test that failed no plan goes on.
            call(tmp_path, "threadwise.smt.smt_eval_stop")


def interrupt_and_end(directory):
    command = [ANSIBLE_PLAYBOOK, "--inventory", str(ROOT / "tools/this-machine.yml"), "threadwise.smt.smt_eval"]
    wanted = {
        **SHORT,
        "smt_eval_run": "long",
        "smt_eval_budget": 3600,
        "smt_eval_margin": 0.0001,
        "smt_eval_progress": 1000,
    }
    with (
        subprocess.Popen(
            # Whoever started the tests in the background has switched this signal off.
            ["env", "--default-signal=INT", *command, "-e", json.dumps(wanted)],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        lines = []
        for line in process.stdout:
            lines.append(line)
            if " %, block " in line:
                break
        else:
            pytest.fail("".join(lines))
        # As a terminal does: to all of Ansible's processes. Those that do not end by it hold nobody up.
        interrupt(process, signal.SIGINT)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    code, seen = call(directory, "threadwise.smt.smt_eval_stop", "--check")
    assert (
        code == 0 and "run long would be ended" in seen and not list(directory.rglob("smt_eval_results/long/*.json"))
    ), seen
    code, seen = call(directory, "threadwise.smt.smt_eval_stop")
    assert code == 0 and re.search(r"run long was ended; \d+ samples: .*smt_eval_results/long/localhost.json", seen), (
        seen
    )
    result = json.loads((directory / "smt_eval_results/long/localhost.json").read_text())
    assert result["outcome"] == "interrupted" and "SIGTERM" in result["message"], result["message"]
    code, seen = call(
        directory, "threadwise.smt.smt_report", inventory="localhost,", smt_report_run_dir="smt_eval_results/long"
    )
    assert code == 0 and (directory / "smt_eval_results/long/index.html").is_file(), seen
    code, seen = call(directory, "threadwise.smt.smt_eval_stop")
    assert code == 0 and "no evaluation is running here, and none waits to be fetched" in seen, seen


@pytest.mark.night
def test_two_evaluations_in_one_call_are_two_runs(tmp_path):
    """Before an upgrade and after it, by one playbook: what the first one has set does not name the second one."""
    runs = [
        {"import_playbook": "threadwise.smt.smt_eval", "vars": {"smt_eval_run": run}} for run in ("before", "after")
    ]
    (tmp_path / "both.yml").write_text(json.dumps(runs), encoding="utf-8")
    code, seen = play(tmp_path, "both.yml", **SHORT)
    assert code == 0, seen
    assert all((tmp_path / "smt_eval_results" / run / "localhost.json").is_file() for run in ("before", "after")), seen


def test_an_evaluation_in_check_mode_leaves_nothing(tmp_path):
    code, seen = play(tmp_path, "threadwise.smt.smt_eval", "--check", smt_eval_run="one", **SHORT)
    assert code == 0, seen
    assert "no other arm than the host as found was asked for" in seen
    assert list(tmp_path.iterdir()) == []


def test_a_survey_shows_a_table_and_leaves_a_page(tmp_path):
    code, seen = play(tmp_path, "threadwise.smt.smt_survey")
    assert "Look how" not in seen and "of its work" not in seen
    assert code == 0, seen
    assert "localhost" in seen and "1 host: " in seen
    assert (tmp_path / "smt_survey.html").stat().st_size > 0


@pytest.mark.night
def test_a_sample_of_each_class_is_measured_and_speaks_for_the_others(tmp_path):
    hosts = {
        name: {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        for name in ("one", "two", "three")
    }
    (tmp_path / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    code, seen = play(
        tmp_path, "threadwise.smt.smt_eval", inventory="inventory.json", smt_eval_run="s", smt_eval_sample=1, **SHORT
    )
    assert code == 0, seen
    assert "one measured, for one, two, three." in seen
    assert [path.name for path in (tmp_path / "smt_eval_results/s").glob("*.json") if path.name != "results.json"] == [
        "one.json"
    ]


@pytest.mark.night
def test_hosts_of_a_class_share_the_work_of_one_and_say_so_before_the_start(tmp_path):
    hosts = {
        name: {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        for name in ("one", "two", "three")
    }
    (tmp_path / "inventory.json").write_text(json.dumps({"all": {"hosts": hosts}}))
    options = {**SHORT, "smt_eval_run": "s", "smt_eval_sample": 2, "smt_eval_budget": 60}
    code, seen = play(tmp_path, "threadwise.smt.smt_eval", "--check", inventory="inventory.json", **options)
    assert code == 0, seen
    assert (
        "one, two measured, for one, two, three. Each measures for 1/2 of smt_eval_budget, and longer only until it has"
        " 6 blocks." in seen
    )
    for host in ("one", "two"):
        assert (
            f"{host}: 2 hosts of this hardware class share the work of one: this one measures for about 30 s of about"
            " 60 s, and longer only" in seen
        )
        assert (
            f"{host}: The placements that exist on this host will be measured for about 30 s, or less once enough is"
            " known." in seen
        )
    assert "three: " not in seen.replace("[three]", "")
