# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked on the controller before any host is contacted, by a controller that lacks it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ANSIBLE_PLAYBOOK = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))
INVENTORY = f"[all:vars]\nansible_connection=local\nansible_python_interpreter={sys.executable}\n[all]\ndb1\ndb2\n"

RECOMMENDED = ["duckdb"]


def preflights(directory, asked, without=()):
    """Call the module with each of these arguments in one play, in a directory,
    on a controller without some Python packages. Returns the results.
    """
    hidden = directory / "hidden"
    hidden.mkdir(exist_ok=True)
    for name in without:
        (hidden / f"{name}.py").write_text(
            f"raise ModuleNotFoundError('No module named {name}', name={name!r})", encoding="ascii"
        )
    (directory / "hosts").write_text(INVENTORY, encoding="ascii")
    tasks = []
    for number, arguments in enumerate(asked):
        tasks.append(
            {
                "threadwise.smt.smt_preflight": arguments,
                "run_once": True,
                "register": f"result{number}",
                "ignore_errors": True,
            }
        )
    content = f"{{{{ [{', '.join(f'result{number}' for number in range(len(asked)))}] | to_json }}}}"
    tasks.append(
        {
            "ansible.builtin.copy": {"dest": str(directory / "results.json"), "mode": "0600", "content": content},
            "run_once": True,
        }
    )
    (directory / "play.yml").write_text(
        json.dumps([{"hosts": "all", "gather_facts": False, "tasks": tasks}]), encoding="ascii"
    )
    path = os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])
    call = [ANSIBLE_PLAYBOOK, "-i", "hosts", "play.yml"]
    done = subprocess.run(
        call, cwd=directory, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return json.loads((directory / "results.json").read_text(encoding="utf-8"))


@pytest.mark.night(after=1)
@pytest.mark.parametrize(
    ("without", "arguments", "packages"),
    [
        (["duckdb", "msgspec"], {"run": "one"}, "msgspec"),
        (["msgspec"], {}, "msgspec"),
    ],
)
def test_missing_packages_are_named_with_the_command_that_installs_them(tmp_path, without, arguments, packages):
    (result,) = preflights(tmp_path, [arguments], without)
    assert result["failed"] and result["msg"].endswith(f"-m pip install {packages}"), result["msg"]


@pytest.mark.night(after=1)
@pytest.mark.parametrize(
    "refusals",
    [
        {
            ("smt_eval_boots", "zwei"): "it must be a whole number",
            ("smt_eval_sample", 0): "it must be 1 or more",
            ("smt_eval_margin", 1): "it must be from 0.0001 to 0.5",
            ("smt_report_confidence", 95): "it must be from 0.5 to 0.9999",
        },
        {("smt_eval_boots", "-1"): "it must be 0 or more", ("smt_eval_sample", "1.5"): "it must be a whole number"},
        {("smt_eval_boots", ""): "it must be a whole number"},
    ],
    ids=["many", "two", "empty"],
)
def test_a_number_that_cannot_be_used_is_refused_before_any_host_is_contacted(tmp_path, refusals):
    (tmp_path / "hosts").write_text("db1 ansible_host=127.0.0.1 ansible_port=1\n", encoding="ascii")
    call = [
        ANSIBLE_PLAYBOOK,
        "-i",
        "hosts",
        "threadwise.smt.smt_eval",
        "--check",
        "-e",
        json.dumps(dict(refusals.keys())),
    ]
    done = subprocess.run(call, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 2 and "UNREACHABLE" not in done.stdout, done.stdout
    said = " ".join(done.stdout.split())
    for (variable, value), allowed in refusals.items():
        assert re.search(rf"{variable} is {re.escape(repr(value))} \(set in [^)]+\): {re.escape(allowed)}", said), (
            done.stdout
        )


def test_what_decides_which_tasks_there_are_has_to_be_an_extra_variable(tmp_path):
    (tmp_path / "hosts").write_text("db1 ansible_host=127.0.0.1 ansible_port=1 smt_eval_sample=1\n", encoding="ascii")
    done = subprocess.run(
        [ANSIBLE_PLAYBOOK, "-i", "hosts", "threadwise.smt.smt_eval"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert (
        done.returncode == 2
        and "smt_eval_sample is set in the inventory: it has to be an extra variable" in " ".join(done.stdout.split())
    ), done.stdout


def test_what_is_no_number_of_hosts_is_refused(tmp_path):
    refused = ["0", "101%", "all"]
    for serial, result in zip(refused, preflights(tmp_path, [{"run": "one", "serial": serial} for serial in refused])):
        said = f"smt_eval_serial is {serial}: it must be a number of hosts, 1 or more, or a share of them such as 10%"
        assert result["failed"] and said in result["msg"], result


def test_arms_that_take_a_reboot_are_refused_before_any_host_is_contacted(tmp_path):
    (tmp_path / "hosts").write_text("db1 ansible_host=127.0.0.1 ansible_port=1\n", encoding="ascii")
    call = [ANSIBLE_PLAYBOOK, "-i", "hosts", "threadwise.smt.smt_eval", "--check", "-e", "smt_eval_arms=smt_on,nosmt"]
    done = subprocess.run(call, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 2 and "nosmt takes a reboot: set smt_eval_boots to the number of boots" in done.stdout, (
        done.stdout
    )


def test_what_has_to_be_set_is_named_with_what_it_is(tmp_path):
    (result,) = preflights(tmp_path, [{"needs": ["smt_report_run_dir"]}])
    assert result["msg"].startswith(
        "smt_report_run_dir has to be set (-e smt_report_run_dir=...): Directory of the run"
    )
    assert "HOST.json" in result["msg"] and "C(" not in result["msg"]
