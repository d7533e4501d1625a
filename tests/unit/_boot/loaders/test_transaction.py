# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change that fails: files are restored, and the error says what has become of them,
whatever was written and could be restored.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import stat
import sys

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._boot.backends import base as backend_base, transaction
from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, files as host_files

NAMES = ("first", "second", "created")
READ_ONLY = OSError(30, "Read-only file system")


def subsets(names):
    return [chosen for size in range(len(names) + 1) for chosen in itertools.combinations(names, size)]


@pytest.fixture(name="deferred")
def deferred_signals():
    """Termination signals are recorded, as in the module."""
    handlers = {number: signal.getsignal(number) for number in transaction.TERMINATION_SIGNALS}
    transaction.defer_termination_signals()
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)
    transaction._received_signals.clear()


def tree(root):
    """Return a host with two of the files."""
    for name in NAMES[:2]:
        (root / name).write_text(f"{name} as it was\n")
    return host_files.HostFs(str(root))


def contents(root):
    return {name: (root / name).read_text() if (root / name).exists() else None for name in NAMES}


def copy_of(root, name):
    return root / f".{name}{transaction.BACKUP_SUFFIX}"


def fail_for(monkeypatch, blocked, sends=None):
    """Let renames over, and removals of, the files in `blocked` fail; each attempt can send this process a signal."""

    def guarded(real):
        def attempt(*paths):
            if sends is not None:
                os.kill(os.getpid(), sends)
            if paths[-1] in blocked:
                raise READ_ONLY
            real(*paths)

        return attempt

    monkeypatch.setattr(durable, "replace", guarded(durable.replace))
    monkeypatch.setattr(durable, "unlink", guarded(durable.unlink))


def failed_change(fs, written, error, prepare):
    """Write files within an undo, let it fail with an error after `prepare`, and return the error that comes out."""
    with pytest.raises((backend_base.BootLoaderError, ZeroDivisionError)) as caught, transaction.Undo(fs) as undo:
        for name in NAMES:
            undo.back_up(name)
        for name in written:
            transaction.replace(fs, name, f"{name} is new\n")
        prepare()
        raise error
    return caught.value


def assert_true(root, text, before, written, remaining):
    now = contents(root)
    lost = [name for name in NAMES if now[name] != before[name]]
    assert ("Nothing was changed" in text) == (not written)
    assert ("All changed files were restored" in text) == (bool(written) and not lost)
    assert ("Not restored" in text) == bool(lost)
    assert ("The other changed files were restored" in text) == (bool(lost) and len(written) > len(lost))
    assert ("Backup copies cannot be removed" in text) == bool(remaining)
    for name in NAMES:
        assert (f"{root / name}: " in text) == (name in lost)
        assert (f"{copy_of(root, name)}: " in text) == (name in remaining)
        kept = f"what it contained is in {copy_of(root, name)}"
        assert (kept in text) == (name in lost and before[name] is not None)
        if kept in text:
            assert copy_of(root, name).read_text() == before[name]


@pytest.mark.parametrize("sends", [None, signal.SIGTERM])
@pytest.mark.parametrize("written", subsets(NAMES))
@pytest.mark.parametrize("blocked", subsets(NAMES))
def test_the_error_of_a_failed_change_is_true(tmp_path, monkeypatch, deferred, written, blocked, sends):
    """Also when a termination signal arrives at each step of the undo."""
    fs = tree(tmp_path)
    before = contents(tmp_path)
    paths = {str(path) for name in blocked for path in (tmp_path / name, copy_of(tmp_path, name))}

    error = failed_change(
        fs, written, backend_base.BootLoaderError("The tool failed"), lambda: fail_for(monkeypatch, paths, sends)
    )

    assert str(error).startswith("The tool failed. ")
    remaining = [name for name in blocked if name not in written and before[name] is not None]
    assert {name for name in NAMES if contents(tmp_path)[name] != before[name]} == set(blocked) & set(written)
    assert_true(tmp_path, str(error), before, written, remaining)


@pytest.mark.parametrize("written", subsets(NAMES))
@pytest.mark.parametrize("blocked", subsets(NAMES))
def test_an_unexpected_error_stays_unless_files_could_not_be_restored(tmp_path, monkeypatch, written, blocked):
    fs = tree(tmp_path)
    before = contents(tmp_path)
    error = failed_change(
        fs,
        written,
        ZeroDivisionError("a bug"),
        lambda: fail_for(monkeypatch, {str(tmp_path / name) for name in blocked}),
    )
    if contents(tmp_path) == before:
        assert isinstance(error, ZeroDivisionError)
    else:
        assert "a bug" in str(error) and "Nothing was changed" not in str(error)
        assert_true(tmp_path, str(error), before, written, [])


