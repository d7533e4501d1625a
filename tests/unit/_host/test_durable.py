# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Freezing and thawing a file system, by a stand-in for the ioctls: a frozen one is thawed whatever happens.

The real ones are seen on guests.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import durable

FREEZE, THAW = 0xC0045877, 0xC0045878


@pytest.fixture(name="ioctls")
def recorded_ioctls(tmp_path, monkeypatch):
    """The ioctls of all processes in order, with the process; `fail` makes one of them fail,
    `before` is called before it.
    """
    log = tmp_path / "log"
    log.touch()
    monkeypatch.setattr(os, "sync", lambda: None)

    class Recorded:
        fail = None
        before = staticmethod(lambda request: None)

        @staticmethod
        def seen():
            return [
                (line.split()[0] == str(os.getpid()), {FREEZE: "freeze", THAW: "thaw"}[int(line.split()[1])])
                for line in log.read_text().splitlines()
            ]

    def ioctl(_descriptor, request, _argument):
        Recorded.before(request)
        with log.open("a", encoding="utf-8") as stream:
            stream.write(f"{os.getpid()} {request}\n")
        if request == Recorded.fail:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    return Recorded


def test_it_is_frozen_and_thawed_by_this_process(tmp_path, ioctls):
    durable.settle(str(tmp_path))
    assert ioctls.seen() == [(True, "freeze"), (True, "thaw")]


def test_where_it_cannot_be_frozen_nothing_is_thawed(tmp_path, ioctls):
    ioctls.fail = FREEZE
    durable.settle(str(tmp_path))
    durable.settle(str(tmp_path / "absent"))
    assert ioctls.seen() == [(True, "freeze")]


@pytest.mark.parametrize("moment", [FREEZE, THAW])
def test_a_process_that_is_killed_half_way_leaves_nothing_frozen(tmp_path, ioctls, moment):
    pid = os.fork()
    if pid == 0:
        try:
            this = os.getpid()
            ioctls.before = staticmethod(
                lambda request: os.kill(this, signal.SIGKILL) if request == moment and os.getpid() == this else None
            )
            durable.settle(str(tmp_path))
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    while len(ioctls.seen()) < (1 if moment == FREEZE else 2):
        pass
    assert ioctls.seen()[-1][1] == "thaw"


def test_a_slow_freeze_is_thawed_after_a_while(tmp_path, ioctls, monkeypatch):
    """The process that froze it hangs: the one beside it thaws, and the first one goes on."""
    monkeypatch.setattr(durable, "_MAX_FROZEN_SECONDS", 0.05)
    this = os.getpid()

    def hang(request):
        # On a busy machine the time is over before the freeze is made: the one beside waits for it.
        awaited = (False, "thaw" if os.getpid() == this else "freeze")
        while request == THAW and awaited not in ioctls.seen():
            pass

    ioctls.before = staticmethod(hang)
    durable.settle(str(tmp_path))
    assert ioctls.seen()[0] == (True, "freeze") and (False, "thaw") in ioctls.seen() and ioctls.seen()[-1][1] == "thaw"


def test_a_boot_loader_finds_one_of_both_files_at_any_moment(tmp_path, ioctls):
    """What the disk may show is what was settled last, and what was done since in any order: the old file is not
    deleted before the name is settled.
    """
    target, new = tmp_path / "grub.cfg", tmp_path / ".new"
    target.write_text("old")
    new.write_text("new")
    old = os.stat(target).st_ino
    seen = []
    ioctls.before = staticmethod(
        lambda request: seen.append((target.read_text(), old in {entry.inode() for entry in os.scandir(tmp_path)}))
    )
    durable.replace_for_boot_loaders(str(new), str(target))
    assert seen == [("old", True), ("old", True), ("new", True), ("new", True)]
    assert [entry.name for entry in os.scandir(tmp_path) if entry.name != "log"] == [
        "grub.cfg"
    ] and target.read_text() == "new"


def test_a_first_file_and_what_an_earlier_run_left(tmp_path, ioctls):
    (tmp_path / ".new").write_text("new")
    (tmp_path / ".new-kept").write_text("left")
    durable.replace_for_boot_loaders(str(tmp_path / ".new"), str(tmp_path / "grub.cfg"))
    assert sorted(entry.name for entry in os.scandir(tmp_path) if entry.name != "log") == ["grub.cfg"]
