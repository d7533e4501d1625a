# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""smt_history.yml as users call it: without an inventory, on what checks have left."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys

import pytest
import yaml
from ansible_collections.threadwise.smt.plugins.plugin_utils._history import checks

START = datetime.datetime(2026, 1, 30, 6, tzinfo=datetime.UTC)


def call(where, *words, playbook="smt_history", **variables):
    return subprocess.run(
        ["ansible-playbook", f"threadwise.smt.{playbook}", "-e", json.dumps(variables), *words],
        cwd=where,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=dict(
            os.environ, PATH=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"], ANSIBLE_NOCOLOR="1"
        ),
    )


def test_what_drifted_is_said_and_written(tmp_path):
    checks.add(tmp_path / "checks", {"a": "drifted", "b\x1b[2J": "compliant"}, START)
    checks.add(tmp_path / "checks", {"a": "compliant"}, START + datetime.timedelta(days=3))
    run = call(tmp_path, smt_history_checks="checks")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "In 2 checks since 2026-01-30 1 host drifted" in run.stdout and "\x1b" not in run.stdout
    assert json.loads((tmp_path / "smt_history.json").read_text())["drifts"][0]["seconds"] == 3 * 86400
    assert "3 days" in (tmp_path / "smt_history.html").read_text()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "name the directory of checks, that of evaluations, or both"),
        ({"smt_history_checks": "nowhere"}, "nowhere"),
        ({"smt_history_check": "checks"}, "smt_history_check"),
        ({"smt_history_results": ".", "smt_history_margin": 3}, "smt_history_margin is 3"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(variables, said, tmp_path):
    run = call(tmp_path, **variables)
    assert run.returncode == 2 and said in run.stdout + run.stderr, run.stdout + run.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_check_of_compliance_leaves_its_line_and_in_check_mode_none(tmp_path):
    here = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "smt_policy": "disabled"}
    gone = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1, "smt_policy": "disabled"}
    (tmp_path / "inventory.yml").write_text(yaml.safe_dump({"all": {"hosts": {"here": here, "gone": gone}}}))
    given = {"smt_compliance_history": "checks"}
    words = ("-i", "inventory.yml")
    call(tmp_path, "--check", *words, playbook="smt_compliance", **given)
    assert not (tmp_path / "checks").exists()
    for _again in range(2):
        run = call(tmp_path, *words, playbook="smt_compliance", **given)
        assert run.returncode == 4, run.stdout + run.stderr
    found = checks.read(tmp_path / "checks")
    assert found.statuses == {"here": "compliant", "gone": "unreachable"} and len(found.checks) == 2
