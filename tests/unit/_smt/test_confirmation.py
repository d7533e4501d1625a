# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A confirmation and the rollback timer at the same time: the lock decides which of them is first, and both report correctly."""

from __future__ import annotations

import subprocess
import sys
import threading

import old_python
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._benchmark import steps
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._smt import change as smt_change, restore as smt_restore, rollback_timer, state as smt_state
from fake_host import Host

ALL, FIRST = list(range(8)), [0, 2, 4, 6]
# Time limit in seconds, to end what hangs.
TIME_LIMIT = 600


@pytest.fixture(name="host")
def changed_host(tmp_path):
    """A host with a pending rollback whose timer has elapsed."""
    host = Host(tmp_path)
    host.ask("disabled", rollback_after=60)
    host.status = {"is-active": 3}
    return host


class Background(threading.Thread):
    """Work in the background, with its result or error."""

    def __init__(self, work):
        super().__init__(daemon=True)
        self.work, self.result, self.error = work, None, None
        self.start()

    def run(self):
        try:
            self.result = self.work()
        except Exception as error:
            self.error = error

    def ended(self):
        self.join(TIME_LIMIT)
        assert not self.is_alive()
        return self


@pytest.fixture(name="waiting")
def lock_is_awaited(monkeypatch):
    """An event that is set when a process waits for the host's lock."""
    seen = threading.Event()
    sleep = locks.time.sleep

    def look(seconds):
        seen.set()
        sleep(seconds)

    monkeypatch.setattr(locks.time, "sleep", look)
    return seen


def online(host):
    return smt_state.read(files=host)["online"]


def confirm(host):
    return Background(lambda: host.ask("disabled", confirm=True))


def test_a_third_holder_of_the_lock_does_not_matter(host, waiting):
    """Either of the two may get the lock first when a third one releases it. The reported result is correct."""
    with locks.HostLock(host.sysroot, "a third run"):
        confirming = confirm(host)
        timer = Background(lambda: smt_restore.roll_back(host))
        assert waiting.wait(TIME_LIMIT)
        assert confirming.is_alive() and timer.is_alive() and online(host) == FIRST
    timer.ended()
    if confirming.ended().error is None:
        assert (online(host), confirming.result["rollback_pending"]) == (FIRST, False)
    else:
        assert online(host) == ALL and "too late" in str(confirming.error)


def test_a_change_waits_for_another_one(host, waiting):
    """Two controllers that change one host at once both succeed, one after the other."""
    with locks.HostLock(host.sysroot, "smt_state"):
        second = Background(lambda: host.ask("enabled"))
        assert waiting.wait(TIME_LIMIT) and second.is_alive()
        assert online(host) == FIRST
    assert second.ended().error is None
    assert online(host) == ALL


def test_a_confirmation_during_the_rollback_is_too_late(host, waiting, monkeypatch):
    may_continue, started = threading.Event(), threading.Event()
    restore = smt_state.restore

    def held(*given):
        started.set()
        assert may_continue.wait(TIME_LIMIT)
        return restore(*given)

    monkeypatch.setattr(smt_state, "restore", held)
    timer = Background(lambda: smt_restore.roll_back(host))
    assert started.wait(TIME_LIMIT)
    confirming = confirm(host)
    assert waiting.wait(TIME_LIMIT)
    may_continue.set()
    assert timer.ended().result == []
    error = confirming.ended().error
    assert isinstance(error, smt_change.ChangeRefusedError) and "too late" in str(error) and "was restored" in str(error)
    assert online(host) == ALL
    # A later confirmation is refused, too, until somebody changes the host again.
    assert "too late" in str(confirm(host).ended().error)
    host.ask("disabled")
    assert host.ask("disabled", confirm=True)["changed"] is False


def test_a_timer_that_gets_the_lock_after_the_confirmation_does_nothing(host, waiting):
    may_continue, started = threading.Event(), threading.Event()

    def held(command):
        if command[:2] == ["systemctl", "stop"]:
            started.set()
            assert may_continue.wait(TIME_LIMIT)

    host.before_command = held
    confirming = confirm(host)
    assert started.wait(TIME_LIMIT)
    timer = Background(lambda: smt_restore.roll_back(host))
    assert waiting.wait(TIME_LIMIT)
    may_continue.set()
    assert confirming.ended().error is None and confirming.result["rollback_pending"] is False
    assert timer.ended().result == [] and online(host) == FIRST
    stopped = next(command for command in host.commands if command[:2] == ["systemctl", "stop"])
    assert {rollback_timer.UNIT + ".timer", rollback_timer.UNIT + ".service"} <= set(stopped), (
        "a service that waits for the lock would roll back the next change"
    )


