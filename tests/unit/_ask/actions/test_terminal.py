# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether somebody reads what the process that an action was started by writes."""

from __future__ import annotations

import contextlib
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
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.actions import terminal
pathlib.Path({path!r}).write_text(str(terminal.is_read(terminal.STDOUT)))
"""


@pytest.mark.parametrize(("target", "is_read"), [("pipe", True), ("pipe", False), (os.devnull, True), ("a file", True)])
def test_only_a_pipe_whose_reader_is_gone_is_not_read(tmp_path, target, is_read):
    said = tmp_path / "said"
    with contextlib.ExitStack() as opened:
        stream = subprocess.PIPE if target == "pipe" else opened.enter_context(open(tmp_path / target, "wb"))
        command = [sys.executable, "-c", PROGRAM, CHILD.format(path=str(said))]
        parent = opened.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=stream))
        if target == "pipe":
            assert parent.stdout.readline() == b"ready\n"
        if not is_read:
            parent.stdout.close()
        parent.stdin.write(b"\n")
        parent.stdin.close()
        assert parent.wait() == 0
    assert said.read_text() == str(is_read)
