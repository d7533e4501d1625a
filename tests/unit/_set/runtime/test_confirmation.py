# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A confirmation and the rollback timer at the same time: the lock decides which of them is first,
and both report correctly.
"""

from __future__ import annotations

import concurrent.futures
import socket
import subprocess
import sys
import threading
import time

import old_python
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import service
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    change as smt_change,
    restore as smt_restore,
    state as smt_state,
    transition as smt_transition,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import (
    pending as pending_rollback,
    program,
    timer as rollback_timer,
)
from fake_host import Host

ALL, FIRST = list(range(8)), [0, 2, 4, 6]
# Time limit in seconds, to end what hangs.
TIME_LIMIT = 60
in_background = concurrent.futures.ThreadPoolExecutor().submit


@pytest.fixture(name="host")
def changed_host(tmp_path):
    """A host with a pending rollback whose timer has elapsed."""
    host = Host(tmp_path)
    host.ask("disabled", rollback_after=60)
    host.status = {"is-active": 3}
    return host


def online(host):
    return smt_state.read(files=host)["online"]


def confirm(host):
    return in_background(host.ask, "disabled", confirm=True)


def test_a_confirmation_during_the_rollback_is_too_late(host, monkeypatch):
    may_continue, started, waiting = threading.Event(), threading.Event(), threading.Event()
    restore, sleep = smt_transition.restore, locks.time.sleep
    monkeypatch.setattr(locks.time, "sleep", lambda seconds: (waiting.set(), sleep(seconds)))

    def held(*given):
        started.set()
        assert may_continue.wait(TIME_LIMIT)
        return restore(*given)

    monkeypatch.setattr(smt_transition, "restore", held)
    timer = in_background(host.roll_back)
    assert started.wait(TIME_LIMIT)
    confirming = confirm(host)
    assert waiting.wait(TIME_LIMIT)
    may_continue.set()
    timer.result(TIME_LIMIT)
    error = confirming.exception(TIME_LIMIT)
    assert isinstance(error, smt_change.ChangeRefusedError) and "was restored" in str(error) and online(host) == ALL
    # A later confirmation is refused, too, until somebody changes the host again.
    assert "too late" in str(confirm(host).exception(TIME_LIMIT))
    host.ask("disabled")
    assert host.ask("disabled", confirm=True)["changed"] is False


def test_a_timer_whose_time_is_over_after_the_confirmation_does_nothing(host):
    may_continue, started = threading.Event(), threading.Event()

    def held(command):
        if command[:2] == ["systemctl", "stop"]:
            started.set()
            assert may_continue.wait(TIME_LIMIT)

    host.before_command = held
    known = host.pending()
    confirming = confirm(host)
    assert started.wait(TIME_LIMIT)
    timer = in_background(program.Program(host, known, lambda _seconds: service.UNDO_NOW).run)
    # Without the lock, which may be taken for long.
    timer.result(TIME_LIMIT)
    may_continue.set()
    assert confirming.result(TIME_LIMIT)["rollback_pending"] is False
    assert online(host) == FIRST
    # A service that waits for the lock would roll back the next change.
    assert ["systemctl", "stop", rollback_timer.UNIT] in host.commands


def test_a_confirmation_does_not_repeat_a_change(host):
    host.write(smt_state.CONTROL, "on")
    with pytest.raises(smt_change.ChangeRefusedError, match=r"not in the state asked for.*still armed"):
        host.ask("disabled", confirm=True)
    assert online(host) == ALL and host.pending()


@pytest.mark.parametrize(
    "python", [sys.executable, pytest.param(old_python.PYTHON, marks=old_python.needed)], ids=["new", "old"]
)
def test_the_rollback_program_needs_only_its_own_file(host, python):
    """It uses only Python and what is in it.

    There is no kernel behind the files here, so it reports the CPUs that did not come online, and tries again.
    """
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd,
        subprocess.Popen(
            [python, "-BES", host.sysroot + "/" + rollback_timer.PROGRAM, host.sysroot],
            cwd=host.sysroot,
            env={"NOTIFY_SOCKET": bound(systemd)},
            stderr=subprocess.PIPE,
            text=True,
        ) as running,
    ):
        try:
            # As systemd does, which would end a program that does not listen yet.
            assert systemd.recv(100) == b"READY=1"
            running.send_signal(service.UNDO_NOW)
            assert "not rolled back yet: CPUs 1,3,5,7 were online, are offline" in running.stderr.readline()
            assert host.pending()
            host.write(smt_state.CONTROL, "on")
            running.send_signal(service.UNDO_NOW)
            assert running.stderr.readline() == "threadwise-smt: rolled back\n"
            assert running.wait(TIME_LIMIT) == 0
        finally:
            running.kill()
    assert host.pending() is None and pending_rollback.rolled_back(host_files.HostFs(host.sysroot))


def bound(receiver):
    """Bind a socket to a name that the kernel finds (unix(7), autobind); return it as systemd writes it."""
    receiver.settimeout(TIME_LIMIT)
    receiver.bind("")
    return "@" + receiver.getsockname()[1:].decode("ascii")


def test_a_change_that_comes_while_the_lock_is_awaited_has_its_own_time(host, monkeypatch):
    """The time is over, and another change that waits for its confirmation has the lock."""
    known, waited = host.pending(), []
    take = locks.HostLock._take

    def later(self):
        monkeypatch.setattr(locks.HostLock, "_take", take)
        pending_rollback.save(host_files.HostFs(host.sysroot), {**known, "since": time.monotonic()})
        take(self)

    def wait(seconds):
        assert online(host) == FIRST
        waited.append(seconds)
        return service.UNDO_NOW

    monkeypatch.setattr(locks.HostLock, "_take", later)
    program.Program(host, {**known, "seconds": 0}, wait).run()
    assert (online(host), len(waited)) == (ALL, 1)


@pytest.mark.parametrize("text", ['{"boot_id": "first", "cpu": {}, "masks": {}}', "[" * 100_000])
def test_a_damaged_record_is_named_and_the_rollback_goes_by_its_memory(host, text):
    known = host.pending()
    host.put(pending_rollback.PATH, text)
    assert any("timer-rollback.json cannot be used" in warning for warning in host.ask("disabled")["warnings"])
    program.Program(host, known, lambda _seconds: service.UNDO_NOW).run()
    assert online(host) == ALL


def test_a_record_that_is_damaged_restores_nothing(host):
    record = {**host.pending(), "masks": "etc/passwd"}
    with pytest.raises(smt_state.StateError, match=r"not a valid record"):
        smt_restore.restore(host, record)
    assert online(host) == FIRST
