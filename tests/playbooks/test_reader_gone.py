# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A playbook whose reader is gone, as with ``| head -1``, comes to its end: Ansible itself would wait for ever once one
of our lines could not be printed.
"""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
# Of a machine that is busy; without the care it never ends.
TIME_LIMIT = 600


@pytest.mark.parametrize(
    "call",
    [("smt_survey",), ("smt_compliance", "-e", "smt_policy=enabled"), ("smt_eval", "--check")],
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