def test_a_rename_that_is_made_but_not_flushed_counts_as_restored(tmp_path, monkeypatch):
    fs = tree(tmp_path)
    before = contents(tmp_path)

    def break_disk():
        def fail(folder):
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(durable, "sync_names", fail)

    error = failed_change(fs, NAMES, backend_base.BootLoaderError("The tool failed"), break_disk)
    assert contents(tmp_path) == before
    assert str(error) == "The tool failed. All changed files were restored"


def disk_full(_descriptor):
    raise OSError(28, "No space left on device")


def test_a_backup_that_cannot_be_made_says_that_nothing_was_changed(tmp_path, monkeypatch):
    fs = tree(tmp_path)
    with (
        pytest.raises(
            backend_base.BootLoaderError, match=r"second cannot be made: No space left on device\. Nothing was changed$"
        ),
        transaction.Undo(fs) as undo,
    ):
        undo.back_up("first")
        monkeypatch.setattr(transaction.os, "fsync", disk_full)
        undo.back_up("second")
    assert not copy_of(tmp_path, "second").exists()


@pytest.mark.parametrize("blocked", subsets(NAMES))
def test_backups_that_stay_after_a_change_do_not_deny_it(tmp_path, monkeypatch, blocked):
    fs = tree(tmp_path)
    remaining = [name for name in blocked if name != "created"]
    expected = pytest.raises(backend_base.BootLoaderError) if remaining else contextlib.nullcontext()
    with expected as caught, transaction.Undo(fs) as undo:
        for name in NAMES:
            undo.back_up(name)
            transaction.replace(fs, name, f"{name} is new\n")
        fail_for(monkeypatch, {str(copy_of(tmp_path, name)) for name in blocked})
    assert contents(tmp_path) == {name: f"{name} is new\n" for name in NAMES}
    if remaining:
        text = str(caught.value)
        assert text.startswith("Backup copies cannot be removed: ") and text.endswith(
            ". The boot arguments were changed"
        )
        assert [name for name in NAMES if str(copy_of(tmp_path, name)) in text] == remaining


def test_a_backup_is_its_owners_alone_until_it_has_its_group(tmp_path, monkeypatch):
    fs = tree(tmp_path)
    (tmp_path / "first").chmod(0o664)
    real, modes = os.fchown, []

    def chown(descriptor, user, group):
        modes.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        real(descriptor, user, group)

    monkeypatch.setattr(transaction.os, "fchown", chown)
    umask = os.umask(0)
    try:
        transaction.Undo(fs).back_up("first")
    finally:
        os.umask(umask)
    assert modes == [0o600] and stat.S_IMODE(copy_of(tmp_path, "first").stat().st_mode) == 0o664


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o400, 0o755, 0o000])
def test_a_backup_never_has_a_wider_mode_than_its_original(tmp_path, mode):
    fs = tree(tmp_path)
    original, copy = tmp_path / "first", copy_of(tmp_path, "first")
    original.chmod(mode)
    os.utime(original, ns=(10**18, 10**18 + 7))
    seen = set()

    def watch(_frame, _event, _argument):
        try:
            seen.add(stat.S_IMODE(os.lstat(copy).st_mode))
        except FileNotFoundError:
            return

    umask = os.umask(0)
    try:
        sys.setprofile(watch)
        transaction.Undo(fs).back_up("first")
    finally:
        sys.setprofile(None)
        os.umask(umask)
    assert mode in seen and all(found & ~mode == 0 for found in seen), [oct(found) for found in seen]
    assert copy.read_text() == "first as it was\n" and copy.stat().st_mtime_ns == 10**18 + 7


def test_only_files_that_this_host_boots_from_are_settled(tmp_path):
    """A recorded tree lies on a file system of the machine that reads it, which is not to be frozen."""
    here, tree = host_files.HostFs("/"), host_files.HostFs(tmp_path)
    assert transaction.boots(here, "/boot/grub/grub.cfg") and transaction.boots(here, "/boot/efi/loader/entries/a.conf")
    assert not transaction.boots(here, "/etc/default/grub.d/zz-threadwise-smt.cfg")
    assert not transaction.boots(tree, str(tmp_path / "boot" / "grub" / "grub.cfg"))
