# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller with requirements-minimal.txt alone: the whole report of recorded samples by the task itself,
and what it says beforehand.
"""

from __future__ import annotations

import csv
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._report.formats import registry

ROOT = pathlib.Path(__file__).parents[2]
ANSIBLE_PLAYBOOK = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))
INVENTORY = f"[all:vars]\nansible_connection=local\nansible_python_interpreter={sys.executable}\n[all]\nlocalhost\n"
# Names of the recommended packages as they are imported.
RECOMMENDED = {"duckdb": "duckdb", "jmespath": "jmespath"}
# What the tests have, and no user needs.
OF_TESTS = {"numpy", "scipy"}
REFUSE = """
import sys


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refuse())
"""
SENTENCE = (
    "the report is made without samples.parquet and without workers.parquet, for which this"
    " controller lacks Python packages:"
)
FILES = {"index.html", *(one.name for one in registry.formats() if not one.name.endswith(".parquet"))}


def names(requirements):
    """The packages that a file of requirements lists."""
    lines = (ROOT / requirements).read_text(encoding="utf-8").splitlines()
    return {re.split("[<>=]", line)[0] for line in lines if line and not line.startswith("#")}


def play(directory, refused, **tasks):
    """Run tasks of this collection on a controller that cannot import some packages; returns their output,
    a task a line.
    """
    (directory / "sitecustomize.py").write_text(f"REFUSED = {sorted(refused)}\n{REFUSE}", encoding="utf-8")
    (directory / "hosts").write_text(INVENTORY, encoding="ascii")
    asked = [{f"threadwise.smt.{name}": arguments, "run_once": True} for name, arguments in tasks.items()]
    (directory / "play.yml").write_text(
        json.dumps([{"hosts": "all", "gather_facts": False, "tasks": asked}]), encoding="utf-8"
    )
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")]),
        "COLUMNS": "1000",
    }
    call = [ANSIBLE_PLAYBOOK, "-i", "hosts", "play.yml"]
    done = subprocess.run(
        call, cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module", name="reports")
def reports_fixture(tmp_path_factory):
    """The output and the run's directory of a controller with what is required alone, and of one with everything."""
    made = {}
    for name, refused in (("alone", {*RECOMMENDED.values(), "orjson"}), ("all", set())):
        directory = tmp_path_factory.mktemp(name)
        run = directory / "smt_eval_results" / "one"
        document = result_maker.result(blocks=5)
        document["samples"][0].update(error='a "quoted" \u00fcber-\U0001f600 text')
        result_files.save(run, document)
        (run / "web02.json").write_text(json.dumps({**document, "host": "web02", "more": 1}), encoding="utf-8")
        code, output = play(
            directory, refused | OF_TESTS, smt_preflight={"run": "two"}, smt_report={"run_dir": str(run)}
        )
        assert code == 0, output
        made[name] = run, output
    return made


def test_what_is_recommended_is_what_the_other_tests_here_refuse():
    assert names("requirements.txt") - names("requirements-minimal.txt") - {"ansible-core"} == set(RECOMMENDED)
    assert names("requirements-minimal.txt") == {"msgspec"}


def test_what_is_required_makes_a_report(reports):
    run, _output = reports["alone"]
    assert {path.name for path in run.iterdir()} >= FILES and not (run / "samples.parquet").exists()
    page = (
        (run / "web01.html").read_text(encoding="utf-8")
        if (run / "web01.html").exists()
        else (run / "index.html").read_text(encoding="utf-8")
    )
    assert page.count("<svg role=img ") >= 8
    with (run / "results.csv").open(encoding="utf-8", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == len(
            json.loads((run / "web01.json").read_text(encoding="utf-8"))["samples"]
        )


def test_with_and_without_recommended_packages_the_data_are_the_same_bytes(reports):
    (alone, _output), (everything, _more) = reports["alone"], reports["all"]
    for name in FILES - {"index.html", "results.json"}:
        lines = [(run / name).read_bytes().splitlines() for run in (alone, everything)]
        assert lines[0] == lines[1] and len(lines[0]) > 5, name
    hosts = [json.loads((run / "results.json").read_text(encoding="utf-8"))["hosts"] for run in (alone, everything)]
    assert hosts[0] == hosts[1]


def test_without_msgspec_a_task_says_so_and_asks_no_host(tmp_path):
    code, output = play(tmp_path, {"msgspec"}, smt_facts={})
    assert code == 2 and " -m pip install msgspec" in " ".join(output.split()), output
