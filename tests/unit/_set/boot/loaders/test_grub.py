# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Grub on Debian and on SUSE: settings as people write them, faults, and runs that are killed.

The real grub-mkconfig, grub-script-check and reboots are in molecule/smt_boot and molecule/smt_boot_faults.
"""

import itertools
import os
import re
import signal
import stat
import subprocess
import sys

import boot_maker
import pytest
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change as boot_change, detection
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import (
    base as backend_base,
    grub_debian,
    transaction,
)
from crash import assert_durable, needs_trace

DROP_IN = grub_debian.DROP_IN


def run(root, smt=None, maxcpus=None, force=False, check=False):
    request = boot_change.Request(smt, maxcpus, force, check)
    return boot_change.run(host_files.HostFs(str(root)), request, "x86_64", "6.1.0-13-amd64")


def lines(root, grub="grub"):
    """Return the fields of each linux line of grub.cfg."""
    text = (root / "boot" / grub / "grub.cfg").read_text()
    return [line.split()[1:] for line in text.split("\n") if line.strip().startswith("linux")]


CLOUD = {"50-cloudimg-settings.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="console=tty1 console=ttyS0"\nGRUB_CMDLINE_LINUX=""\n'}
KDUMP = {"kdump-tools.cfg": 'GRUB_CMDLINE_LINUX_DEFAULT="$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=384M-:128M"\n'}
# Settings, drop-ins, and the arguments that they make: of a cloud image, not for the shell, and others.
SHAPES = [
    ('GRUB_CMDLINE_LINUX_DEFAULT="quiet"\n', CLOUD, "console=tty1 console=ttyS0"),
    ("GRUB_CMDLINE_LINUX='acpi_osi=! memmap=4M\\$0x1 x=*'\n", {}, "acpi_osi=! memmap=4M\\$0x1 x=*"),
    (None, {}, ""),
    ('GRUB_DISTRIBUTOR=`echo Debian`\nGRUB_CMDLINE_LINUX="host=$(echo h1)"\n', {}, "host=h1"),
    ("GRUB_CMDLINE_LINUX_DEFAULT=quiet\nGRUB_CMDLINE_LINUX=\n", {}, "quiet"),
    ('GRUB_CMDLINE_LINUX="console=tty0 \\\nconsole=ttyS0"\n', {}, "console=tty0 console=ttyS0"),
    ('GRUB_CMDLINE_LINUX="a=1"\n', KDUMP, "a=1 crashkernel=384M-:128M"),
    ('# GRUB_CMDLINE_LINUX="nosmt"\nexport GRUB_CMDLINE_LINUX="a=1" # nosmt\n', {}, "a=1"),
    ("GRUB_CMDLINE_LINUX='dyndbg=\"file a.c  +p\"'\n", {}, 'dyndbg="file a.c +p"'),
]


@pytest.mark.night(after=4)
@pytest.mark.parametrize(("settings", "drop_ins", "arguments"), SHAPES)
def test_each_shape_of_settings_gets_the_argument_and_is_restored(tmp_path, settings, drop_ins, arguments):
    boot_maker.grub_tree(tmp_path, settings or "", drop_ins)
    if settings is None:
        (tmp_path / "etc/default/grub").unlink()
    before = boot_maker.snapshot(tmp_path)
    predicted = run(tmp_path, "disabled", check=True)
    assert boot_maker.snapshot(tmp_path) == before and not {"run", "var"} & set(os.listdir(tmp_path))
    result = run(tmp_path, "disabled")
    assert [predicted[name] for name in ("changed", "diff", "configured")] == [True, result["diff"], ["nosmt"]]
    assert result["changed"] and result["reboot_required"] and result["found"] == []
    assert [line[3:] for line in lines(tmp_path)][::2] == [["nosmt", *arguments.split()]] * 2
    after = boot_maker.snapshot(tmp_path)
    assert {name for name in after if after[name] != before.get(name)} == {DROP_IN, "boot/grub/grub.cfg"}
    assert not run(tmp_path, "disabled")["changed"]
    # Entries for recovery, too.
    assert run(tmp_path, "forced_off")["configured"] == ["nosmt=force"]
    assert [[field for field in line if "nosmt" in field] for line in lines(tmp_path)] == [["nosmt=force"]] * 4
    assert run(tmp_path, "enabled")["changed"]
    assert boot_maker.snapshot(tmp_path) == before
    assert not run(tmp_path, "enabled")["changed"]


MAIN = "etc/default/grub"
APPENDS = 'GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX %s"\n'
TWO = {"a.cfg": APPENDS % "nosmt", "b.cfg": APPENDS % "nosmt=force"}
HIDDEN = "GRUB_CMDLINE_LINUX_DEFAULT='mitigations=auto,nosmt l1tf=full,force'\n"
FOUND = [
    ('GRUB_CMDLINE_LINUX="nosmt"\n', TWO, [("nosmt", MAIN), ("nosmt=force", MAIN + ".d/b.cfg")]),
    (HIDDEN, {}, [("mitigations=auto,nosmt", MAIN), ("l1tf=full,force", MAIN)]),
    ('GRUB_CMDLINE_LINUX="$(echo no)smt"\n', {}, [("nosmt", MAIN)]),
    ('GRUB_CMDLINE_LINUX="nosmt"\n', CLOUD, []),
]


@pytest.mark.parametrize(("settings", "drop_ins", "found"), FOUND)
def test_enabled_removes_arguments_of_the_administrator_and_reports_their_files(tmp_path, settings, drop_ins, found):
    boot_maker.grub_tree(tmp_path, settings, drop_ins)
    files = {name: value for name, value in boot_maker.snapshot(tmp_path).items() if name.startswith("etc/")}
    result = run(tmp_path, "enabled")
    assert [(entry["argument"], os.path.relpath(entry["where"], tmp_path)) for entry in result["found"]] == found
    assert result["changed"] is bool(found)
    assert not any("nosmt" in field or field.startswith("l1tf") for line in lines(tmp_path) for field in line)
    left = boot_maker.snapshot(tmp_path)
    assert {name: left[name] for name in files} == files
    assert not run(tmp_path, "enabled")["changed"]


def test_an_old_grub_cfg_is_generated_again_and_its_mode_and_link_stay(tmp_path):
    cfg, real = boot_maker.grub_tree(tmp_path) / "boot/grub/grub.cfg", tmp_path / "boot/real.cfg"
    cfg.rename(real)
    cfg.symlink_to("../real.cfg")
    old = cfg.read_text()
    run(tmp_path, "disabled")
    assert cfg.is_symlink() and stat.S_IMODE(real.stat().st_mode) == 0o600
    # It is older than its settings.
    real.write_text(old)
    assert run(tmp_path, "disabled", check=True)["changed"]
    run(tmp_path, "disabled")
    assert all("nosmt" in line for line in lines(tmp_path))


def edited(*replaced):
    def edit(root):
        tool = root / "usr/sbin/grub-mkconfig"
        assert replaced[0] in tool.read_text()
        tool.write_text(tool.read_text().replace(*replaced))

    return edit


def without(name):
    return lambda root: (root / name).unlink()


def with_file(name, text=""):
    return lambda root: boot_maker.write(root, name, text)


CFG, DROP_INS = "boot/grub/grub.cfg", "etc/default/grub.d/"
FAULTS = [
    (with_file("mkconfig-fails"), "exit code 1: grub-probe: error: cannot find a device"),
    (with_file("script-check-fails"), "syntax error"),
    (without("usr/bin/grub-script-check"), "grub-script-check cannot be run"),
    (with_file("mkconfig-finds-no-kernel"), "no entry for any kernel"),
    (with_file(DROP_INS + "99.cfg", 'GRUB_CMDLINE_LINUX="a\n'), "cannot be read by a shell"),
    (with_file(DROP_INS + "zzz.cfg", 'GRUB_CMDLINE_LINUX="a=1"\n'), "zzz.cfg is read after .*nosmt"),
    (edited("root=UUID=1 ro", "root=UUID=1 ro maxcpus=2"), "maxcpus=2 is still there.*etc/grub.d"),
    (edited("/boot/vmlinuz-*", "/boot/vmlinuz-6.1.0-13-*"), "would lose.*6.1.0-12-amd64"),
    (edited(r"\tinitrd\t/boot/initrd.img-%s", "%.0s"), "would lose.*initial RAM disk"),
    (without(CFG), "without a grub-mkconfig|the file system with /boot is mounted"),
]


@pytest.mark.parametrize(("make", "message"), FAULTS)
def test_a_fault_changes_nothing_and_is_reported(tmp_path, make, message):
    boot_maker.grub_tree(tmp_path)
    make(tmp_path)
    before = boot_maker.snapshot(tmp_path)
    with pytest.raises(boot_change.ERRORS, match=r"(?s)" + message):
        run(tmp_path, "disabled")
    assert boot_maker.snapshot(tmp_path) == before


RESTORED = "All changed files were restored"


@pytest.mark.night(after=3)
@pytest.mark.parametrize("number", [0, 3, 4, 1, 2, 5, 6])
def test_a_full_disk_at_any_step_changes_nothing(tmp_path, monkeypatch, number):
    """Two copies, two new files and the names of these are written in turn."""
    boot_maker.grub_tree(tmp_path)
    run(tmp_path, "disabled")
    before = boot_maker.snapshot(tmp_path)
    real, count = os.fsync, itertools.count(1)

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transaction.os, "fsync", lambda file: real(file) if next(count) < number else full())
    monkeypatch.setattr(boot_change._Update, "_save_topology", lambda update: None)
    if number == 0:
        monkeypatch.setattr(transaction.shutil, "copyfileobj", full)
    outcome = RESTORED if number > 3 else "Nothing was changed"
    with pytest.raises(backend_base.BootLoaderError, match=rf"No space left on device\. {outcome}$"):
        run(tmp_path, "forced_off")
    assert boot_maker.snapshot(tmp_path) == before


# A run that gets a signal before one of its steps.
CHILD = r"""
import os, shutil, subprocess, sys
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import change as boot_change
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base, transaction
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
root, smt, number, signal = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
steps = [0]
def counted(function):
    def step(*args, **kwargs):
        steps[0] += 1
        if steps[0] == number:
            os.kill(os.getpid(), signal)
        return function(*args, **kwargs)
    return step
