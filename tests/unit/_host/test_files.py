# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of a host: what is read and refused, written whole and lasting; kernel files; states; a boot loader's files."""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
import shutil
import signal
import sys
import types

import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    config_files,
    cpuinfo,
    durable,
    files as host_files,
    kernel_files,
    state_file,
)
from crash import assert_durable, changes, fresh, killed_at_each, needs_trace


@pytest.fixture(name="fs")
def _fs(tmp_path):
    return host_files.HostFs(str(tmp_path))


def test_files_of_any_size_up_to_the_limit_are_read_completely(fs, tmp_path):
    for size in (0, 4096, 200000):
        (tmp_path / "a").write_bytes(b"\xff" * size)
        assert fs.read("a") == "\ufffd" * size and len(fs.head("a", 1000)) == min(size, 1000)


OUT = "leads out of the recorded tree"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        *((make, "not a regular file") for make in (pathlib.Path.mkdir, os.mkfifo)),
        *((lambda path: path.symlink_to(path.name), "symbolic"), (lambda path: path.symlink_to("/dev/zero"), OUT)),
    ],
)
def test_a_file_that_is_not_regular_is_a_problem_and_does_not_block(fs, tmp_path, make, reason):
    make(tmp_path / "a")
    assert fs.read("a") is None
    (problem,) = fs.problems
    assert str(tmp_path / "a") in problem and reason in problem


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
    assert all(OUT in problem for problem in tree.problems) and tree.problems
    for new in ("/new", "/further/new"):
        with pytest.raises(OSError, match=OUT):
            tree.write(os.path.dirname(path) + new, "x")
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


CONTROL = "sys/devices/system/cpu/smt/control"


@pytest.fixture(name="kernel")
def kernel_of_a_tree(tmp_path):
    (tmp_path / CONTROL).parent.mkdir(parents=True)
    (tmp_path / CONTROL).write_text(" on\n", encoding="ascii")
    return kernel_files.KernelFiles(str(tmp_path))


def test_neither_a_link_out_of_the_tree_nor_a_fifo_is_read(kernel, tmp_path):
    (tmp_path / "out").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    assert (kernel.read("out"), kernel.read("fifo")) == (None, None)


def test_a_write_goes_into_the_existing_file(kernel, tmp_path):
    before = (tmp_path / CONTROL).stat().st_ino
    kernel.write(CONTROL, "off")
    assert ((tmp_path / CONTROL).stat().st_ino, (tmp_path / CONTROL).read_bytes()) == (before, b"off\n")


def test_an_owner_and_the_setuid_bit(kernel, tmp_path):
    (tmp_path / "su").write_text("", encoding="ascii")
    (tmp_path / "su").chmod(0o4755)
    (tmp_path / "exe").symlink_to(tmp_path / "su")
    assert (kernel.is_setuid("exe"), kernel.is_setuid(CONTROL), kernel.is_setuid("none")) == (True, False, False)
    assert (kernel.owner("su"), kernel.owner("none")) == (os.getuid(), 0)


PATH = "var/lib/threadwise-smt/x.json"
FILE = state_file.StateFile(PATH, "threadwise.smt/x")


class HostOf(host_files.HostFs):
    """A tree that is treated like `/`, in which root owns everything but what is said."""

    is_host = True

    def __init__(self, sysroot, **statuses):
        super().__init__(str(sysroot))
        self.statuses = statuses

    def status(self, path):
        real = super().status(path)
        if real is None:
            return None
        shown = {"st_mode": real.st_mode, "st_uid": 0, **self.statuses.get(os.path.basename(path), {})}
        return types.SimpleNamespace(**shown)

    def path(self, path):
        return os.path.join(self.sysroot, path)

    def _open(self, path):
        return os.open(self.path(path), os.O_RDONLY)


def test_what_is_saved_is_loaded(fs, tmp_path):
    assert FILE.load(fs, dict) is None
    assert FILE.save(fs, {"a": [1]})
    assert FILE.load(fs, lambda document: document["a"]) == [1]
    assert (tmp_path / PATH).stat().st_mode & 0o777 == 0o600
    assert FILE.remove(fs) and not FILE.remove(fs) and FILE.load(fs, dict) is None


def test_an_unchanged_file_is_not_written_again_but_for_that_of_another_user(fs, tmp_path):
    written = []
    for host, value in ((fs, 1), (fs, 1), (fs, 2), (HostOf(tmp_path, **{"x.json": {"st_uid": 1000}}), 2)):
        before = (tmp_path / PATH).stat().st_ino if written else None
        written.append(FILE.save(host, {"a": value}))
        assert written[-1] == ((tmp_path / PATH).stat().st_ino != before)
    assert written == [True, False, True, True]


HEAD = '{"schema": "threadwise.smt/x", "schema_version": 1, "a": '
DAMAGED = ["", "{", "[" * 100_000, HEAD + "9" * 400 + "}", HEAD + "1e999}", HEAD + "NaN}", "{}"]
DAMAGED += [HEAD.replace("1", "2") + "0}", HEAD.replace("/x", "/y") + "0}"]


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_one_error_that_names_it(fs, text):
    fs.write(PATH, text)
    with pytest.raises(state_file.StateFileError, match=r"x\.json cannot be used"):
        FILE.load(fs, dict)


def test_a_file_that_is_too_large_or_not_regular_is_not_read(fs, tmp_path):
    FILE.save(fs, {"a": "x" * 100})
    with pytest.raises(state_file.StateFileError, match=r"cannot be read: it is larger than 50 bytes"):
        FILE._replace(limit=50).load(fs, dict)
    (tmp_path / PATH).unlink()
    os.mkfifo(tmp_path / PATH)
    with pytest.raises(state_file.StateFileError, match=r"cannot be read: it is not a regular file"):
        FILE.load(fs, dict)
    assert fs.problems == []


@pytest.mark.parametrize("name", ["x.json", "threadwise-smt"])
@pytest.mark.parametrize("status", [{"st_uid": 1000}, {"st_mode": 0o666}, {"st_mode": 0o620}, {"st_mode": 0o120777}])
def test_on_a_host_only_what_root_alone_can_write_is_used(fs, tmp_path, name, status):
    FILE.save(fs, {"a": 1})
    assert FILE.load(HostOf(tmp_path), dict)["a"] == 1
    with pytest.raises(state_file.StateFileError, match=name + r" is not owned by root, or is writable by other users"):
        FILE.load(HostOf(tmp_path, **{name: status}), dict)


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
    """The old file is not deleted before the name is settled: the disk may show what was done since in any order."""
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
    assert sorted(os.listdir(tmp_path)) == ["grub.cfg", "log"] and target.read_text() == "new"


def test_a_first_file_and_what_an_earlier_run_left(tmp_path, ioctls):
    (tmp_path / ".new").write_text("new")
    (tmp_path / ".new-kept").write_text("left")
    durable.replace_for_boot_loaders(str(tmp_path / ".new"), str(tmp_path / "grub.cfg"))
    assert sorted(os.listdir(tmp_path)) == ["grub.cfg", "log"]
