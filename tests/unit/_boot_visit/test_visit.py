# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose boot arguments undo themselves: everything is there before they are set, and gone when they are undone."""

from __future__ import annotations

import os
import subprocess
import sys

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._boot import change
from ansible_collections.threadwise.smt.plugins.module_utils._boot_visit import visit
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

NOSMT = change.Request("disabled", None, False, False)
MINE = [f"etc/systemd/system/{visit.UNIT}.timer", f"etc/systemd/system/{visit.UNIT}.service", visit.PROGRAM]
BOOT_ID = "proc/sys/kernel/random/boot_id"


@pytest.fixture(name="root")
def a_host(tmp_path):
    root = tmp_path / "host"
    root.mkdir()
    boot_maker.grub_tree(root)
    boot_maker.running(root)
    boot_maker.write(root, BOOT_ID, "11111111-1111-1111-1111-111111111111\n")
    (root / "run/systemd/system").mkdir(parents=True)
    return root


@pytest.fixture(name="systemctl")
def its_systemctl(monkeypatch):
    """What systemctl is asked for; a command in `fails` fails."""
    calls = []

    def run(argv):
        calls.append(argv[1:])
        return (1, "", "no") if argv[1] in run.fails else (0, "", "")

    run.fails = ()
    run.calls = calls
    monkeypatch.setattr(visit.processes, "run", run)
    return run


def is_there(root):
    return [os.path.lexists(root / path) for path in MINE]


def configured(root):
    return change.run(host_files.HostFs(str(root)), change.Request("enabled", None, False, True))["configured_before"]


def test_the_timer_runs_before_the_arguments_are_set(root, systemctl, monkeypatch):
    real = change.run

    def run(fs, request, *rest):
        if not request.check:
            assert is_there(root) == [True] * 3 and systemctl.calls[-1] == ["start", f"{visit.UNIT}.timer"]
        return real(fs, request, *rest)

    monkeypatch.setattr(visit.change, "run", run)
    assert visit.begin(host_files.HostFs(str(root)), NOSMT, 600)["arguments"] == ["nosmt"]
    assert systemctl.calls == [["daemon-reload"], ["enable", f"{visit.UNIT}.timer"], ["start", f"{visit.UNIT}.timer"]]
    assert "OnActiveSec=600\n" in (root / MINE[0]).read_text() and configured(root) == ["nosmt"]


@pytest.mark.parametrize("fails", ["daemon-reload", "enable", "start"])
def test_a_timer_that_does_not_start_leaves_nothing(root, systemctl, fails):
    systemctl.fails = (fails,)
    with pytest.raises(visit.VisitError, match=f"systemctl {fails}.*failed with status 1: no"):
        visit.begin(host_files.HostFs(str(root)), NOSMT, 600)
    assert is_there(root) == [False] * 3 and configured(root) == []


def test_arguments_that_cannot_be_set_leave_nothing(root, systemctl):
    (root / "mkconfig-fails").touch()
    with pytest.raises(change.ERRORS):
        visit.begin(host_files.HostFs(str(root)), NOSMT, 600)
    assert is_there(root) == [False] * 3


def test_a_host_with_arguments_of_its_own_or_another_visit_is_refused(root, systemctl):
    fs = host_files.HostFs(str(root))
    visit.begin(fs, NOSMT, 600)
    with pytest.raises(visit.VisitError, match="another trial has set its boot arguments"):
        visit.begin(fs, NOSMT, 600)
    visit.end(fs)
    change.run(fs, NOSMT)
    with pytest.raises(visit.VisitError, match="it does not boot with SMT on and without arguments for it"):
        visit.begin(fs, NOSMT, 600)


def test_what_a_killed_call_left_keeps_no_other_out(root, systemctl, monkeypatch):
    class KilledError(BaseException):
        pass

    def killed(argv):
        raise KilledError

    real = visit.processes.run
    monkeypatch.setattr(visit.processes, "run", killed)
    fs = host_files.HostFs(str(root))
    with pytest.raises(KilledError):
        visit.begin(fs, NOSMT, 600)
    assert is_there(root) == [True] * 3
    monkeypatch.setattr(visit.processes, "run", real)
    systemctl.fails = ("is-active",)
    assert visit.begin(fs, NOSMT, 600)["arguments"] == ["nosmt"]


@pytest.mark.parametrize("is_booted", [True, False])
def test_the_copy_on_the_host_undoes_it_and_reboots_only_what_was_booted(root, systemctl, monkeypatch, is_booted):
    visit.begin(host_files.HostFs(str(root)), NOSMT, 600)
    monkeypatch.undo()
    if is_booted:
        boot_maker.write(root, BOOT_ID, "22222222-2222-2222-2222-222222222222\n")
    tools = root.parent / "tools"
    tools.mkdir()
    (tools / "systemctl").write_text(f'#!/bin/sh\necho "$*" >>{root.parent}/asked\n')
    (tools / "systemctl").chmod(0o755)
    # As the service does: nothing of this collection is found elsewhere.
    command = [sys.executable, "-S", "-m", visit.__name__, str(root)]
    done = subprocess.run(command, cwd=root / visit.PROGRAM, env={"PATH": f"{tools}:{os.environ['PATH']}"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    asked = (root.parent / "asked").read_text().splitlines()
    assert ("reboot" in asked) == is_booted and f"disable {visit.UNIT}.timer" in asked
    assert is_there(root) == [False] * 3 and configured(root) == []
