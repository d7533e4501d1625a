# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Directories that others may write to: no link is followed, nothing is waited for,
and a line is written whole or not at all.
"""

from __future__ import annotations

import fcntl
import io
import multiprocessing
import os
import resource
import signal

import pytest
from ansible_collections.threadwise.smt.plugins.plugin_utils._evaluation import folders

MOST = 1000
NAME = "web1.jsonl"


@pytest.fixture(name="folder")
def a_folder(tmp_path):
    (tmp_path / "shared").mkdir()
    with folders.opened(tmp_path / "shared") as folder:
        yield folder


def locked(folder):
    with folder.locked(NAME, 0):
        pass


USES = {
    "read": lambda folder: folder.read(NAME, MOST),
    "append": lambda folder: folder.append(NAME, b"line\n", MOST),
    "lock": locked,
}


@pytest.fixture(name="use", params=USES)
def a_use(request):
    return USES[request.param]


@pytest.mark.parametrize("target", ["precious", "not there", "pipe"])
def test_no_link_is_followed(folder, use, target):
    precious = folder.path.parent / "precious"
    precious.write_text("precious")
    os.mkfifo(folder.path.parent / "pipe")
    (folder.path / NAME).symlink_to(folder.path.parent / target)
    with pytest.raises(OSError, match="it is a link, and links are not followed here"):
        use(folder)
    assert precious.read_text() == "precious" and not (folder.path.parent / "not there").exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_refused_and_not_waited_for(folder, use, make):
    make(folder.path / NAME)
    with pytest.raises(OSError, match=r"it is not a regular file|Is a directory"):
        use(folder)


def test_a_line_is_not_added_to_a_file_of_another_name(folder):
    precious = folder.path.parent / "precious"
    precious.write_text("precious\n")
    os.link(precious, folder.path / NAME)
    with pytest.raises(OSError, match="hard link"):
        folder.append(NAME, b"line\n", MOST)
    assert precious.read_text() == "precious\n"


def test_a_directory_below_is_no_link_either(folder):
    (folder.path.parent / "elsewhere").mkdir()
    (folder.path / "hosts").symlink_to(folder.path.parent / "elsewhere")
    for make in (False, True):
        with pytest.raises(OSError, match="it is a link"), folder.below("hosts", make):
            pass
    (folder.path / "file").write_text("")
    with pytest.raises(NotADirectoryError), folder.below("file"):
        pass


def test_a_user_may_have_made_the_directory_itself_a_link(folder):
    (folder.path.parent / "link").symlink_to(folder.path)
    with folders.opened(folder.path.parent / "link") as same, same.below("run", make=True) as run:
        run.append(NAME, b"line\n", MOST)
    assert (folder.path / "run" / NAME).read_bytes() == b"line\n"


def test_what_the_directory_was_stays_it(folder):
    """Whoever puts a link in its place while it is used gets nothing."""
    (folder.path.parent / "elsewhere").mkdir()
    folder.path.rename(folder.path.parent / "moved")
    folder.path.symlink_to(folder.path.parent / "elsewhere")
    folder.append(NAME, b"line\n", MOST)
    folder.write("page", io.BytesIO(b"text"))
    assert (
        sorted(os.listdir(folder.path.parent / "moved")) == ["page", NAME]
        and os.listdir(folder.path.parent / "elsewhere") == []
    )


def test_a_link_is_replaced_and_not_written_through(folder):
    precious = folder.path.parent / "precious"
    precious.write_text("text")
    (folder.path / "page").symlink_to(precious)
    assert not folder.holds("page", io.BytesIO(b"text"))
    folder.write("page", io.BytesIO(b"new"))
    assert not (folder.path / "page").is_symlink() and precious.read_text() == "text"
    assert folder.holds("page", io.BytesIO(b"new")) and os.listdir(folder.path) == ["page"]


@pytest.mark.parametrize("size", [MOST + 1, 2**40])
@pytest.mark.parametrize("use", ["read", "append"])
def test_what_is_too_large_is_not_read(folder, use, size):
    (folder.path / NAME).touch()
    os.truncate(folder.path / NAME, size)
    with pytest.raises(OSError, match="larger than"):
        USES[use](folder)
    assert (folder.path / NAME).stat().st_size == size


def test_a_file_does_not_grow_beyond_what_is_read(folder):
    folder.append(NAME, b"x" * 990 + b"\n", MOST)
    with pytest.raises(OSError, match="it would be larger than"):
        folder.append(NAME, b"y" * 20 + b"\n", MOST)
    assert len(folder.read(NAME, MOST)) == 991


def test_a_line_that_was_not_written_whole_does_not_swallow_the_next(folder):
    (folder.path / NAME).write_bytes(b"one\n" + b"two, which is longer than what follows")
    folder.append(NAME, b"three\n", MOST)
    assert folder.read(NAME, MOST) == b"one\nthree\n"


def fill(path):
    """Add a line to a file that can take a part of it: the kernel writes that part, and refuses the rest,
    as on a full disk.
    """
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
    assert process.exitcode == 3 and folder.read(NAME, MOST) == b"one\n"


def test_a_lock_that_another_holds_is_not_waited_for_without_end(folder):
    folder.append(NAME, b"one\n", MOST)
    with (folder.path / NAME).open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(OSError, match="another process has held it for 0 s"):
            locked(folder)
    locked(folder)
    # Nothing of it is cut off.
    assert folder.read(NAME, MOST) == b"one\n"


def test_a_lock_is_for_this_user_alone(folder):
    old = os.umask(0)
    try:
        with folder.locked("lock", 0):
            pass
    finally:
        os.umask(old)
    assert (folder.path / "lock").stat().st_mode & 0o777 == 0o600


def test_a_path_that_a_user_wrote_may_be_a_link_but_no_pipe(folder):
    (folder.path / "file").write_bytes(b"text")
    (folder.path / "link").symlink_to("file")
    assert folders.read(folder.path / "link", MOST) == b"text"
    os.mkfifo(folder.path / "pipe")
    (folder.path / "to pipe").symlink_to("pipe")
    for name, reason in (
        ("pipe", "not a regular file"),
        ("to pipe", "not a regular file"),
        ("nothing", "No such file"),
    ):
        with pytest.raises(OSError, match=reason):
            folders.read(folder.path / name, MOST)
    with pytest.raises(OSError, match="larger than"):
        folders.read(folder.path / "file", 3)
