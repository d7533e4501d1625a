# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A playbook whose reader is gone, as with ``| head -1``, comes to its end: Ansible itself would wait for ever once one
of our lines could not be printed.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
from this_machine import SHORT, this_machine

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Of a machine that is busy; without the care it never ends.
TIME_LIMIT = 600


@pytest.mark.parametrize(
    "call",
    [
        ("smt_survey",),
        ("smt_compliance", "-e", "smt_policy=enabled"),
        ("smt_eval", "--check"),
        # The look itself would take a day.
        ("smt_exposure", "-e", "smt_exposure_seconds=86400"),
    ],
    ids=lambda one: one[0],
)
def test_a_reader_that_is_gone_after_the_first_line(tmp_path, call):
    name, *words = call
    with subprocess.Popen(
        [
            pathlib.Path(sys.executable).with_name("ansible-playbook"),
            "-i",
            REPOSITORY / "tools/this-machine.yml",
            f"threadwise.smt.{name}",
            *words,
        ],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        try:
            process.wait(TIME_LIMIT)
        finally:
            process.kill()


@pytest.mark.night
def test_a_reader_that_goes_in_the_middle_ends_the_plan_and_the_host_is_restored(tmp_path):
    """As the end of a pager does. What was measured is fetched; its report can be built later."""
    options = {**SHORT, "smt_eval_run": "one", "smt_eval_budget": 600, "smt_eval_goal": "precision"}
    options |= {"smt_eval_margin": 0.0001, "smt_eval_progress": 1000}
    with (
        this_machine(),
        subprocess.Popen(
            [
                pathlib.Path(sys.executable).with_name("ansible-playbook"),
                "-i",
                REPOSITORY / "tools/this-machine.yml",
                "threadwise.smt.smt_eval",
                "-e",
                json.dumps(options),
            ],
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):
        next(line for line in process.stdout if " left" in line)
        process.stdout.close()
        try:
            # Much less than its budget is what it takes; nothing is asserted of it.
            assert process.wait(TIME_LIMIT) == 2
        finally:
            process.kill()
    result = json.loads((tmp_path / "smt_eval_results/one/localhost.json").read_text(encoding="utf-8"))
    assert result["outcome"] == "interrupted" and result["restored"]["ok"], result["message"]
    assert not (tmp_path / "smt_eval_results/one/index.html").exists()
