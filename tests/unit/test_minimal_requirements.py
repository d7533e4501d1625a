# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller with requirements/minimal.txt alone: the whole report of recorded samples by the task itself, the same
data as with all packages, and what it says where even msgspec is missing.
"""

from __future__ import annotations

import csv
import json
import os
import pathlib
import re
import subprocess
import sys

import result_maker
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import result_files
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report import build
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.report.formats import registry

ROOT = pathlib.Path(__file__).parents[2]
ANSIBLE_PLAYBOOK = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))
INVENTORY = f"[all:vars]\nansible_connection=local\nansible_python_interpreter={sys.executable}\n[all]\nlocalhost\n"
# Names of the recommended packages as they are imported.
RECOMMENDED = {"duckdb", "jmespath"}
# What no user needs.
OF_TESTS = {"numpy", "scipy", "orjson"}
REFUSE = """
import sys


class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Refuse())
"""
FILES = {"index.html", *(one.name for one in registry.formats() if not one.name.endswith(".parquet"))}


def names(requirements):
    """The packages that a file of requirements lists."""
    lines = (ROOT / requirements).read_text(encoding="utf-8").splitlines()
    return {re.split("[<>=]", line)[0] for line in lines if line and not line.startswith("#")}


def play(directory, refused, **tasks):
    """Run tasks of this collection on a controller that cannot import some packages; returns what they print."""
    (directory / "sitecustomize.py").write_text(f"REFUSED = {sorted(refused)}\n{REFUSE}", encoding="utf-8")
    (directory / "hosts").write_text(INVENTORY, encoding="ascii")
    asked = [
        {f"threadwise.smt.{name}": arguments, "run_once": True, "ignore_errors": True}
        for name, arguments in tasks.items()
    ]
    plays = [{"hosts": "all", "gather_facts": False, "tasks": asked}]
    (directory / "play.yml").write_text(json.dumps(plays), encoding="utf-8")
    path = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])
    call = [ANSIBLE_PLAYBOOK, "-i", "hosts", "play.yml"]
    done = subprocess.run(
        call,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    return " ".join(done.stdout.split())


def test_what_is_recommended_is_what_the_other_tests_here_refuse():
    assert names("requirements.txt") - names("requirements/minimal.txt") - {"ansible-core"} == RECOMMENDED
    assert names("requirements/minimal.txt") == {"msgspec"}


def test_what_is_required_makes_the_report_that_all_packages_make(tmp_path):
    document = result_maker.result(blocks=5)
    document["samples"][0].update(error='a "quoted" \u00fcber-\U0001f600 text')
    alone, everything = tmp_path / "alone", tmp_path / "all"
    for run in (alone, everything):
        result_files.save(run, document)
        (run / "web02.json").write_text(json.dumps({**document, "host": "web02", "more": 1}), encoding="utf-8")
    said = play(tmp_path, RECOMMENDED | OF_TESTS, smt_preflight={"run": "two"}, smt_report={"run_dir": str(alone)})
    assert "failed=0" in said and "samples.parquet" in said and "pip install" in said, said
    build.build(result_files.result_paths(everything), everything)
    assert {path.name for path in alone.iterdir()} >= FILES and not (alone / "samples.parquet").exists()
    assert (alone / "web01.html").read_text(encoding="utf-8").count("<svg role=img ") >= 8
    with (alone / "results.csv").open(encoding="utf-8", newline="") as stream:
        assert len(list(csv.DictReader(stream))) == len(document["samples"])
    for name in FILES - {"index.html", "results.json"}:
        lines = [(run / name).read_bytes().splitlines() for run in (alone, everything)]
        assert lines[0] == lines[1] and len(lines[0]) > 5, name
    hosts = [json.loads((run / "results.json").read_text(encoding="utf-8"))["hosts"] for run in (alone, everything)]
    assert hosts[0] == hosts[1]


def test_without_msgspec_each_task_says_what_to_install_and_asks_no_host(tmp_path):
    said = play(tmp_path, {"duckdb", "msgspec"}, smt_preflight={"run": "one"}, smt_facts={})
    assert said.count(" -m pip install msgspec") >= 2 and "ignored=2" in said, said
