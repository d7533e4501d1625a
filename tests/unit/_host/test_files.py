# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import errno
import os
import pathlib
import shutil
import sys

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    config_files,
    cpuinfo,
    files as host_files,
    kernel_files,
)
from crash import assert_durable, changes, fresh, killed_at_each, needs_trace


@pytest.fixture(name="fs")
def _fs(tmp_path):
    return host_files.HostFs(str(tmp_path))


def test_a_file_is_read_and_a_missing_one_is_none_without_a_problem(fs, tmp_path):
    (tmp_path / "sys").mkdir()
    (tmp_path / "sys" / "a").write_bytes(b"0-3\n")
    assert fs.read("sys/a") == "0-3\n"
    assert fs.read("sys/b") is None
    assert fs.read("sys/a/b") is None
    assert fs.problems == []


def test_files_of_any_size_up_to_the_limit_are_read_completely(fs, tmp_path):
    for size in (0, 4096, 200000):
        (tmp_path / "a").write_bytes(b"\xff" * size)
        assert fs.read("a") == "\ufffd" * size and len(fs.head("a", 1000)) == min(size, 1000)


def test_a_file_above_the_limit_is_a_problem(fs, tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 11)
    assert fs.read("a", limit=10) is None
    assert "larger than 10 bytes" in fs.problems[0]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (pathlib.Path.mkdir, "not a regular file"),
        (os.mkfifo, "not a regular file"),
        (lambda path: path.symlink_to(path.name), "symbolic"),
        (lambda path: path.symlink_to("/etc/hostname"), "leads out of the recorded tree"),
        (lambda path: path.symlink_to("/dev/zero"), "leads out of the recorded tree"),
    ],
)
def test_a_file_that_is_not_regular_is_a_problem_and_does_not_block(fs, tmp_path, make, reason):
    make(tmp_path / "a")
    assert fs.read("a") is None
    assert len(fs.problems) == 1
    assert str(tmp_path / "a") in fs.problems[0]
    assert reason in fs.problems[0]


