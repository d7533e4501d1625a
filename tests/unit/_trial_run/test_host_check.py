# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command of a check in a real shell, and answers that are none."""

from __future__ import annotations

import os
import subprocess

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.plugin_utils._boots import visit
from ansible_collections.threadwise.smt.plugins.plugin_utils._trial_run import host_check

COMMANDS = [
    ["echo", "1.5"],
    ["false"],
    ["sh", "-c", "printf 'two\\nlines'; exit 3"],
    ["printf", "%s", "$(id) `id` ; '"],
    ["no-such-command"],
]


def test_a_check_in_a_shell():
    printed = subprocess.run(
        ["sh", "-c", host_check.check(COMMANDS)], check=True, capture_output=True, text=True
    ).stdout
    found = host_check.parse(printed, len(COMMANDS))
    with open("/sys/devices/system/cpu/online", encoding="ascii") as online:
        assert found.online == cpulist.parse(online.read())
    assert found.printed == ("1.5\n", "", "two\nlines", "$(id) `id` ; '", "")


def test_what_a_command_prints_without_end_is_cut_off():
    commands = [["yes", "0-7"], ["echo", "2"]]
    printed = subprocess.run(
        ["sh", "-c", host_check.check(commands)], check=True, capture_output=True, text=True
    ).stdout
    first, second = host_check.parse(printed, 2).printed
    assert len(first) == host_check.MAX_OF_ONE and second == "2\n"


@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        ("", "0 lines instead of 3"),
        ("0-3\n0\n", "2 lines instead of 3"),
        ("all\n0\nMQ==\n", "the list of online CPUs cannot be read"),
        ("0-99999\n0\nMQ==\n", "the list of online CPUs cannot be read"),
        ("0-3\n0\n\x1b[31m\n", "what its commands printed cannot be read"),
        (None, "instead of 3"),
    ],
)
def test_an_answer_that_is_none(printed, sentence):
    with pytest.raises(host_check.CheckError, match=sentence):
        host_check.parse(printed, 1)


@pytest.mark.parametrize(
    ("reload", "state", "is_armed"),
    [(0, "active", True), (1, "activating", True), (1, "inactive", False), (1, "failed", False)],
)
def test_whether_what_undoes_a_boot_waits(tmp_path, reload, state, is_armed):
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\n[ "$1" = is-active ] && echo {state} && exit 3\nexit {reload}\n')
    (tmp_path / "systemctl").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    line = host_check.check((), visit.RENEW)
    printed = subprocess.run(["sh", "-c", line], check=True, capture_output=True, text=True, env=environment).stdout
    assert host_check.parse(printed, 0).is_armed is is_armed


@pytest.mark.parametrize(("is_active", "said"), [(True, "it cannot be rebooted"), (True, ""), (False, None)])
def test_what_a_pending_rollback_says(tmp_path, is_active, said):
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\n[ "$1" = show ] && echo "{said}"\nexit {0 if is_active else 3}\n')
    (tmp_path / "systemctl").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", host_check.pending()], check=False, capture_output=True, text=True, env=environment
    )
    assert (done.stdout.strip() if done.returncode == 0 else None) == said


@pytest.mark.parametrize(("line", "is_armed"), [("0", True), ("5", False), ("", False), ("x", False)])
def test_whether_the_timer_runs(line, is_armed):
    assert host_check.parse(f"0-3\n{line}\n", 0).is_armed is is_armed
