# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command of a check in a real shell, and answers that are none."""

from __future__ import annotations

import os
import subprocess

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import visit
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.trial_run import host_check

COMMANDS = [
    ["echo", "1.5"],
    ["false"],
    ["sh", "-c", "printf 'two\\nlines'; exit 3"],
    ["printf", "%s", "$(id) `id` ; '"],
    ["no-such-command"],
    ["yes", "0-7"],
]


def shell(line, folder=None, systemctl=""):
    """What a line prints, with this systemctl where a folder is given: (printed, status)."""
    if folder:
        (folder / "systemctl").write_text(f"#!/bin/sh\n{systemctl}\n")
        (folder / "systemctl").chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}" if folder else os.environ["PATH"]
    done = subprocess.run(["sh", "-c", line], check=False, capture_output=True, text=True, env={"PATH": path})
    return done.stdout, done.returncode


def test_a_check_in_a_shell():
    found = host_check.parse(shell(host_check.check(COMMANDS))[0], len(COMMANDS))
    with open("/sys/devices/system/cpu/online", encoding="ascii") as online:
        assert found.online == cpulist.parse(online.read())
    assert found.printed[:5] == ("1.5\n", "", "two\nlines", "$(id) `id` ; '", "")
    assert len(found.printed[5]) == host_check.MAX_OF_ONE, "what is printed without end is cut off"


@pytest.mark.parametrize(
    ("printed", "about"),
    [
        ("", "0 lines instead of 3"),
        ("0-3\n0\n", "2 lines instead of 3"),
        ("all\n0\nMQ==\n", "online CPUs"),
        ("0-99999\n0\nMQ==\n", "online CPUs"),
        ("0-3\n0\n\x1b[31m\n", "its commands printed"),
        (None, "instead of 3"),
    ],
)
def test_an_answer_that_is_none(printed, about):
    with pytest.raises(host_check.CheckError, match=about):
        host_check.parse(printed, 1)


@pytest.mark.parametrize(
    ("reload", "state", "is_armed"),
    [(0, "active", True), (1, "activating", True), (1, "inactive", False), (1, "failed", False)],
)
def test_whether_what_undoes_a_boot_waits(tmp_path, reload, state, is_armed):
    systemctl = f'[ "$1" = is-active ] && echo {state} && exit 3\nexit {reload}'
    printed, _status = shell(host_check.check((), visit.RENEW), tmp_path, systemctl)
    assert host_check.parse(printed, 0).is_armed is is_armed


@pytest.mark.parametrize(("status", "said"), [(0, "it cannot be rebooted"), (0, ""), (3, None)])
def test_what_a_pending_rollback_says(tmp_path, status, said):
    printed, code = shell(host_check.pending(), tmp_path, f'[ "$1" = show ] && echo "{said}"\nexit {status}')
    assert (printed.strip() if code == 0 else None) == said


@pytest.mark.parametrize(("line", "is_armed"), [("0", True), ("5", False), ("", False), ("x", False)])
def test_whether_the_timer_runs(line, is_armed):
    assert host_check.parse(f"0-3\n{line}\n", 0).is_armed is is_armed