def test_a_confirmation_does_not_repeat_a_change(host):
    host.write(smt_state.CONTROL, "on")
    with pytest.raises(smt_change.ChangeRefusedError, match=r"is not in the state asked for.*still armed"):
        host.ask("disabled", confirm=True)
    assert online(host) == ALL and smt_restore.pending(host_files.HostFs(host.sysroot))


def test_a_second_change_is_rolled_back_with_the_first(host):
    """All changes that are not confirmed are rolled back at once."""
    host.status = {}
    host.ask(threads=2, rollback_after=60)
    host.write(smt_state.CPU_DIRECTORY + "/cpu5/online", "0")
    host.ask("disabled", method="cpu_online")
    assert smt_restore.roll_back(host) == []
    assert (online(host), host.saved()) == (ALL, None)


def test_a_second_change_that_fails_keeps_the_pending_rollback(host):
    host.refusals = {(3, True): 16}
    with pytest.raises(smt_state.StateError):
        host.ask("enabled", rollback_after=60)
    host.refusals = {}
    assert online(host) == FIRST
    assert smt_restore.roll_back(host) == [] and online(host) == ALL


def test_restored_can_wait_for_a_confirmation_too(host):
    host.status = {}
    assert host.ask("restored", rollback_after=60)["rollback_pending"] is True and smt_restore.pending(host_files.HostFs(host.sysroot))
    assert host.ask("restored", confirm=True)["rollback_pending"] is False and online(host) == ALL and not smt_restore.pending(host_files.HostFs(host.sysroot))


def test_a_record_of_another_boot_is_ignored(host):
    host.boot("second")
    assert smt_restore.pending(host_files.HostFs(host.sysroot)) is None
    assert smt_restore.roll_back(host) == [] and online(host) == FIRST
    assert host.ask("disabled", confirm=True)["rollback_pending"] is False


@pytest.mark.parametrize("python", [sys.executable, pytest.param(old_python.PYTHON, marks=old_python.needed)], ids=["new", "old"])
def test_the_rollback_program_needs_only_its_own_files(host, python):
    """It uses only Python and its copied files. There is no kernel behind the files here, so it reports the CPUs that did not come online."""
    program = f"import runpy, sys; sys.path.insert(0, '.'); runpy.run_module({rollback_timer.PACKAGE + '._smt.restore'!r}, run_name='__main__')"
    done = subprocess.run(
        [python, "-I", "-c", program, host.sysroot], cwd=host.sysroot + "/" + rollback_timer.PROGRAM, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines() == ["threadwise-smt: CPUs 1,3,5,7 were online, are offline"]
    assert smt_restore.pending(host_files.HostFs(host.sysroot)) is None and smt_restore.was_rolled_back(host_files.HostFs(host.sysroot))


def test_no_evaluation_starts_while_a_rollback_is_pending(host):
    with pytest.raises(locks.HostLockError, match=r"waits to be confirmed"):
        steps._see_that_no_change_waits(host_files.HostFs(host.sysroot))
    host.ask("disabled", confirm=True)
    steps._see_that_no_change_waits(host_files.HostFs(host.sysroot))


@pytest.mark.parametrize("text", ["{", "[]", '{"boot_id": "first"}', '{"boot_id": "first", "cpu": {}, "masks": {}, "remove": []}', "[" * 100_000])
def test_a_damaged_record_rolls_nothing_back_and_is_named(host, text):
    host.put(smt_restore.PENDING.path, text)
    problems = smt_restore.roll_back(host)
    assert len(problems) == 1 and "timer-rollback.json cannot be used" in problems[0] and online(host) == FIRST
    assert any("timer-rollback.json cannot be used" in warning for warning in host.ask("disabled")["warnings"])


def test_a_record_whose_file_list_is_damaged_restores_nothing(host):
    record = {**smt_restore.pending(host_files.HostFs(host.sysroot)), "remove": "etc/passwd"}
    with pytest.raises(smt_state.StateError, match=r"list of files to remove is not valid"):
        smt_restore.restore(host, record)
    assert online(host) == FIRST
