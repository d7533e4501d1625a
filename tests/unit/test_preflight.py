# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked on the controller before any host is contacted, by a controller that lacks it."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

ANSIBLE_PLAYBOOK = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))
INVENTORY = f"[all:vars]\nansible_connection=local\nansible_python_interpreter={sys.executable}\n[all]\ndb1\ndb2\n"

RECOMMENDED = ["duckdb", "jsonschema_rs", "vl_convert"]


def preflight(directory, without=(), **arguments):
    """Call the module in a directory, on a controller without some Python packages. Returns (whether it succeeded, its result)."""
    hidden = directory / "hidden"
    hidden.mkdir(exist_ok=True)
    for name in without:
        (hidden / f"{name}.py").write_text(f"raise ModuleNotFoundError('No module named {name}', name={name!r})", encoding="ascii")
    (directory / "hosts").write_text(INVENTORY, encoding="ascii")
    asked = {"threadwise.smt.smt_preflight": arguments, "run_once": True, "register": "result", "ignore_errors": True}
    kept = {"ansible.builtin.copy": {"dest": str(directory / "result.json"), "mode": "0600", "content": "{{ result | to_json }}"}, "run_once": True}
    play = [{"hosts": "all", "gather_facts": False, "tasks": [asked, kept]}]
    (directory / "play.yml").write_text(json.dumps(play), encoding="ascii")
    path = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    call = [ANSIBLE_PLAYBOOK, "-i", "hosts", "play.yml"]
    done = subprocess.run(call, cwd=directory, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0, done.stdout
    result = json.loads((directory / "result.json").read_text(encoding="utf-8"))
    return not result["failed"], result


@pytest.mark.parametrize(
    ("without", "arguments", "packages"),
    [
        (["duckdb", "vl_convert", "jsonschema_rs", "scipy"], {"run": "one"}, "scipy"),
        (["numpy"], {"run": "one"}, "scipy"),
    ],
)
def test_missing_packages_are_named_with_the_command_that_installs_them(tmp_path, without, arguments, packages):
    succeeded, result = preflight(tmp_path, without, **arguments)
    assert not succeeded
    assert result["msg"].endswith(f"-m pip install {packages}"), result["msg"]


def test_a_survey_needs_no_packages_of_the_report(tmp_path):
    assert preflight(tmp_path, ["numpy", "scipy", *RECOMMENDED])[0]


# The report without these packages is in tests/unit/test_scipy_alone.py.
def test_without_recommended_packages_an_evaluation_starts(tmp_path):
    assert preflight(tmp_path, RECOMMENDED, run="one")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"run": "a b/c"}, "'a b/c' is not a valid run name"), ({"run": "one", "dest": "/proc/results"}, "/proc: results cannot be written here")],
)
def test_a_run_that_cannot_be_saved_is_refused(tmp_path, arguments, message):
    succeeded, result = preflight(tmp_path, **arguments)
    assert not succeeded and result["msg"].count(message) == 1


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("smt_eval_boots", "zwei", "it must be a whole number"),
        ("smt_eval_boots", "-1", "it must be 0 or more"),
        ("smt_eval_boots", "1.5", "it must be a whole number"),
        ("smt_eval_boots", "", "it must be a whole number"),
        ("smt_eval_sample", 0, "it must be 1 or more"),
        ("smt_eval_margin", 1, "it must be from 0.0001 to 0.5"),
        ("smt_report_confidence", 95, "it must be from 0.5 to 0.9999"),
    ],
)
def test_a_number_that_cannot_be_used_is_refused_before_any_host_is_contacted(tmp_path, variable, value, allowed):
    (tmp_path / "hosts").write_text("db1 ansible_host=127.0.0.1 ansible_port=1\n", encoding="ascii")
    call = [ANSIBLE_PLAYBOOK, "-i", "hosts", "threadwise.smt.smt_eval", "--check", "-e", json.dumps({variable: value})]
    done = subprocess.run(call, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 2, done.stdout
    shown = repr(value)
    assert f"{variable} is {shown} (set in" in done.stdout and allowed in done.stdout, done.stdout
    assert "UNREACHABLE" not in done.stdout, done.stdout


def test_what_decides_which_tasks_there_are_has_to_be_an_extra_variable(tmp_path):
    (tmp_path / "hosts").write_text("db1 ansible_host=127.0.0.1 ansible_port=1 smt_eval_sample=1\n", encoding="ascii")
    done = subprocess.run(
        [ANSIBLE_PLAYBOOK, "-i", "hosts", "threadwise.smt.smt_eval"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 2 and "smt_eval_sample is set in the inventory: it has to be an extra variable" in " ".join(done.stdout.split()), done.stdout


@pytest.mark.parametrize(("serial", "at_once"), [(None, 0), ("1", 1), ("7", 7), ("50%", 1), ("1%", 1), ("100%", 2)])
def test_a_share_of_the_hosts_is_a_number_of_them(tmp_path, serial, at_once):
    succeeded, result = preflight(tmp_path, run="one", **({"serial": serial} if serial else {}))
    assert succeeded and result["at_once"] == at_once, result


@pytest.mark.parametrize("serial", ["0", "-1", "1.5", "0%", "101%", "all", "5 %", "[1, 2]"])
def test_what_is_no_number_of_hosts_is_refused(tmp_path, serial):
    succeeded, result = preflight(tmp_path, run="one", serial=serial)
    assert not succeeded and f"smt_eval_serial is {serial}: it must be a number of hosts, 1 or more, or a share of them such as 10%" in result["msg"]


def test_arms_that_take_a_reboot_are_refused_before_any_host_is_contacted(tmp_path):
    (tmp_path / "hosts").write_text("db1 ansible_host=127.0.0.1 ansible_port=1\n", encoding="ascii")
    call = [ANSIBLE_PLAYBOOK, "-i", "hosts", "threadwise.smt.smt_eval", "--check", "-e", "smt_eval_arms=smt_on,nosmt"]
    done = subprocess.run(call, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 2 and "nosmt takes a reboot: set smt_eval_boots to the number of boots" in done.stdout, done.stdout
