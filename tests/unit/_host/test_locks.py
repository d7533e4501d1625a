# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host lock: who may take it, and who has it."""

from __future__ import annotations

import os

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import locks

NOBODY = 65534


def test_a_user_who_is_not_root_hears_what_root_is_needed_for_and_how_to_become_it(tmp_path):
    """In a process that is not root, below a directory that it may not write."""
    tmp_path.chmod(0o500)
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            locks.HostLock(str(tmp_path), "smt_state").__enter__()
        except locks.HostLockError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    said = os.read(reading, 10_000).decode()
    tmp_path.chmod(0o700)
    assert said.startswith("smt_state needs root to change this host") and "become: true" in said


def test_who_holds_the_lock_is_told_without_taking_it(tmp_path):
    free = locks.HostLock(str(tmp_path), "another")
    assert free.holder() is None and list(tmp_path.iterdir()) == []
    with locks.HostLock(str(tmp_path), "smt_state"):
        assert free.holder().startswith(f"this host is being changed by smt_state, pid {os.getpid()} for user ")
    assert free.holder() is None
    with locks.HostLock(str(tmp_path), "the next one"), pytest.raises(locks.HostLockError, match="by the next one"):
        free.__enter__()


def test_a_full_run_keeps_nobody_from_the_lock(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(locks.os, "pwrite", full)
    free = locks.HostLock(str(tmp_path), "another")
    with locks.HostLock(str(tmp_path), "smt_boot_args"):
        assert free.holder().startswith("this host is being changed by another run")