@pytest.fixture(name="outside")
def _outside(tmp_path):
    """A directory outside of the recorded tree."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("outside of the tree")
    return outside


@pytest.fixture(name="tree")
def _tree(tmp_path):
    (tmp_path / "tree" / "real").mkdir(parents=True)
    (tmp_path / "tree" / "real" / "file").write_text("x")
    return host_files.HostFs(str(tmp_path / "tree"))


@pytest.mark.night(after=5)
@pytest.mark.parametrize("path", ["link/secret", "real/deeper/link/secret"])
@pytest.mark.parametrize("target", ["%s", "../outside", "real/../../outside", "/proc/self/root%s"])
def test_a_link_to_a_directory_outside_the_tree_is_not_followed(tree, outside, target, path):
    link = pathlib.Path(tree.path(os.path.dirname(path)))
    link.parent.mkdir(exist_ok=True, parents=True)
    up = "../" * (path.count("/") - 1) if target.startswith(("..", "real")) else ""
    link.symlink_to(up + (target % outside if "%" in target else target))
    assert (link / "secret").exists(), "the link must work outside of HostFs"
    assert tree.read(path) is None and tree.head(path, 10) is None
    assert tree.names(os.path.dirname(path)) == []
    assert tree.status(path) is None
    assert tree.status(os.path.dirname(path)) is not None
    assert all("leads out of the recorded tree" in problem for problem in tree.problems) and tree.problems
    with pytest.raises(OSError, match="leads out of the recorded tree"):
        tree.write(os.path.dirname(path) + "/new", "x")
    with pytest.raises(OSError, match="leads out of the recorded tree"):
        tree.write(os.path.dirname(path) + "/further/new", "x")
    assert os.listdir(outside) == ["secret"]


def test_a_link_to_a_directory_inside_the_tree_is_followed(tree):
    root = pathlib.Path(tree.sysroot)
    (root / "link").symlink_to("real")
    (root / "real" / "up").symlink_to("../real")
    (root / "absolute").symlink_to(root / "real")
    for way in ("link", "real/up", "real/up/up", "link/up", "absolute"):
        assert tree.read(way + "/file") == "x" and "file" in tree.names(way) and tree.status(way + "/file").st_size == 1
    tree.write("link/new", "y")
    assert (root / "real" / "new").read_text() == "y" and tree.problems == []


def test_a_device_is_not_opened(tree):
    """Opening a device can have side effects: a hardware watchdog starts."""
    (pathlib.Path(tree.sysroot) / "dev").symlink_to("/dev")
    opened = []
    sys.addaudithook(
        lambda event, arguments: opened.append(arguments) if event == "open" and not arguments[2] & os.O_PATH else None
    )
    before = len(opened)
    assert tree.read("dev/zero") is None
    assert opened[before:] == []


@needs_trace
def test_a_written_file_is_flushed_with_its_name_and_directories(tmp_path):
    fs = host_files.HostFs(str(tmp_path))
    seen = assert_durable(lambda: fs.write("a/b/c", "text"))
    assert seen.count("fsync directory") == 3 and seen.count("fsync file") == 1


@needs_trace
def test_a_kill_during_a_write_leaves_the_old_file_or_the_new_one(tmp_path):
    root = tmp_path / "tree"
    fs = host_files.HostFs(str(root))

    def prepare():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        fs.write("a/b", "old")

    def check(_number, killed):
        assert fs.read("a/b") in (("old", "new") if killed else ("new",))
        fs.write("a/b", "next")
        assert fs.read("a/b") == "next"

    assert killed_at_each(prepare, lambda: fs.write("a/b", "new"), check) >= 4


def test_an_error_of_the_device_is_a_problem(fs, tmp_path, monkeypatch):
    (tmp_path / "a").write_text("x")

    def broken(descriptor, size):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(host_files.os, "read", broken)
        assert fs.read("a") is None
    assert fs.problems == [f"{tmp_path / 'a'} cannot be read: Input/output error."]


def test_a_path_with_a_nul_byte_is_a_problem(fs):
    assert fs.read("a\0b") is None
    assert "null" in fs.problems[0]


def test_the_number_of_problems_is_limited(fs, tmp_path):
    for number in range(2 * host_files.MAX_PROBLEMS):
        (tmp_path / str(number)).mkdir()
        assert fs.read(str(number)) is None
    assert len(fs.problems) == host_files.MAX_PROBLEMS + 1
    assert "only the first" in fs.problems[-1]


def test_a_file_is_written_with_its_directories_and_mode(fs, tmp_path):
    fs.write("var/lib/x/map.json", "text", mode=0o600)
    path = tmp_path / "var/lib/x/map.json"
    assert path.read_text() == "text"
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(path.parent) == ["map.json"]


def test_a_failed_write_leaves_the_old_file_unchanged(fs, tmp_path, monkeypatch):
    (tmp_path / "a").write_text("old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(host_files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        fs.write("a", "new")
    assert (tmp_path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["a"]


WANTED = {
    "etc/systemd/system/threadwise-smt.service": "[Unit]\n",
    "etc/systemd/system/multi-user.target.wants/threadwise-smt.service": "../threadwise-smt.service",
    "etc/sysctl.d/90-own.conf": "vm.panic_on_oom = 1\n",
}


@needs_trace
@pytest.mark.night(after=1)
@pytest.mark.parametrize("wanted", [dict.fromkeys(WANTED), WANTED], ids=["removed", "written"])
def test_configuration_files(tmp_path, wanted):
    root, template = tmp_path / "tree", tmp_path / "template"
    template.mkdir()
    before = host_files.HostFs(str(template))
    config_files.apply(before, config_files.changes(before, {"etc/sysctl.d/90-own.conf": "other\n"}))
    if None in wanted.values():
        config_files.apply(before, config_files.changes(before, WANTED))
    fs = host_files.HostFs(str(root))

    def work():
        config_files.apply(fs, config_files.changes(fs, wanted))

    def check(_number, _killed):
        work()
        assert config_files.changes(fs, wanted) == {}

    assert killed_at_each(lambda: fresh(root, template), work, check) >= 4


@needs_trace
def test_a_removal_is_durable(tmp_path):
    """The directory is flushed, too."""
    fs = host_files.HostFs(str(tmp_path))
    fs.write("a/b", "x")
    assert changes(lambda: config_files.apply(fs, {"a/b": ("x", None)}))[0][-2:] == ["unlink", "fsync directory"]
    assert not os.path.exists(fs.path("a/b"))


# /sys and /proc; the recorded machines in `_topology` have all layouts of /proc/cpuinfo


X86 = "processor\t: 0\nmodel name\t: One\nphysical id\t: 0\n\nprocessor\t: 3\nmodel name\t: Other\n"
POWER = "processor : 0\ncpu : POWER8\n\nprocessor : 8\ncpu : POWER8\n\nplatform : pSeries\nmachine : CHRP\n"
OLD_ARM = "Processor\t: ARMv7\nBogoMIPS\t: 3\n"


@pytest.mark.parametrize(
    ("text", "common", "blocks"),
    [
        (X86, {}, {0: {"model name": "One", "physical id": "0"}, 3: {"model name": "Other"}}),
        (POWER, {}, {0: {"cpu": "POWER8"}, 8: {"cpu": "POWER8", "platform": "pSeries", "machine": "CHRP"}}),
        (OLD_ARM, {"Processor": "ARMv7", "BogoMIPS": "3"}, {}),
        ("", {}, {}),
    ],
)
def test_the_whole_file(tmp_path, text, common, blocks):
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(text, encoding="utf-8")
    assert cpuinfo.read(host_files.HostFs(str(tmp_path))) == (common, blocks)


def test_the_model_is_that_of_the_first_cpu_and_needs_only_the_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(host_files, "LARGE", 100)
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text("vendor_id : V\n" + X86 + "x" * 100, encoding="utf-8")
    fs = host_files.HostFs(str(tmp_path))
    assert cpuinfo.read_first(fs) == {"vendor_id": "V", "model name": "One", "physical id": "0"}
    assert fs.problems == []


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
