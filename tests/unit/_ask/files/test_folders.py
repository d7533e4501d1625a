# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories that others may write to: no link is followed, nothing is waited for, and a line is written whole or not
at all.
"""

from __future__ import annotations

import fcntl
import io
import multiprocessing
import os
import resource
import signal

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.files import folders

MOST = 1000
NAME = "web1.jsonl"


@pytest.fixture(name="folder")
def a_folder(tmp_path):
    """A directory, beside one with a file that is precious."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/precious").write_text("precious\n")
    os.mkfifo(tmp_path / "pipe")
    with folders.opened(tmp_path / "shared") as folder:
        yield folder
    assert (tmp_path / "elsewhere/precious").read_text() == "precious\n"
    assert os.listdir(tmp_path / "elsewhere") == ["precious"]


def locked(folder):
    with folder.locked(NAME, 0):
        pass


USES = {"read": lambda folder: folder.read(NAME, MOST), "append": lambda folder: folder.append(NAME, b"line\n", MOST)}
USES["lock"] = locked
LINK, KIND = "it is a link", "it is not a regular file|Is a directory"


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    ("what", "reason"),
    [
        *((to, LINK) for to in ("../elsewhere/precious", "../elsewhere/not there", "../pipe")),
        *((os.mkfifo, KIND), (os.mkdir, KIND), (2**40, "larger than")),
    ],
)
def test_no_link_is_followed_and_what_is_no_file_or_too_large_is_refused(folder, use, what, reason):
    path = folder.path / NAME
    if isinstance(what, int):
        path.touch()
        os.truncate(path, what)
        if use == "lock":
            return
    else:
        path.symlink_to(what) if isinstance(what, str) else what(path)
    with pytest.raises(OSError, match=reason):
        USES[use](folder)
    assert not isinstance(what, int) or path.stat().st_size == what


def test_a_line_is_not_added_to_a_file_of_another_name(folder):
    os.link(folder.path.parent / "elsewhere/precious", folder.path / NAME)
    with pytest.raises(OSError, match="hard link"):
        folder.append(NAME, b"line\n", MOST)


@pytest.mark.parametrize("make", [False, True])
def test_a_directory_below_is_no_link_either(folder, make):
    (folder.path / "hosts").symlink_to(folder.path.parent / "elsewhere")
    with pytest.raises(OSError, match="it is a link"), folder.below("hosts", make):
        pass
    (folder.path / "file").write_text("")
    with pytest.raises(NotADirectoryError), folder.below("file", make):
        pass


def test_a_link_is_replaced_and_not_written_through(folder):
    (folder.path / "page").symlink_to(folder.path.parent / "elsewhere/precious")
    assert not folder.holds("page", io.BytesIO(b"precious\n"))
    folder.write("page", io.BytesIO(b"new"))
    assert not (folder.path / "page").is_symlink() and os.listdir(folder.path) == ["page"]
    assert folder.holds("page", io.BytesIO(b"new")) and not folder.holds("page", io.BytesIO(b"old"))


def test_a_file_does_not_grow_beyond_what_is_read_and_a_part_of_a_line_does_not_swallow_the_next(folder):
    (folder.path / NAME).write_bytes(b"one\n" + b"two, which is longer than what follows")
    folder.append(NAME, b"three\n", MOST)
    with pytest.raises(OSError, match="it would be larger than"):
        folder.append(NAME, b"y" * (MOST - 9) + b"\n", MOST)
    assert folder.read(NAME, MOST) == b"one\nthree\n"


def fill(path):
    """Add a line to a file that can take a part of it: the kernel writes that part, and refuses the rest."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
    with folders.opened(path) as folder:
        try:
            folder.append(NAME, b"longer than ten bytes\n", MOST)
        except OSError:
            os._exit(3)


def test_a_line_without_room_leaves_the_file_as_it_was(folder):
    folder.append(NAME, b"one\n", MOST)
    process = multiprocessing.get_context("fork").Process(target=fill, args=(folder.path,))
    process.start()
    process.join()
    assert process.exitcode == 3 and (folder.path / NAME).read_bytes() == b"one\n"


def test_a_lock_that_another_holds_is_not_waited_for_without_end_and_is_for_this_user_alone(folder):
    old = os.umask(0)
    locked(folder)
    os.umask(old)
    assert (folder.path / NAME).stat().st_mode & 0o777 == 0o600
    folder.append(NAME, b"one\n", MOST)
    with (folder.path / NAME).open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another process has held it for 0 s"):
            locked(folder)
    locked(folder)
    # Nothing of it is cut off.
    assert folder.read(NAME, MOST) == b"one\n"


def test_a_path_that_a_user_wrote_may_be_a_link_but_no_pipe(folder):
    (folder.path / "link").symlink_to("../elsewhere/precious")
    (folder.path / "to pipe").symlink_to("../pipe")
    assert folders.read(folder.path / "link", MOST) == b"precious\n"
    for name, reason in (("to pipe", "not a regular"), ("none", "No such file")):
        with pytest.raises(OSError, match=reason):
            folders.read(folder.path / name, MOST)
    with pytest.raises(OSError, match="larger"):
        folders.read(folder.path / "link", 3)
