# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a running kernel: read as safely as a recorded tree, written in place."""

from __future__ import annotations

import os

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files

CONTROL = "sys/devices/system/cpu/smt/control"


@pytest.fixture(name="kernel")
def kernel_of_a_tree(tmp_path):
    (tmp_path / CONTROL).parent.mkdir(parents=True)
    (tmp_path / CONTROL).write_text(" on\n", encoding="ascii")
    return kernel_files.KernelFiles(str(tmp_path))


def test_a_text_is_stripped_and_a_missing_file_is_none(kernel):
    assert (kernel.read(CONTROL), kernel.read("proc/1/status"), kernel.names("proc"), kernel.directories("proc")) == (
        "on",
        None,
        [],
        [],
    )


def test_neither_a_link_out_of_the_tree_nor_a_fifo_is_read(kernel, tmp_path):
    (tmp_path / "out").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    assert (kernel.read("out"), kernel.read("fifo")) == (None, None)


def test_a_write_goes_into_the_existing_file(kernel, tmp_path):
    before = (tmp_path / CONTROL).stat().st_ino
    kernel.write(CONTROL, "off")
    assert ((tmp_path / CONTROL).stat().st_ino, (tmp_path / CONTROL).read_bytes()) == (before, b"off\n")


def test_a_write_makes_no_file(kernel, tmp_path):
    with pytest.raises(FileNotFoundError):
        kernel.write(CONTROL + "2", "off")
    assert os.listdir((tmp_path / CONTROL).parent) == ["control"]


def test_an_owner_and_the_setuid_bit(kernel, tmp_path):
    (tmp_path / "su").write_text("", encoding="ascii")
    (tmp_path / "su").chmod(0o4755)
    (tmp_path / "exe").symlink_to(tmp_path / "su")
    assert (kernel.is_setuid("exe"), kernel.is_setuid(CONTROL), kernel.is_setuid("none")) == (True, False, False)
    assert (kernel.owner("su"), kernel.owner("none")) == (os.getuid(), 0)
