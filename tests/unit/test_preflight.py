# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is asked on the controller before any host is contacted. One call, because each of Ansible takes seconds."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from ansible.errors import AnsibleActionFail
from ansible_collections.threadwise.smt.plugins.action.smt_preflight import ActionModule

ANSIBLE_PLAYBOOK = str(pathlib.Path(sys.executable).with_name("ansible-playbook"))
INVENTORY = "db1 ansible_host=127.0.0.1 ansible_port=1 smt_eval_sample=0\ndb2 ansible_connection=local\n"
GIVEN = {"smt_eval_arms": "smt_on,nosmt", "smt_eval_margin": 1, "smt_report_confidence": 95, "smt_polciy": "disabled"}
NEEDS = {"threadwise.smt.smt_preflight": {"needs": ["smt_report_run_dir"]}, "ignore_errors": True, "run_once": True}


@pytest.fixture(scope="module", name="said")
def _said(tmp_path_factory):
    """What a task that needs a variable and an evaluation with much that is wrong print, a refusal a line."""
    directory = tmp_path_factory.mktemp("preflight")
    (directory / "hosts").write_text(INVENTORY, encoding="ascii")
    (directory / "play.yml").write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [NEEDS]}]))
    call = [ANSIBLE_PLAYBOOK, "-i", "hosts", "-e", json.dumps(GIVEN), "play.yml", "threadwise.smt.smt_eval"]
    done = subprocess.run(
        call, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout
    assert "UNREACHABLE" not in done and "PLAY RECAP" in done, done
    return " ".join(done.split())


@pytest.mark.parametrize(
    "refusal",
    [
        "smt_eval_sample is set in the inventory: it has to be an extra variable",
        "smt_eval_sample is 0 (set in ",
        "smt_eval_margin is 1 (set in ",
        "smt_report_confidence is 95 (set in ",
        "smt_polciy (set in ",
        "nosmt takes a reboot: set smt_eval_boots",
        "smt_report_run_dir has to be set (-e smt_report_run_dir=...): Directory of the run on the controller",
        # Without the marks of documentation.
        "which holds HOST.json of each host",
    ],
)
def test_what_cannot_be_used_is_named_before_any_host_is_contacted(said, refusal):
    assert refusal in said


@pytest.mark.parametrize(
    ("serial", "hosts"),
    [(None, 0), ("1", 1), ("250", 250), ("10%", 20), ("1%", 2), ("0", None), ("101%", None), ("all", None)],
)
def test_how_many_hosts_at_once(serial, hosts):
    if hosts is None:
        with pytest.raises(AnsibleActionFail, match=f"smt_eval_serial is {serial}"):
            ActionModule._at_once(serial, 200)
    else:
        assert ActionModule._at_once(serial, 200) == hosts
