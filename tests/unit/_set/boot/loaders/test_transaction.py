# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A change that fails: files are restored, and the error says what has become of them,
whatever was written and could be restored.
"""

import itertools
import os
import signal
import stat
from functools import partial

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base, transaction

NAMES = ("first", "second", "created")
SUBSETS = [chosen for size in range(len(NAMES) + 1) for chosen in itertools.combinations(NAMES, size)]


@pytest.fixture(name="deferred")
def deferred_signals():
    """Termination signals are recorded, as in the module; the handlers of before come back after each test."""
    transaction.defer_termination_signals()
    yield
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
                raise OSError(30, "Read-only file system")
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


PAIRS = list(itertools.product(SUBSETS, repeat=2))


@pytest.mark.night(after=10)
@pytest.mark.parametrize(("written", "blocked"), sorted(PAIRS, key=lambda pair: PAIRS.index(pair) % 7))
def test_the_error_of_a_failed_change_is_true(tmp_path, monkeypatch, deferred, written, blocked):
    """Also when a termination signal arrives at each step of the undo."""
    for sends in (None, signal.SIGTERM):
        root = tmp_path / str(sends)
        root.mkdir()
        fs, before = tree(root), contents(root)
        paths = {str(path) for name in blocked for path in (root / name, copy_of(root, name))}
        with monkeypatch.context() as patch:
            error = failed_change(
                fs, written, backend_base.BootLoaderError("The tool failed"), partial(fail_for, patch, paths, sends)
            )
        assert str(error).startswith("The tool failed. ")
        remaining = [name for name in blocked if name not in written and before[name] is not None]
        assert {name for name in NAMES if contents(root)[name] != before[name]} == set(blocked) & set(written)
        assert_true(root, str(error), before, written, remaining)


def test_backups_that_stay_after_a_change_do_not_deny_it(tmp_path, monkeypatch):
    with pytest.raises(backend_base.BootLoaderError) as caught, transaction.Undo(fs := tree(tmp_path)) as undo:
        for name in NAMES:
            undo.back_up(name)
            transaction.replace(fs, name, f"{name} is new\n")
        fail_for(monkeypatch, {str(copy_of(tmp_path, name)) for name in NAMES[:2]})
    assert contents(tmp_path) == {name: f"{name} is new\n" for name in NAMES}
    text = str(caught.value)
    assert text.startswith("Backup copies cannot be removed: ") and "The boot arguments were changed" in text
    assert [name for name in NAMES if str(copy_of(tmp_path, name)) in text] == ["first", "second"]


@pytest.mark.parametrize("mode", [0o664, 0o400, 0o000])
def test_a_backup_never_has_a_wider_mode_than_its_original(tmp_path, monkeypatch, mode):
    """It is its owner's alone until it has its group."""
    fs, original, copy = tree(tmp_path), tmp_path / "first", copy_of(tmp_path, "first")
    original.chmod(mode)
    os.utime(original, ns=(10**18, 10**18 + 7))
    real, before_it_has_its_group = os.fchown, []

    def chown(descriptor, user, group):
        before_it_has_its_group.append(stat.S_IMODE(os.fstat(descriptor).st_mode))
        real(descriptor, user, group)

    monkeypatch.setattr(transaction.os, "fchown", chown)
    umask = os.umask(0)
    try:
        transaction.Undo(fs).back_up("first")
    finally:
        os.umask(umask)
    assert (before_it_has_its_group, stat.S_IMODE(copy.stat().st_mode)) == ([mode & 0o600], mode)
    assert copy.read_text() == "first as it was\n" and copy.stat().st_mtime_ns == 10**18 + 7


def test_only_files_that_this_host_boots_from_are_settled(tmp_path):
    """A recorded tree lies on a file system of the machine that reads it, which is not to be frozen."""
    here, tree = host_files.HostFs("/"), host_files.HostFs(tmp_path)
    assert transaction.boots(here, "/boot/grub/grub.cfg") and transaction.boots(here, "/boot/efi/loader/entries/a.conf")
    assert not transaction.boots(here, "/etc/default/grub.d/zz-threadwise-smt.cfg")
    assert not transaction.boots(tree, str(tmp_path / "boot" / "grub" / "grub.cfg"))
