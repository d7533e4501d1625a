# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which boot loader is used, and which arguments are running and configured, on trees of files."""

import itertools
import re

import boot_maker
import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    detection,
    entries as boot_entries,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import grub_debian, grubby, registry

LOADER_INFO = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"


def started_by_systemd_boot(root):
    boot_maker.write(root, LOADER_INFO, "\6\0\0\0" + "\0".join("systemd-boot 252"))


def found(root):
    return detection.find_loader(host_files.HostFs(str(root)))


# The signs of boot loaders, those with the highest evidence first.
SIGNS = {
    "systemd_boot": lambda root: (boot_maker.systemd_tree(root), started_by_systemd_boot(root)),
    "grubby": boot_maker.grubby_tree,
    "grub_suse": lambda root: boot_maker.grub_tree(root, suse=True),
    "grub_debian": boot_maker.grub_tree,
    "leftover of systemd-boot": boot_maker.systemd_tree,
}
ORDER = tuple(SIGNS)
# By day each pair that stands side by side, and all of them.
SEVERAL = [ORDER, *itertools.pairwise(ORDER), *((name,) for name in ORDER)]
SEVERAL += [names for size in (2, 3, 4) for names in itertools.combinations(ORDER, size) if names not in SEVERAL]


@pytest.mark.night(after=10)
@pytest.mark.parametrize("names", SEVERAL)
def test_of_several_loaders_the_one_with_the_highest_evidence_is_used(tmp_path, names):
    boot_maker.running(tmp_path)
    for name in names:
        SIGNS[name](tmp_path)
    assert found(tmp_path).name == ("systemd_boot" if names[0] == ORDER[-1] else names[0])


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (None, "none of .*/boot/efi/loader/entries has an entry of it"),
        ("boot/efi/EFI/Linux/debian.efi", r"boot/efi/EFI/Linux contains unified kernel images \(debian.efi\)"),
    ],
)
def test_what_systemd_boot_started_is_not_left_to_another_loader(tmp_path, path, reason):
    boot_maker.grub_tree(tmp_path)
    started_by_systemd_boot(tmp_path)
    if path is not None:
        boot_maker.write(tmp_path, path, "")
    assert found(tmp_path).name == detection.NONE and re.search(reason, found(tmp_path).blocked_by)


@pytest.mark.night(after=1)
@pytest.mark.parametrize("cfg", boot_entries.GRUB_CFGS)
def test_entries_beside_a_grub_that_nothing_manages_are_not_systemd_boots(tmp_path, cfg):
    boot_maker.systemd_tree(tmp_path)
    boot_maker.write(tmp_path, cfg, "")
    assert "GRUB without" in found(tmp_path).blocked_by


def menuentry(arguments, title="Debian GNU/Linux"):
    kernel = f"\tlinux /boot/vmlinuz-6.1.0-13-amd64 root=/dev/vda1 ro {arguments}\n\tinitrd /boot/initrd.img\n"
    return f"menuentry '{title}' {{\n{kernel}}}"


def section(script, *entries):
    return "\n".join([f"### BEGIN /etc/grub.d/{script} ###", *entries, f"### END /etc/grub.d/{script} ###", ""])


def debian(cmdline, *entries, more=""):
    files = {"boot/grub/grub.cfg": section("10_linux", *entries) + more, "proc/cmdline": cmdline + "\n"}
    return {**files, "usr/sbin/grub-mkconfig": ". /etc/default/grub.d\n"}


def bls(cmdline, *options):
    text = "title x\nlinux /vmlinuz-5.14\ninitrd /initrd\noptions "
    entries = {f"boot/loader/entries/{number}.conf": f"{text}{one}\n" for number, one in enumerate(options)}
    grub = {"boot/grub2/grub.cfg": "", "boot/grub2/grubenv": "kernelopts=root=/dev/vda1 nosmt\n"}
    return {**entries, **grub, "usr/sbin/grubby": "", "proc/cmdline": cmdline}


RESCUE = menuentry("single", title="Debian GNU/Linux, with Linux 6.1 (recovery mode)")
CUSTOM = section("40_custom", menuentry("nosmt", title="mine"))


@pytest.mark.parametrize(
    ("tree", "running", "configured", "reboot"),
    [
        (debian("BOOT_IMAGE=x quiet", menuentry("quiet"), RESCUE), [], [], False),
        (debian("quiet nosmt", menuentry("quiet nosmt"), RESCUE), ["nosmt"], ["nosmt"], False),
        (debian("quiet", menuentry("quiet nosmt"), RESCUE), [], ["nosmt"], True),
        (debian("quiet nosmt=force", menuentry("quiet")), ["nosmt=force"], [], True),
        (debian("quiet", menuentry("nosmt"), menuentry("quiet")), [], None, None),
        (debian("quiet", menuentry("quiet"), more=CUSTOM), [], [], False),
        (debian("quiet"), [], None, None),
        (bls("quiet", "ro nosmt", "ro nosmt"), [], ["nosmt"], True),
        (bls("quiet nosmt", "$kernelopts"), ["nosmt"], ["nosmt"], False),
        (bls("quiet", "nosmt", "quiet"), [], None, None),
        ({"proc/cmdline": "nosmt"}, ["nosmt"], None, None),
        ({}, None, None, None),
    ],
)
def test_running_and_configured(tmp_path, tree, running, configured, reboot):
    fs = host_files.HostFs(sysfs_tree.write(tmp_path, tree))
    facts = detection.facts(fs, detection.find_loader(fs))
    assert (facts["running"], facts["configured"], facts["reboot_required"]) == (running, configured, reboot)


@pytest.mark.parametrize(
    ("loader", "on_loader", "blocked_by", "chosen"),
    [
        (grub_debian.LOADER, None, None, "grub_debian"),
        (grubby.LOADER, None, "only root", None),
        (None, "zipl was found", None, None),
        (grub_debian.LOADER, "rpm-ostree manages it", None, None),
    ],
)
def test_impossible_methods_have_reasons(loader, on_loader, blocked_by, chosen):
    methods = detection.methods(detection.DetectedLoader(loader, blocked_by=on_loader), blocked_by)
    assert (methods["chosen"], methods["possible"]) == (chosen, [chosen] if chosen else [])
    assert set(methods["possible"]) | set(methods["impossible"]) == {known.name for known in registry.LOADERS}
    assert any((on_loader or blocked_by or "") in reason for reason in methods["impossible"].values())
