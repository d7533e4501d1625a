# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""smt_proof.yml as users call it: in check mode on this machine, beside a host that is gone."""

from __future__ import annotations

import functools
import re

import pytest
import this_machine


@pytest.fixture(name="called")
def call_the_playbook(tmp_path):
    return functools.partial(this_machine.call, tmp_path, "smt_proof", hosts=["here"])


def test_check_mode_asks_the_kernel_and_its_tools_and_measures_nothing(called, tmp_path):
    run = called("--check", hosts=["here", "gone"], smt_proof_switch=False)
    assert run.returncode == 4, run.stdout + run.stderr
    assert "here: facts: holds. The facts say what these say of CPUs and cores: " in run.stdout
    assert "topology/core_cpus_list" in run.stdout and "lscpu" in run.stdout
    assert "here: equal arms: not known. Equal arms were not compared" in run.stdout
    assert "2 hosts: 1 on which all holds that was tried, 1 that could not be looked at." in run.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["inventory.yml"]


def test_what_would_be_done_to_siblings_is_said_before(called):
    """Of a machine without second threads, as this one may be, it is said that there is nothing to do."""
    run = called("--check")
    said = re.search("here: (would take its second threads offline once|no second thread is online)", run.stdout)
    assert said is not None and said.start() < run.stdout.index("here: switch: "), run.stdout
    assert "not measured: --check measures nothing." in run.stdout and "they were" not in run.stdout


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"smt_proof_second": 60, "smt_proof_seconds": 5, "smt_proof_switch": "perhaps"},
            ["smt_proof_second (set in", "smt_proof_seconds is 5", "smt_proof_switch is 'perhaps'"],
        ),
        ({"smt_proof_run": "../x"}, ["../x"]),
    ],
)
def test_wrong_values_are_named_before_anything_is_written(variables, said, called, tmp_path):
    run = called(**{"smt_proof_switch": False, **variables})
    whole = run.stdout + run.stderr
    assert run.returncode == 2 and all(one in whole for one in said), whole
    assert not list(tmp_path.glob("smt_proof*"))
