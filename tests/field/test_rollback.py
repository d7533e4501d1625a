# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about rollbacks that did not bring back what was there before:
each on a host whose policy is changed and put back.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.rollback import change as rollback_change
from fake_memory import VM, MemoryHost
from memory_tree import put

OURS, AWAITED = "etc/sysctl.d/99-threadwise-smt-memory.conf", "var/lib/threadwise-smt/boot-awaited.json"


@pytest.fixture(name="host")
def _host(tmp_path, monkeypatch):
    return MemoryHost(tmp_path / "host", monkeypatch, overcommit_memory=2, overcommit_ratio=0, overcommit_kbytes=500004)


def rollback(root, state, *parts, run_command=lambda command: (0, "", ""), **options):
    return rollback_change.Rollback(rollback_change.Request(state, parts, **options), run_command, str(root)).run()


def boot_args(root, smt):
    request = boot_change.Request(smt, None, False, False)
    boot_change.run(host_files.HostFs(str(root)), request, "x86_64", "6.1.0-13-amd64")


def test_tuned_882_a_value_of_0_is_not_written_back_over_its_counterpart(host):
    """Of two values the kernel sets one to 0 when the other is written: writing that 0 back would lose the other."""
    rollback(host.root, "saved", "memory", run_command=host.run_command)
    host.ask(overcommit="strict", overcommit_ratio=80)
    host.effects.clear()
    rollback(host.root, "back", run_command=host.run_command)
    assert [host.read(VM + name) for name in ("overcommit_kbytes", "overcommit_ratio")] == ["500004\n", "0\n"]
    assert VM + "overcommit_ratio = 0" not in host.effects


def test_tuned_518_what_was_set_by_hand_comes_back_and_not_what_a_file_says(host):
    put(host.root, "etc/sysctl.conf", "vm.panic_on_oom = 1\n")
    rollback(host.root, "saved", "memory", run_command=host.run_command)
    host.ask(on_oom="panic_always", panic_reboot_after="10")
    rollback(host.root, "back", run_command=host.run_command)
    assert host.read(VM + "panic_on_oom") == "0\n"


def test_machine_config_operator_1912_quoted_arguments_beside_ours(tmp_path):
    line = 'root=UUID=1 nosmt foo=bar baz=test "bar=hello nosmt world" ro'
    boot_maker.systemd_tree(tmp_path, line, line + "\n")
    before = boot_maker.snapshot(tmp_path)
    rollback(tmp_path, "saved", "configured")
    boot_args(tmp_path, "enabled")
    assert boot_maker.snapshot(tmp_path) != before
    assert rollback(tmp_path, "back")["not_back"] == [] and boot_maker.snapshot(tmp_path) == before


def test_machine_config_operator_5914_an_argument_that_is_gone_by_itself(tmp_path):
    boot_maker.grubby_tree(tmp_path)
    before = boot_maker.snapshot(tmp_path)
    rollback(tmp_path, "saved", "configured")
    boot_args(tmp_path, "disabled")
    entry = tmp_path / "boot/loader/entries/m-5.14.0-1.conf"
    entry.write_text(entry.read_text().replace(" nosmt", ""))
    assert rollback(tmp_path, "back")["not_back"] == []
    after = boot_maker.snapshot(tmp_path)
    assert {path for path in {*before, *after} if before.get(path) != after.get(path)} <= {AWAITED}


def test_grubby_23_several_arguments_of_one_name_come_back_in_their_order(tmp_path):
    line = "root=/dev/sda2 console=tty1 mitigations=auto,nosmt console=S1 mitigations=auto,nosmt,no_user_user nosmt ro"
    boot_maker.grubby_tree(tmp_path, (line,) * 2, cmdline=line + "\n")
    before = boot_maker.snapshot(tmp_path)
    rollback(tmp_path, "saved", "configured")
    boot_args(tmp_path, "enabled")
    rollback(tmp_path, "back")
    assert boot_maker.snapshot(tmp_path) == before


def test_netplan_548_files_that_are_put_back_can_be_read_by_those_who_need_them(host):
    boot_maker.grub_tree(host.root)
    host.ask(overcommit="always")
    boot_args(host.root, "disabled")
    rollback(host.root, "saved", "configured", "memory", run_command=host.run_command)
    boot_args(host.root, "enabled")
    host.ask(state="restored")
    umask = os.umask(0o077)
    try:
        rollback(host.root, "back", run_command=host.run_command)
    finally:
        os.umask(umask)
    paths = (OURS, "etc/default/grub.d/zz-threadwise-smt.cfg")
    assert [stat.S_IMODE((host.root / path).stat().st_mode) for path in paths] == [0o644, 0o644]


def test_sonic_buildimage_23907_one_part_that_cannot_be_put_back_does_not_keep_all_from_it(host):
    boot_maker.grub_tree(host.root)
    rollback(host.root, "saved", "configured", "memory", run_command=host.run_command)
    boot_args(host.root, "disabled")
    host.ask(overcommit="always")
    put(host.root, "mkconfig-fails", "")
    with pytest.raises(rollback_change.RollbackError, match="grub-probe"):
        rollback(host.root, "back", run_command=host.run_command)
    assert host.read(VM + "overcommit_memory") == "2\n"


def test_napalm_2005_who_rolls_back_knows_nothing_of_the_change(tmp_path):
    """Another process, without anything in its memory."""
    boot_maker.systemd_tree(tmp_path, "root=UUID=1 nosmt ro", "root=UUID=1 nosmt ro\n")
    before = boot_maker.snapshot(tmp_path)
    rollback(tmp_path, "saved", "configured", rollout=True)
    boot_args(tmp_path, "enabled")
    program = "from ansible_collections.threadwise.smt.plugins.module_utils._set.rollback import change\n"
    program += f'change.Rollback(change.Request("back"), None, {str(tmp_path)!r}).run()'
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)
    assert boot_maker.snapshot(tmp_path) == before


def test_rear_3578_which_entry_boots_is_not_rolled_back(tmp_path):
    options = {"kernelopts": "root=/dev/sda2 ro nosmt", "cmdline": None}
    boot_maker.grubby_tree(tmp_path, ("$kernelopts",) * 2, release=40, **options)
    environment = tmp_path / "boot/grub2/grubenv"
    rollback(tmp_path, "saved", "configured")
    boot_args(tmp_path, "enabled")
    environment.write_text(environment.read_text().replace("kernelopts", "saved_entry=m-5.14.0-1\nkernelopts"))
    rollback(tmp_path, "back")
    assert "saved_entry=m-5.14.0-1\nkernelopts=root=/dev/sda2 ro nosmt\n" in environment.read_text()


def test_grubby_55_a_kernel_that_is_installed_before_the_reboot(tmp_path):
    """It got the arguments of the time when it was installed, and is named."""
    boot_maker.grubby_tree(tmp_path, ("root=/dev/sda2 nosmt ro",) * 2)
    rollback(tmp_path, "saved", "configured")
    boot_args(tmp_path, "enabled")
    entry = "title Linux 6.0.0\nlinux /vmlinuz-6.0.0\noptions root=/dev/sda2 ro\n"
    boot_maker.write(tmp_path, "boot/loader/entries/m-6.0.0.conf", entry)
    (said,) = rollback(tmp_path, "back")["not_back"]
    assert "Linux 6.0.0" in said and "nosmt" in said
