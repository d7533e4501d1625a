# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Public reports about rollbacks that did not bring back what was there before, each on a host whose policy is changed
and put back; and about what was to undo a change, or to reboot a host, and did not, each on a host that is to leave the
boot arguments of a trial.
"""

import os
import pathlib
import re
import stat
import subprocess
import sys

import boot_maker
import pytest
import rebooted_host
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change, change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import program, record, steps
from ansible_collections.threadwise.smt.plugins.module_utils._set.rollback import change as rollback_change
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.boots import reboot
from fake_memory import VM, MemoryHost
from memory_tree import put
from visited_host import UNIT_FILE, Booted, Time

OURS, AWAITED = "etc/sysctl.d/99-threadwise-smt-memory.conf", "var/lib/threadwise-smt/boot-awaited.json"


@pytest.fixture(name="host")
def _host(tmp_path, monkeypatch):
    return MemoryHost(tmp_path / "host", monkeypatch, overcommit_memory=2, overcommit_ratio=0, overcommit_kbytes=500004)


def rollback(root, state, *parts, run_command=lambda command: (0, "", ""), **options):
    return rollback_change.Rollback(rollback_change.Request(state, parts, **options), run_command, str(root)).run()


def boot_args(root, smt):
    request = boot_change.Request(smt, None, False, False)
    boot_change.run(host_files.HostFs(str(root)), request, "x86_64", "6.1.0-13-amd64")


def test_tuned_882_and_518_neither_a_0_nor_a_file_is_written_over_what_was_set_by_hand(host):
    # Of two values the kernel sets one to 0 when the other is written: writing that 0 back would lose the other.
    rollback(host.root, "saved", "memory", run_command=host.run_command)
    host.ask(overcommit="strict", overcommit_ratio=80)
    host.effects.clear()
    rollback(host.root, "back", run_command=host.run_command)
    assert [host.read(VM + name) for name in ("overcommit_kbytes", "overcommit_ratio")] == ["500004\n", "0\n"]
    assert VM + "overcommit_ratio = 0" not in host.effects
    put(host.root, "etc/sysctl.conf", "vm.panic_on_oom = 1\n")
    rollback(host.root, "saved", "memory", run_command=host.run_command)
    host.ask(on_oom="panic_always", panic_reboot_after="10")
    rollback(host.root, "back", run_command=host.run_command)
    assert host.read(VM + "panic_on_oom") == "0\n"


def test_machine_config_operator_1912_and_5914_quoted_arguments_beside_ours_and_one_that_is_gone_by_itself(tmp_path):
    root = tmp_path / "root"
    line = 'root=UUID=1 nosmt foo=bar baz=test "bar=hello nosmt world" ro'
    boot_maker.systemd_tree(root, line, line + "\n")
    before = boot_maker.snapshot(root)
    rollback(root, "saved", "configured")
    boot_args(root, "enabled")
    assert boot_maker.snapshot(root) != before
    assert rollback(root, "back")["not_back"] == [] and boot_maker.snapshot(root) == before
    boot_maker.grubby_tree(tmp_path)
    before = boot_maker.snapshot(tmp_path)
    rollback(tmp_path, "saved", "configured")
    boot_args(tmp_path, "disabled")
    entry = tmp_path / "boot/loader/entries/m-5.14.0-1.conf"
    entry.write_text(entry.read_text().replace(" nosmt", ""))
    assert rollback(tmp_path, "back")["not_back"] == []
    after = boot_maker.snapshot(tmp_path)
    assert {path for path in {*before, *after} if before.get(path) != after.get(path)} <= {AWAITED}


def test_grubby_23_and_55_several_arguments_of_one_name_and_a_kernel_that_is_installed_before_the_reboot(tmp_path):
    root = tmp_path / "root"
    line = "root=/dev/sda2 console=tty1 mitigations=auto,nosmt console=S1 mitigations=auto,nosmt,no_user_user nosmt ro"
    boot_maker.grubby_tree(root, (line,) * 2, cmdline=line + "\n")
    before = boot_maker.snapshot(root)
    rollback(root, "saved", "configured")
    boot_args(root, "enabled")
    rollback(root, "back")
    assert boot_maker.snapshot(root) == before
    # It got the arguments of the time when it was installed, and is named.
    boot_maker.grubby_tree(tmp_path, ("root=/dev/sda2 nosmt ro",) * 2)
    rollback(tmp_path, "saved", "configured")
    boot_args(tmp_path, "enabled")
    entry = "title Linux 6.0.0\nlinux /vmlinuz-6.0.0\noptions root=/dev/sda2 ro\n"
    boot_maker.write(tmp_path, "boot/loader/entries/m-6.0.0.conf", entry)
    (said,) = rollback(tmp_path, "back")["not_back"]
    assert "Linux 6.0.0" in said and "nosmt" in said


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


@pytest.fixture(name="booted")
def a_booted_host(tmp_path, monkeypatch):
    return Booted(tmp_path / "host", monkeypatch)


def test_systemd_31914_16578_and_kured_137_what_waits_is_a_process_and_a_lock_without_a_holder_is_none(
    booted,
):
    assert [path.name for path in (booted.host.root / "etc/systemd/system").iterdir()] == [pathlib.Path(UNIT_FILE).name]
    unit = (booted.host.root / UNIT_FILE).read_text()
    assert "Type=notify" in unit and "Restart=always" in unit and not re.search("^On.*Sec=", unit, re.MULTILINE)
    assert re.search("^StartLimitIntervalSec=0$", unit, re.MULTILINE)
    # The file names a process that does not exist, and the kernel knows no lock.
    lock = "4194305 smt_benchmark\nfor user root since 2020-04-28T14:59:28Z\n"
    (booted.host.root / "run/threadwise-smt/lock").write_text(lock)
    time = Time()
    booted.follow(time)
    booted.assert_back()
    assert time.now < 700


@pytest.mark.parametrize("error", ["Call to Reboot failed: Interactive authentication required.", "Please retry"])
def test_systemd_36786_inhibitors_that_hold_for_root_too_end_some_time(booted, error):
    booted.host.fails = {"reboot": error}
    booted.follow(Time())
    booted.assert_back()
    assert error in booted.said() and booted.host.calls.count("reboot") == program.POLITE_ATTEMPTS


def test_machine_config_operator_2381_a_masked_reboot_target(booted):
    masked = "Failed to start reboot.target: Unit reboot.target is masked."
    booted.host.fails = {"reboot": "Call to Reboot failed: Access denied", "start": masked}
    booted.host.is_masked = True

    def unmasked():
        # One way or the other, it still tries, and logind's answer is not all that it says.
        assert {"reboot", "start reboot.target"} <= set(booted.host.calls)
        assert "Access denied (reboot.target is masked: unmask it)" in booted.said()
        assert "is masked" in record.load(booted.host.fs).why
        booted.host.fails = {}

    booted.follow(Time((2400, unmasked)))
    booted.assert_back()


def test_talos_4200_a_reboot_by_kexec_with_the_arguments_of_the_running_kernel(booted):
    booted.host.keeps_arguments = True

    def seen():
        assert booted.reboots == steps.MAX_REBOOTS and "still runs with nosmt" in record.load(booted.host.fs).why
        booted.host.keeps_arguments = False
        booted.host.boot()

    booted.follow(Time((9000, seen)))
    booted.assert_back(steps.MAX_REBOOTS)
    assert all(word in program._REBOOT for word in ("SYSTEMCTL_SKIP_AUTO_KEXEC=1", "SYSTEMCTL_SKIP_AUTO_SOFT_REBOOT=1"))


def test_netplan_548_and_nixpkgs_23926_an_undo_without_effect_and_a_full_boot_partition(booted, monkeypatch):
    real, failed = change.run, []

    def run(fs, request, *rest):
        if request.check or request.smt != "enabled" or len(failed) >= 6:
            return real(fs, request, *rest)
        failed.append(booted.host.has_visit)
        if len(failed) <= 3:
            return real(fs, request._replace(check=True), *rest)
        raise change.ERRORS[0]("The backup copy of /boot/grub/grub.cfg cannot be made: No space left on device")

    monkeypatch.setattr(steps.change, "run", run)
    booted.follow(Time())
    booted.assert_back()
    assert failed == [(True, True)] * 6 and "No space left on device" in booted.said()


def test_systemd_26943_what_was_waited_for_before_a_boot_is_not_lost(booted):
    """Also a host that is booted again and again goes back in the boot that lasts."""

    def again():
        booted.host.boot()
        raise KeyboardInterrupt

    for _boot in range(3):
        with pytest.raises(KeyboardInterrupt):
            booted.follow(Time((300, again)))
    booted.follow(Time())
    booted.assert_back()


def test_ansible_83018_a_host_that_shuts_down_is_not_taken_for_a_rebooted_one(monkeypatch):
    """What a login says of a home directory that is unmounted already differs from the boot id of before."""
    host = rebooted_host.RebootedHost(monkeypatch)
    host.looks = 5
    seen = []
    monkeypatch.setattr(reboot.Reboot, "verify", lambda *_given: seen.append(host.looks))
    host.visit().enter({"smt": "disabled"})
    assert seen == [0]
