# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The watchdog and the lock, with real processes and real signals on synthetic trees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import locks
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import affinity
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    state as smt_state,
    transition as smt_transition,
    watchdog,
)
from fake_kernel import FakeKernel, numbered_cores

CORES = numbered_cores(4, 2, "adjacent")


class Dying(FakeKernel):
    """A kernel whose writer is killed before its n-th write."""

    left = 0

    def write(self, path, text):
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        super().write(path, text)


def fresh(sysroot):
    """A kernel with the CPUs that the tree shows now, as another process sees it."""
    state = smt_state.read(sysroot)
    kernel = FakeKernel.__new__(FakeKernel)
    online = set(state["online"])
    FakeKernel.__init__(kernel, sysroot, CORES, control=None, offline=set(state["present"]) - online)
    return kernel


def in_child(work):
    """Exit status of ``work()`` in a process of its own."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(99)
    return os.waitpid(pid, 0)[1]


def wait_until(is_true):
    # The limit only ends what hangs.
    for _attempt in range(12000):
        if is_true():
            return
        time.sleep(0.05)
    pytest.fail("did not come true")


@pytest.mark.night(after=2)
@pytest.mark.parametrize(("only", "writes"), [(None, 3), ({3, 4}, 1), (None, 0), (None, 1), (None, 2), ({3, 4}, 0)])
def test_killed_between_two_writes(tmp_path, only, writes):
    kernel = Dying(tmp_path, CORES, control=None)
    kernel.left = writes
    before = smt_state.read(tmp_path)
    log = tmp_path / "watchdog.log"

    def change():
        def restore():
            return smt_transition.restore("", before, files=fresh(tmp_path))

        with watchdog.Watchdog(str(log), restore):
            smt_transition.set_threads_per_core("", CORES, 1, files=kernel, only=only and frozenset(only))

    assert os.WTERMSIG(in_child(change)) == signal.SIGKILL
    wait_until(lambda: "restored, because" in log.read_text())
    assert smt_state.read(tmp_path) == before and "ended before its change was complete" in log.read_text()


def test_a_full_disk_does_not_keep_it_from_restoring(tmp_path, monkeypatch):
    """The file /dev/full takes no byte (full(4)). What is said goes to the kernel's log instead, afterwards."""
    done, kernel_log = tmp_path / "done", tmp_path / "kmsg"
    kernel_log.write_text("")
    monkeypatch.setattr(watchdog, "KERNEL_LOG", str(kernel_log))

    def restore():
        done.write_text("x" if kernel_log.read_text() == "" else "too late")
        return []

    def change():
        watchdog.Watchdog("/dev/full", restore).arm()
        os.kill(os.getpid(), signal.SIGKILL)

    assert os.WTERMSIG(in_child(change)) == signal.SIGKILL
    wait_until(kernel_log.read_text)
    assert done.read_text() == "x" and "threadwise-smt: restored, because" in kernel_log.read_text()


def test_it_tries_again_until_the_host_is_restored(tmp_path, monkeypatch):
    monkeypatch.setattr(watchdog, "PAUSES_SECONDS", (0.01, 0.01))
    monkeypatch.setattr(watchdog, "LATER_PAUSE_SECONDS", 0.01)
    attempts, log, reaped = tmp_path / "attempts", tmp_path / "log", tmp_path / "reaped"
    gone = affinity.Harmless("pid 7 is gone")

    def restore():
        # A process that is not reaped counts as awaited, for which it gives up earlier.
        wait_until(reaped.exists)
        with attempts.open("a") as stream:
            stream.write("x")
        number = len(attempts.read_text())
        if number == 1:
            raise MemoryError
        return ["CPU 3 was online, is offline"] if number < 6 else [gone]

    def change():
        watchdog.Watchdog(str(log), restore).arm()
        os.kill(os.getpid(), signal.SIGKILL)

    in_child(change)
    reaped.touch()
    wait_until(lambda: log.exists() and "restored, because" in log.read_text())
    assert attempts.read_text() == "x" * 6, "more attempts than pauses, and none after the host is restored"
    said = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    assert len(said) == 3 and said[1].endswith("CPU 3 was online, is offline") and said[2].endswith("; pid 7 is gone")


def test_the_watchdog_outlives_the_session_and_a_child_that_holds_the_pipe(tmp_path):
    done = tmp_path / "done"
    pid_file = tmp_path / "child.pid"

    def restore():
        done.write_text("x")
        return []

    def change():
        os.setsid()
        watchdog.Watchdog(str(tmp_path / "log"), restore).arm()
        child = os.fork()
        if child == 0:
            os.setsid()
            time.sleep(60)
            os._exit(0)
        pid_file.write_text(str(child))
        os.killpg(0, signal.SIGKILL)

    assert os.WTERMSIG(in_child(change)) == signal.SIGKILL
    try:
        wait_until(done.exists)
    finally:
        os.kill(int(pid_file.read_text()), signal.SIGKILL)


def test_time_limit(tmp_path):
    done = tmp_path / "done"

    def change():
        watchdog.Watchdog(str(tmp_path / "log"), lambda: done.write_text("x") and [], seconds=0.1).arm()
        time.sleep(60)

    assert os.WTERMSIG(in_child(change)) == signal.SIGKILL
    wait_until(done.exists)


def test_the_lock_is_held_until_the_watchdog_has_restored(tmp_path):
    go = tmp_path / "go"

    def restore():
        wait_until(go.exists)
        return []

    def change():
        with locks.HostLock(str(tmp_path), "smt_state") as lock:
            watchdog.Watchdog(str(tmp_path / "log"), restore, keep=[lock.descriptor]).arm()
            os.kill(os.getpid(), signal.SIGKILL)

    in_child(change)
    with (
        pytest.raises(locks.HostLockError, match=r"is being restored after smt_state .pid [0-9]+. died"),
        locks.HostLock(str(tmp_path), "the next"),
    ):
        pytest.fail("while the watchdog restores")
    go.write_text("")
    with locks.HostLock(str(tmp_path), "the next", seconds=600):
        pass


IMPORT = f"import sys\nsys.path[:0] = {sys.path!r}\nfrom {locks.__name__.rpartition('.')[0]} import locks\n"


@pytest.mark.parametrize(
    ("connection", "said"), [("192.0.2.7 50123 192.0.2.1 22", " from 192.0.2.7 port 50123\n"), ("1.2.3.4 1\x1b[2J", "")]
)
def test_the_connection_of_who_holds_the_lock(connection, said):
    """Sudo removes it from the environment: it is found in that of an ancestor, here a shell."""
    environment = dict(os.environ, SSH_CONNECTION=connection, PROGRAM=IMPORT + "print(locks.requester())")
    command = ["sh", "-c", 'env -u SSH_CONNECTION "$0" -c "$PROGRAM"; true', sys.executable]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert "for user" in printed and printed.endswith(said) and ("from" in printed) == bool(said)


def test_hostile_text_of_a_holder(tmp_path):
    with locks.HostLock(str(tmp_path), "x"):
        (tmp_path / locks.LOCK).write_text(f"{os.getpid()} a\x1b[2Jb\nfor user \x07\n")
        with pytest.raises(locks.HostLockError) as error, locks.HostLock(str(tmp_path), "y"):
            pytest.fail("two at once")
    assert str(error.value).isprintable()
