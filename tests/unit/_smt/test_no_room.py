# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What brings CPUs back needs no room on any disk; what takes them offline is saved before."""

from __future__ import annotations

import contextlib
import errno
import pathlib

import faults
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files, locks
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._resident import archive
from ansible_collections.threadwise.smt.plugins.module_utils._smt import frame as smt_frame, state as smt_state
from ansible_collections.threadwise.smt.plugins.module_utils._smt.at_boot import persistence
from ansible_collections.threadwise.smt.plugins.module_utils._smt.rollback import pending as pending_rollback
from fake_host import Host

ALL, ONE_EACH = list(range(8)), [0, 2, 4, 6]
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


@pytest.fixture(name="host")
def fake_host(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "build", lambda *_arguments: b"the program")
    return Host(tmp_path)


def online(host):
    return smt_state.read(files=host)["online"]


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
