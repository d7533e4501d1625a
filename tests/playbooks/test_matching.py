# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A call that no host takes part in says so and fails, with each playbook: Ansible alone would succeed."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A report needs no hosts, and neither do two files.
PLAYBOOKS = sorted(
    {path.stem for path in (ROOT / "playbooks").glob("*.yml")} - {"smt_report", "smt_compare", "smt_history"}
)


def call(directory, playbook, *arguments):
    """Call a playbook without the machine's own configuration. Returns (exit code, what a person sees in one line)."""
    (directory / "ansible.cfg").write_text("")
    done = subprocess.run(
        [str(pathlib.Path(sys.executable).with_name("ansible-playbook")), *arguments, f"threadwise.smt.{playbook}"],
        cwd=directory,
        env=dict(os.environ, ANSIBLE_CONFIG=str(directory / "ansible.cfg"), ANSIBLE_NOCOLOR="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, " ".join(done.stdout.split())


@pytest.mark.parametrize("playbook", PLAYBOOKS)
def test_without_an_inventory_a_playbook_says_so_and_fails(tmp_path, playbook):
    code, seen = call(tmp_path, playbook)
    assert code != 0 and "take this machine alone with -i localhost, -c local" in seen, seen
    assert "PLAY" not in seen


@pytest.mark.parametrize("arguments", [("-e", "smt_survey_hosts=web"), ("-e", '{"smt_survey_hosts": ["web", "db"]}')])
def test_a_pattern_that_no_host_matches_is_named(tmp_path, arguments):
    code, seen = call(tmp_path, "smt_survey", "-i", "h1,h2,", *arguments)
    assert code != 0 and "no host of the inventory matches smt_survey_hosts=web" in seen, seen


def test_a_limit_that_leaves_no_host_is_named(tmp_path):
    code, seen = call(tmp_path, "smt_survey", "-i", "h1,h2,", "-e", "smt_survey_hosts=h1", "--limit", "h2")
    assert code != 0 and "no host matches both smt_survey_hosts=h1 and --limit h2" in seen, seen


@pytest.mark.parametrize("option", ["--syntax-check", "--list-tasks"])
def test_a_playbook_can_be_read_without_an_inventory(tmp_path, option):
    code, seen = call(tmp_path, "smt_survey", option)
    assert code == 0, seen
