# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether somebody reads what the process that an action was started by writes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

# The parent has the pipe; the child asks, as an action does, and has other descriptors.
PROGRAM = """
import subprocess, sys
print("ready", flush=True)
sys.stdin.readline()
subprocess.run([sys.executable, "-c", sys.argv[1]], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
"""
CHILD = """
import pathlib
from ansible_collections.threadwise.smt.plugins.plugin_utils._actions import terminal
pathlib.Path({path!r}).write_text(str(terminal.is_read(terminal.STDOUT)))
"""


@pytest.mark.parametrize("is_read", [True, False])
def test_a_pipe_whose_reader_is_gone(tmp_path, is_read):
    said = tmp_path / "said"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, CHILD.format(path=str(said))], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout.readline() == b"ready\n"
        if not is_read:
            parent.stdout.close()
        parent.stdin.write(b"\n")
        parent.stdin.close()
        assert parent.wait() == 0
    assert said.read_text() == str(is_read)


@pytest.mark.parametrize("target", [os.devnull, "a file"])
def test_what_is_no_pipe_is_read(tmp_path, target):
    said = tmp_path / "said"
    with open(tmp_path / target if target == "a file" else target, "w", encoding="ascii") as stream:
        subprocess.run(
            [sys.executable, "-c", PROGRAM, CHILD.format(path=str(said))], input=b"\n", stdout=stream, check=True
        )
    assert said.read_text() == "True"
