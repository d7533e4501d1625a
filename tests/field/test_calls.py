# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was reported of how playbooks are called, each tried on ours: output for programs, tags."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def call(directory, *arguments, **environment):
    """Call a playbook on this machine. Returns (exit code, standard output, standard error)."""
    program = pathlib.Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [program, "-i", ROOT / "tools/this-machine.yml", *arguments],
        cwd=directory,
        env={**os.environ, "ANSIBLE_NOCOLOR": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.night
@pytest.mark.parametrize("callback", ["ansible.posix.jsonl", "ansible.posix.json", "community.general.null"])
def test_ansible_17122_and_41381_lines_between_what_a_callback_prints_for_programs(tmp_path, callback):
    """One playbook imports two, so it is one call: a table of each, and what a plan announces."""
    imported = [f"- import_playbook: threadwise.smt.{name}\n" for name in ("smt_compliance", "smt_eval")]
    (tmp_path / "site.yml").write_text("".join(imported))
    given = ["site.yml", "--check", "-e", "smt_policy=enabled"]
    code, seen, errors = call(tmp_path, *given, ANSIBLE_STDOUT_CALLBACK=callback)
    assert code in (0, 2), (seen, errors)
    lines = seen.splitlines() if callback.endswith("jsonl") else [seen]
    if callback.endswith("null"):
        assert seen == ""
    else:
        assert all(isinstance(json.loads(line), dict) for line in lines) and "smt_compliance" in seen, seen


@pytest.mark.night(after=1)
@pytest.mark.parametrize("playbook", ["smt_compare", "smt_survey"])
def test_ansible_16098_56106_and_mac_ansible_13_a_tag_that_leaves_out_everything(tmp_path, playbook):
    (tmp_path / "smt_survey.html").write_text("<!-- Made by the Ansible collection threadwise.smt -->")
    code, seen, errors = call(tmp_path, f"threadwise.smt.{playbook}", "-t", "i_dont_exist")
    assert code == 2 and f"{playbook} has no tags" in seen + errors, seen + errors
    (tmp_path / "smt_survey.html").unlink(missing_ok=playbook == "smt_survey")
    assert not list(tmp_path.iterdir())
