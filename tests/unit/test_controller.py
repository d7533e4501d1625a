# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller with few packages, by the task itself; and what is asked on it before any host is contacted."""

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
from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.action.smt_preflight import ActionModule
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


def play(directory, refused, **tasks):
    """Run tasks of this collection on a controller that cannot import some packages; returns what they print."""
    (directory / "sitecustomize.py").write_text(f"REFUSED = {sorted(refused)}\n{REFUSE}", encoding="utf-8")
    (directory / "hosts").write_text(INVENTORY, encoding="ascii")
    every = {"run_once": True, "ignore_errors": True}
    asked = [{f"threadwise.smt.{name}": arguments, **every} for name, arguments in tasks.items()]
    plays = [{"hosts": "all", "gather_facts": False, "tasks": asked}]
    (directory / "play.yml").write_text(json.dumps(plays), encoding="utf-8")
    call = [ANSIBLE_PLAYBOOK, "-i", "hosts", "play.yml"]
    there = {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])}
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return " ".join(subprocess.run(call, cwd=directory, env=there, check=True, **output).stdout.split())


def test_what_is_recommended_is_what_the_other_tests_here_refuse():
    files = [ROOT / name for name in ("requirements.txt", "requirements/minimal.txt")]
    lines = [path.read_text(encoding="utf-8").splitlines() for path in files]
    every, least = ({re.split("[<>=]", one)[0] for one in some if one and not one.startswith("#")} for some in lines)
    assert (every - least - {"ansible-core"}, least) == (RECOMMENDED, {"msgspec"})


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


TWO_HOSTS = "db1 ansible_host=127.0.0.1 ansible_port=1 smt_eval_sample=0\ndb2 ansible_connection=local\n"
GIVEN = {"smt_eval_arms": "smt_on,nosmt", "smt_eval_margin": 1, "smt_report_confidence": 95, "smt_polciy": "disabled"}
NEEDS = {"threadwise.smt.smt_preflight": {"needs": ["smt_report_run_dir"]}, "ignore_errors": True, "run_once": True}


@pytest.fixture(scope="module", name="said")
def _said(tmp_path_factory):
    """What a task that needs a variable and an evaluation with much that is wrong print, a refusal a line."""
    directory = tmp_path_factory.mktemp("preflight")
    (directory / "hosts").write_text(TWO_HOSTS, encoding="ascii")
    (directory / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [NEEDS]}]))
    call = [ANSIBLE_PLAYBOOK, "-i", "hosts", "-e", json.dumps(GIVEN), "play.yml", "threadwise.smt.smt_eval"]
    done = subprocess.run(
        call, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout
    assert "UNREACHABLE" not in done and "PLAY RECAP" in done, done
    return " ".join(done.split())


def test_what_cannot_be_used_is_named_before_any_host_is_contacted(said):
    refusals = {
        f"{name} is {value} (set in " for name, value in (("smt_eval_margin", 1), ("smt_report_confidence", 95))
    }
    assert [one for one in refusals if one not in said] == []
    for refusal in (
        "smt_eval_sample is set in the inventory: it has to be an extra variable",
        "smt_eval_sample is 0 (set in ",
        "smt_polciy (set in ",
        "nosmt takes a reboot: set smt_eval_boots",
        "smt_report_run_dir has to be set (-e smt_report_run_dir=...): Directory of the run on the controller",
        # Without the marks of documentation.
        "which holds HOST.json of each host",
    ):
        assert refusal in said


def test_how_many_hosts_at_once():
    given = {None: 0, "1": 1, "250": 250, "10%": 20, "1%": 2}
    assert {serial: ActionModule._at_once(serial, 200) for serial in given} == given
    for serial in ("0", "101%", "all"):
        with pytest.raises(AnsibleActionFail, match=f"smt_eval_serial is {serial}"):
            ActionModule._at_once(serial, 200)
