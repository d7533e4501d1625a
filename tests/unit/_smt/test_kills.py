# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that write on a host, killed before each of their changes: the next call works,
and each file has its old or its new content.

Tests of an evaluation's run are in test_run_directory.py. Changes of the SMT state are killed on a real kernel
(molecule/smt_runtime), and whole guests in molecule/smt_hostile_host.
"""

from __future__ import annotations

import os
import shutil

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._host import config_files, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._memory import snapshot as memory_snapshot
from crash import assert_durable, changes, fresh, killed_at_each, needs_trace

pytestmark = needs_trace


def switch(root, smt):
    return boot_change.run(
        host_files.HostFs(str(root)), boot_change.Request(smt, None, False, False), "x86_64", "6.1.0-13-amd64"
    )


def remade(root, before):
    """A new grub tree, whose tools use the paths of this tree, after a first change."""
    shutil.rmtree(root, ignore_errors=True)
    boot_maker.grub_tree(root)
    boot_maker.running(root)
    if before:
        switch(root, before)


@pytest.mark.night
@pytest.mark.parametrize(
    ("before", "wanted"),
    [
        pytest.param(None, "disabled", marks=pytest.mark.night),
        pytest.param("disabled", "forced_off", marks=pytest.mark.night),
        ("disabled", "enabled"),
    ],
)
def test_boot_arguments(tmp_path, before, wanted):
    root = tmp_path / "tree"
    remade(root, before)
    old = boot_maker.snapshot(root)
    switch(root, wanted)
    new = boot_maker.snapshot(root)
    assert old != new

    def check(_number, _killed):
        # Each boot file is complete, with its old or its new content.
        for path in ("etc/default/grub", "boot/grub/grub.cfg"):
            assert boot_maker.snapshot(root)[path] in (old[path], new[path])
        switch(root, wanted)
        assert boot_maker.snapshot(root) == new

    assert killed_at_each(lambda: remade(root, before), lambda: switch(root, wanted), check) > 8


def test_boot_arguments_are_durable(tmp_path):
    remade(tmp_path, None)
    assert_durable(lambda: switch(tmp_path, "disabled"))


WANTED = {
    "etc/systemd/system/threadwise-smt.service": "[Unit]\n",
    "etc/systemd/system/multi-user.target.wants/threadwise-smt.service": "../threadwise-smt.service",
    "etc/sysctl.d/90-own.conf": "vm.panic_on_oom = 1\n",
}


@pytest.mark.parametrize("wanted", [WANTED, dict.fromkeys(WANTED)], ids=["written", "removed"])
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


@pytest.mark.parametrize(
    "saved", [{"sysctls": {"vm.panic_on_oom": 1}, "units": {}}, {"sysctls": {}, "units": {}}], ids=["more", "nothing"]
)
def test_the_snapshot_of_the_memory_policy(tmp_path, saved):
    root = tmp_path / "tree"
    fs = host_files.HostFs(str(root))
    first = {"sysctls": {"vm.overcommit_memory": 0}, "units": {}}

    def prepare():
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        memory_snapshot.save(fs, first)

    def check(_number, killed):
        assert memory_snapshot.load(fs) in ((first, saved) if killed else (saved,))
        memory_snapshot.save(fs, saved)
        assert memory_snapshot.load(fs) == saved

    assert killed_at_each(prepare, lambda: memory_snapshot.save(fs, saved), check) >= 1


def test_a_removal_is_durable(tmp_path):
    """The directory is flushed, too."""
    fs = host_files.HostFs(str(tmp_path))
    fs.write("a/b", "x")
    assert changes(lambda: config_files.apply(fs, {"a/b": ("x", None)}))[0][-2:] == ["unlink", "fsync directory"]
    assert not os.path.exists(fs.path("a/b"))
