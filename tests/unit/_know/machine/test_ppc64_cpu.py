# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ppc64_cpu of powerpc-utils says, on a guest with two cores of four threads; and what is hostile."""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.machine import ppc64_cpu

TOOL = "/usr/sbin/ppc64_cpu"


def read(monkeypatch, output="SMT=4\n", status=0, machine="ppc64le", tool=TOOL, root="/"):
    """Return (what is said, problems, whether the tool was run) of a host."""
    asked, fs = [], HostFs(root)

    def run(command):
        asked.append(command)
        return status, output, ""

    monkeypatch.setattr(ppc64_cpu.platform, "machine", lambda: machine)
    monkeypatch.setattr(ppc64_cpu.os, "access", lambda path, mode: path == tool)
    said = ppc64_cpu.read(fs, run)
    assert asked in ([], [[TOOL, "--smt"]])
    return said, fs.problems, bool(asked)


@pytest.mark.parametrize(
    ("output", "said"),
    [("SMT=4\n", "SMT=4"), ("SMT is off\n", "SMT is off"), ("SMT=1: 1*\nSMT=4: 0*\n", "SMT=1: 1*; SMT=4: 0*")],
)
def test_what_it_prints_is_shown(monkeypatch, output, said):
    assert read(monkeypatch, output) == (said, [], True)


@pytest.mark.parametrize(
    ("output", "status"),
    [
        ("", 0),
        ("SMT=4\n", 1),
        ("Machine is not SMT capable\n", 0),
        ("SMT=<script>\n", 0),
        ("SMT=4\n" * 2000, 0),
        ("SMT=\x1b[31m\n", 0),
    ],
)
def test_what_says_nothing_is_a_problem_and_no_fact(monkeypatch, output, status):
    said, (problem,), _asked = read(monkeypatch, output, status)
    assert said is None and "ppc64_cpu --smt" in problem and "\x1b" not in problem and len(problem) < 400


@pytest.mark.parametrize("host", [{"root": "/nothing"}, {"machine": "x86_64"}, {"tool": None}])
def test_nothing_is_run_for_a_recorded_tree_another_architecture_or_without_the_tool(monkeypatch, host):
    assert read(monkeypatch, **host) == (None, [], False)