transaction.defer_termination_signals()
for module, name in ((os, 'rename'), (os, 'unlink'), (os, 'fsync'), (shutil, 'copyfileobj'), (subprocess, 'Popen')):
    setattr(module, name, counted(getattr(module, name)))
try:
    boot_change.run(host_files.HostFs(root), boot_change.Request(smt, None, False, False), 'x86_64', '6.1.0-13-amd64')
    print('done')
except backend_base.BootLoaderError as error:
    print(error)
print(steps[0] >= number)
"""


def child(root, *arguments):
    command = [sys.executable, "-c", CHILD, str(root), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


STRIDES = [
    ("enabled", "disabled", 4),
    *(pytest.param(*one, 1, marks=pytest.mark.night) for one in (("enabled", "disabled"), ("disabled", "enabled"))),
]


@pytest.mark.parametrize(("first", "second", "stride"), STRIDES)
def test_a_run_killed_at_any_step_leaves_a_complete_grub_cfg_and_the_next_one_continues(
    tmp_path, first, second, stride
):
    ends = set()
    for number in itertools.count(stride, stride):
        root = boot_maker.grub_tree(tmp_path / str(number))
        run(root, first)
        old = (root / CFG).read_text()
        done = child(root, second, number, 9)
        after = (root / CFG).read_text()
        subprocess.run([root / "usr/sbin/grub-mkconfig", "-o", root / "by-hand.cfg"], check=True)
        by_hand = (root / "by-hand.cfg").read_text()
        run(root, second)
        new = (root / CFG).read_text()
        # It is complete, the old one or the new one, and so is what update-grub would generate for an administrator.
        assert old != new and {after, by_hand} <= {old, new}
        assert [path for path in root.rglob("*threadwise-smt-*") if "var" not in path.parts] == []
        assert not run(root, second)["changed"]
        ends.add(after == new)
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
    assert ends == {True, False} and number > 8


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.night)])
@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=pytest.mark.night)])
def test_a_run_with_a_termination_signal_at_any_step_finishes_or_restores_and_says_which(tmp_path, stride, fails):
    """The signal may also arrive while files are restored, and after grub.cfg is replaced."""
    outcomes = set()
    for number in itertools.count(stride, stride):
        root = boot_maker.grub_tree(tmp_path / str(number))
        run(root, "disabled")
        before = boot_maker.snapshot(root)
        if fails:
            boot_maker.write(root, "script-check-fails", "")
        message, reached = child(root, "enabled", number, 15).stdout.splitlines()
        if message == "done":
            assert not run(root, "enabled", check=True)["changed"] and lines(root)[0][3:] == ["quiet"], number
        else:
            assert boot_maker.snapshot(root) == before, (number, message)
            assert message.endswith(("Nothing was changed", RESTORED)), (number, message)
        outcomes.add("done" if message == "done" else "ended" if "ended by signal 15" in message else "failed")
        if reached == "False":
            break
    assert outcomes == ({"failed", "ended"} if fails else {"done", "ended"}) and number > 8


def test_a_termination_signal_kills_a_running_tool_with_its_children(tmp_path):
    root = boot_maker.grub_tree(tmp_path)
    delayed = f"set -e\n(kill -TERM $PPID; sleep 600; echo late >>{root}/boot/late)\n"
    text = (root / "usr/sbin/grub-mkconfig").read_text().replace("set -e\n", delayed, 1)
    assert delayed in boot_maker.write(root, "usr/sbin/grub-mkconfig", text).read_text()
    before = boot_maker.snapshot(root)
    assert f"ended by signal 15. {RESTORED}" in child(root, "disabled", -1, 15).stdout
    assert boot_maker.snapshot(root) == before


@needs_trace
def test_boot_arguments_are_durable(tmp_path):
    boot_maker.running(boot_maker.grub_tree(tmp_path))
    assert_durable(lambda: run(tmp_path, "disabled"))


def test_hand_written_entries_and_xen_are_unchanged_and_give_warnings(tmp_path):
    boot_maker.grub_tree(tmp_path)
    custom = (
        "### BEGIN /etc/grub.d/40_custom ###\nmenuentry 'Mine' {\n\tlinux /boot/vmlinuz-6.1.0-13-amd64 root=UUID=1"
        " ro\n}\nmenuentry 'Xen' {\n\tmultiboot2 /boot/xen-4.17-amd64.gz\n}\n### END /etc/grub.d/40_custom ###\n"
    )
    boot_maker.write(tmp_path, "etc/grub.d/40_custom", custom)
    subprocess.run([tmp_path / "usr/sbin/grub-mkconfig", "-o", tmp_path / "boot/grub/grub.cfg"], check=True)
    warnings = run(tmp_path, "disabled")["warnings"]
    assert [any(word in warning for warning in warnings) for word in ("'Mine'", "GRUB_CMDLINE_XEN")] == [True, True]
    assert custom in (tmp_path / "boot/grub/grub.cfg").read_text()


@pytest.mark.night(after=2)
@pytest.mark.parametrize("settings", ['GRUB_CMDLINE_LINUX="a=1"', "# only a comment\n\n\n", "", 'X="caf\u00e9"\n'])
def test_suse_gets_a_block_and_its_file_is_restored_byte_for_byte(tmp_path, settings):
    boot_maker.grub_tree(tmp_path, settings, suse=True)
    before = boot_maker.snapshot(tmp_path)
    result = run(tmp_path, "disabled")
    assert result["loader"] == "grub_suse" and all(line.count("nosmt") == 1 for line in lines(tmp_path, "grub2"))
    assert (tmp_path / "etc/default/grub").read_text().startswith(settings)
    assert not run(tmp_path, "disabled")["changed"]
    run(tmp_path, "forced_off")
    assert (tmp_path / "etc/default/grub").read_text().count("BEGIN threadwise.smt") == 1
    run(tmp_path, "enabled")
    assert boot_maker.snapshot(tmp_path) == before


OTHERS = [
    ("run/ostree-booted", "rpm-ostree kargs"),
    ("etc/kernel/proxmox-boot-uuids", "proxmox-boot-tool"),
    ("usr/sbin/transactional-update", "transactional-update"),
]


@pytest.mark.night(after=6)
@pytest.mark.parametrize(("path", "name"), [*OTHERS, ("etc/motd", "no boot loader"), *detection.OTHER_LOADERS.items()])
def test_what_is_not_supported_is_refused_by_name(tmp_path, path, name):
    make = boot_maker.grub_tree if (path, name) in OTHERS else boot_maker.running
    make(tmp_path)
    boot_maker.write(tmp_path, path, "")
    before = boot_maker.snapshot(tmp_path)
    if make is boot_maker.running and detection.find_loader(host_files.HostFs(str(tmp_path))).loader is not None:
        pytest.skip("a loader of ours takes such a host")
    with pytest.raises(backend_base.BootLoaderError, match=re.escape(name)):
        run(tmp_path, "disabled")
    assert boot_maker.snapshot(tmp_path) == before
