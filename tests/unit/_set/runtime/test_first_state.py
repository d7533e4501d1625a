# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts in a state of their own: the first state and the one before a change that is not confirmed,
threads of SCHED_DEADLINE, and disks without room.
"""

from __future__ import annotations

import contextlib
import errno
import json
import pathlib
import shutil

import faults
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.resident import archive
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    change as smt_change,
    frame as smt_frame,
    restore as smt_restore,
    state as smt_state,
    transition as smt_transition,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.at_boot import persistence
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import (
    pending as pending_rollback,
    timer as rollback_timer,
)
from fake_host import CORES, Host

ALL, ONE_EACH, PART = list(range(8)), [0, 2, 4, 6], [0, 1, 2, 3, 4, 6]


@pytest.fixture(name="host")
def fake_host(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "build", lambda *_arguments: b"the program")
    return Host(tmp_path)


def online(host):
    return smt_state.read(files=host)["online"]


PART_OFF = {"state": "disabled", "cores": {"cpus": "4-7"}}


def test_a_cpu_that_was_off_on_purpose_stays_so_after_a_rollback(host):
    host.write(smt_state.CPU_DIRECTORY + "/cpu3/online", "0")
    host.ask("disabled")
    host.ask("restored", rollback_after=60)
    host.roll_back()
    assert online(host) == ONE_EACH
    host.ask("enabled")
    assert online(host) == [0, 1, 2, 4, 5, 6, 7]
    host.ask("restored")
    assert (online(host), host.saved()) == ([0, 1, 2, 4, 5, 6, 7], None)


def test_a_timer_that_cannot_be_started_leaves_nothing(host):
    host.status = {"systemd-run": 1}
    with pytest.raises(rollback_timer.RollbackTimerError, match=r"did not start the rollback timer"):
        host.ask("disabled", rollback_after=60)
    assert (online(host), host.saved(), host.pending()) == (ALL, None, None)
    host.write(smt_state.CPU_DIRECTORY + "/cpu3/online", "0")
    assert host.ask("restored")["changed"] is False and 3 not in online(host)


def test_somebody_elses_change_is_not_confirmed_by_another_one(host):
    assert host.ask("disabled", rollback_after=60)["rollback_started"] is True
    again = host.ask("disabled", rollback_after=60)
    assert (again["changed"], again["rollback_pending"], again["rollback_started"]) == (False, True, False)
    assert any("waits for its confirmation, and is rolled back in about" in warning for warning in again["warnings"])


@pytest.mark.parametrize("persist", ["none", "tmpfiles", "systemd"])
def test_back_to_a_part_with_its_files(host, persist):
    fs = host_files.HostFs(host.sysroot)
    host.ask(**PART_OFF, persist=persist)
    before = {path: host.read(path) for path in persistence.PATHS if ".wants" not in path}
    frame = json.loads(json.dumps(smt_frame.present(host, fs)))
    host.ask("disabled", persist="tmpfiles" if persist == "systemd" else "none")
    done = host.ask("previous", frame=frame)
    assert (done["changed"], online(host), host.saved()["cpu"]["online"]) == (True, PART, ALL)
    assert {path: host.read(path) for path in before} == before
    assert host.ask("previous", frame=frame)["changed"] is False
    host.ask("restored")
    assert (online(host), host.saved(), persistence.is_kept(fs)) == (ALL, None, False)


@pytest.mark.parametrize("persist", ["none", "systemd"])
def test_a_core_that_is_off_on_purpose_leaves_nothing_to_confirm(host, persist):
    """The kernel shows no core of CPUs that are offline: that they are one is found by trying."""
    for cpu in (2, 3):
        host.write(f"sys/devices/system/cpu/cpu{cpu}/online", "0")
    was = online(host)
    done = host.ask(threads=2, persist=persist, rollback_after=60)
    assert (done["changed"], done["rollback_pending"], done["rollback_started"]) == (persist != "none", False, False)
    assert (online(host), host.pending(), host.saved(), host.is_waiting) == (was, None, None, False)
    assert persistence.is_kept(host_files.HostFs(host.sysroot)) == (persist != "none")


# Threads of SCHED_DEADLINE: kernels divide by zero when a CPU goes offline on which one sleeps (seen with 6.1)

REQUESTS = {
    "one by one": {"state": "disabled", "method": "cpu_online"},
    "of some cores, in check mode": {"state": "disabled", "cores": {"cpus": "4-7"}, "check": True},
    "by a number": {"threads": 1},
    "with what overrides conflicts": {"state": "disabled", "affinity_conflicts": "warn", "conflicts_of": []},
    "with a rollback": {"state": "disabled", "rollback_after": 60},
}
# Folder below /proc, name, flags, policy (fields 9 and 41 of stat), and whether it counts.
THREADS = {
    "a later thread": ("500/task/512", "worker 2) S", 0x400000, 6, True),
    "a user's name for it": ("500/task/500", "sugov:0", 0x400000, 6, True),
    "another thread of the kernel": ("60/task/60", "irq/24-nvme0q1", 0x208040, 6, True),
    "schedutil's": ("60/task/60", "sugov:0", 0x208040, 6, False),
    "of SCHED_FIFO": ("500/task/500", "jackd", 0x400000, 1, False),
}


def put(host, folder="500/task/500", name="cyclicdl", flags=0x400000, policy=6):
    thread = folder.rpartition("/")[2]
    fields = ["S", "1", *["0"] * 4, str(flags), *["0"] * 12, "1000", *["0"] * 18, str(policy), *["0"] * 11]
    host.put(f"proc/{folder}/stat", f"{thread} ({name}) {' '.join(fields)}\n")


@pytest.mark.parametrize("request_options", REQUESTS.values(), ids=REQUESTS)
def test_nothing_goes_offline_whatever_is_asked_for(host, request_options):
    put(host)
    with pytest.raises(smt_change.ChangeRefusedError, match=r"SCHED_DEADLINE.*pid 500 cyclicdl\. .*chrt"):
        host.ask(**request_options)
    assert (host.writes, host.saved(), host.pending()) == ([], None, None)


@pytest.mark.parametrize(("folder", "name", "flags", "policy", "counts"), THREADS.values(), ids=THREADS)
def test_which_threads_count(host, folder, name, flags, policy, counts):
    put(host, folder, name, flags, policy)
    if counts:
        with pytest.raises(smt_change.ChangeRefusedError, match=f"pid {folder.rpartition('/')[2]} "):
            host.ask("disabled")
    else:
        assert host.ask("disabled")["after"]["online"] == "0,2,4,6"


def test_what_only_brings_cpus_online_is_not_refused(host):
    host.ask("disabled")
    put(host)
    assert host.ask("disabled")["changed"] is False
    assert (host.ask("enabled")["changed"], online(host)) == (True, ALL)


def test_what_goes_back_by_itself_waits_for_the_last_of_them(tmp_path):
    """The rollback of a change that brought CPUs online, the watchdog, and the end of an evaluation."""
    host = Host(tmp_path, control="off")
    host.ask("enabled", rollback_after=60)
    put(host)
    left = smt_restore.left(smt_restore.restore(host, host.pending()))
    assert (["pid 500 cyclicdl" in one for one in left], online(host)) == ([True, True], ALL)
    shutil.rmtree(pathlib.Path(host.sysroot, "proc/500"))
    assert (smt_restore.restore(host, host.pending()), online(host)) == ([], ONE_EACH)


def test_one_that_begins_after_the_look_at_them_is_seen_before_the_write(host):
    put(host)
    with pytest.raises(smt_state.StateError, match="pid 500"):
        smt_transition.disable(host.sysroot, CORES, files=host)
    assert host.writes == []


def test_unknown_cores_are_not_looked_at(tmp_path):
    """Which of their CPUs would have to go offline again is known afterwards."""
    host = Host(tmp_path, control="off")
    put(host)
    with pytest.raises(smt_state.StateError, match="pid 500"):
        host.ask("disabled", cores={"cpus": "0"})
    assert (host.writes, online(host)) == ([], ONE_EACH)


# What brings CPUs back needs no room on any disk; what takes them offline is saved before

BACK = {
    "restored": {"state": "restored"},
    "enabled": {"state": "enabled"},
    "two threads": {"threads": 2},
    "a part of it": {"state": "disabled", "cores": {"cpus": "4-7"}},
    "one by one": {"state": "enabled", "method": "cpu_online"},
    "with a rollback": {"state": "restored", "rollback_after": 60},
}
FULL = {"full": errno.ENOSPC, "no quota left": errno.EDQUOT, "read-only": errno.EROFS}
# By day each request and each disk.
CASES = [(BACK[back], list(FULL)[(number + turn) % 3]) for turn in range(3) for number, back in enumerate(BACK)]


@contextlib.contextmanager
def full(host, kind):
    """Nothing that takes room on a disk is written, on a read-only one nothing; files of the kernel take none."""
    host.faults = faults.Faults()
    host.faults.number = FULL[kind]
    host.faults.plan("full", 0)
    with host.faults.installed():
        yield
    host.faults = None


@pytest.mark.night(after=6)
@pytest.mark.parametrize(("back", "kind"), CASES)
def test_cpus_come_back_and_what_was_saved_stays(host, back, kind):
    host.ask("disabled", persist="tmpfiles")
    with full(host, kind):
        done = host.ask(**back)
    expected = [0, 1, 2, 3, 4, 6] if "cores" in back else ALL
    assert (done["changed"], done["after"]["online"], online(host)) == (True, done["after"]["online"], expected)
    assert any("not recorded" in warning for warning in done["warnings"])
    assert (done["rollback_pending"], host.pending()) == (False, None)
    if host.saved() is not None:
        assert host.saved()["cpu"]["online"] == ALL
    # With room again, the same request settles the rest.
    host.ask(**{**back, "rollback_after": None})
    assert online(host) == expected and not persistence.is_kept(host_files.HostFs(host.sysroot))


@pytest.mark.parametrize("kind", FULL)
def test_nothing_goes_offline_without_a_record(host, kind):
    with full(host, kind), pytest.raises(HostError, match="The host is as it was before"):
        host.ask("disabled")
    assert (host.writes, host.saved()) == ([], None)


@pytest.mark.parametrize("kind", ["full", "read-only"])
def test_a_rollback_of_a_rollout_and_what_restores_a_pending_change(host, kind):
    frame = smt_frame.present(host, host_files.HostFs(host.sysroot))
    for options, back in (({}, {"state": "previous", "frame": frame}), ({"rollback_after": 60}, {"state": "restored"})):
        host.ask("disabled", **options)
        with full(host, kind):
            done = host.ask(**back)
        assert (done["after"]["online"], done["rollback_pending"]) == ("0-7", False)
        assert (online(host), host.is_waiting) == (ALL, False)
        host.ask("restored")


def test_the_rollback_timer_needs_no_lock_file(host):
    host.ask("disabled", rollback_after=60)
    pathlib.Path(host.sysroot, locks.LOCK).unlink()
    with full(host, "full"):
        host.roll_back()
    assert (online(host), pending_rollback.exists(host_files.HostFs(host.sysroot))) == (ALL, False)


def test_a_change_back_that_the_kernel_refuses_is_undone_and_loses_nothing(host):
    host.ask("disabled")
    host.refusals[(3, True)] = errno.EIO
    with full(host, "read-only"), pytest.raises(HostError, match="CPU 3: EIO"):
        host.ask("restored", method="cpu_online")
    assert (online(host), host.saved()["cpu"]["online"]) == (ONE_EACH, ALL)


def test_a_lock_without_a_file_is_one(host):
    lock = pathlib.Path(host.sysroot, locks.LOCK)
    with full(host, "full"), locks.HostLock(host.sysroot, "one"):
        assert not lock.exists()
        with pytest.raises(locks.HostLockError, match="changed by another run"):
            locks.HostLock(host.sysroot, "another").__enter__()
    lock.parent.mkdir(parents=True)
    lock.write_text("")
    with full(host, "read-only"), locks.HostLock(host.sysroot, "one"):
        assert locks.HostLock(host.sysroot, "").holder() is not None
