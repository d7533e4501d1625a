# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ppc64_cpu says.

The outputs are those of powerpc-utils on a guest with two cores of four threads, but for the hostile ones.
"""

from __future__ import annotations

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._facts import ppc64_cpu
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs

TOOL = "/usr/sbin/ppc64_cpu"


@pytest.fixture(name="power")
def a_power_host(monkeypatch):
    """A POWER host that has the tool."""
    monkeypatch.setattr(ppc64_cpu.platform, "machine", lambda: "ppc64le")
    monkeypatch.setattr(ppc64_cpu.os, "access", lambda path, mode: path == TOOL)


def answer(output, status=0, errors=""):
    asked = []

    def run(command):
        asked.append(command)
        return status, output, errors

    return run, asked


@pytest.mark.parametrize(
    ("output", "said"),
    [("SMT=4\n", "SMT=4"), ("SMT is off\n", "SMT is off"), ("SMT=1: 1*\nSMT=4: 0*\n", "SMT=1: 1*; SMT=4: 0*")],
)
@pytest.mark.usefixtures("power")
def test_what_it_prints_is_shown(output, said):
    run, asked = answer(output)
    fs = HostFs("/")
    assert ppc64_cpu.read(fs, run) == said
    assert asked == [[TOOL, "--smt"]] and fs.problems == []


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
@pytest.mark.usefixtures("power")
def test_what_says_nothing_is_a_problem_and_no_fact(output, status):
    run, _asked = answer(output, status)
    fs = HostFs("/")
    assert ppc64_cpu.read(fs, run) is None
    assert len(fs.problems) == 1 and "ppc64_cpu --smt" in fs.problems[0] and "\x1b" not in fs.problems[0]


@pytest.mark.usefixtures("power")
def test_nothing_is_run_for_a_recorded_tree(tmp_path):
    run, asked = answer("SMT=4\n")
    assert ppc64_cpu.read(HostFs(str(tmp_path)), run) is None and asked == []


def test_nothing_is_run_on_another_architecture_or_without_the_tool(monkeypatch):
    run, asked = answer("SMT=4\n")
    monkeypatch.setattr(ppc64_cpu.os, "access", lambda path, mode: True)
    assert ppc64_cpu.read(HostFs("/"), run) is None
    monkeypatch.setattr(ppc64_cpu.platform, "machine", lambda: "ppc64")
    monkeypatch.setattr(ppc64_cpu.os, "access", lambda path, mode: False)
    assert ppc64_cpu.read(HostFs("/"), run) is None
    assert asked == []
