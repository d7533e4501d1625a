# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest
import sysfs_tree
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    detection,
    facts as boot_facts,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import grub_debian, grubby, registry

AFFECT = """nosmt nosmt=force maxcpus=4 nr_cpus=4 nosmp smt-enabled=off smt_enabled=2 smt=1 mitigations=auto,nosmt
    mds=full,nosmt l1tf=full l1tf=full,force l1tf=flush,nosmt tsx_async_abort=full,nosmt mmio_stale_data=full,nosmt"""
OTHERS = "quiet isolcpus=1,3 mitigations=auto mds=full l1tf=flush nosmtx root=/dev/nosmt smtp=x nohz_full=1-3"


def test_which_arguments_affect_smt():
    assert boot_arguments.smt_arguments([*OTHERS.split(), *AFFECT.split()]) == AFFECT.split()


def menuentry(arguments, title="Debian GNU/Linux"):
    kernel = f"\tlinux /boot/vmlinuz-6.1.0-13-amd64 root=/dev/vda1 ro {arguments}\n\tinitrd /boot/initrd.img\n"
    return f"menuentry '{title}' {{\n{kernel}}}"


def debian(cmdline, *entries):
    cfg = "\n".join(["### BEGIN /etc/grub.d/10_linux ###", *entries, "### END /etc/grub.d/10_linux ###", ""])
    tool = ". /etc/default/grub.d\n"
    return {"boot/grub/grub.cfg": cfg, "usr/sbin/grub-mkconfig": tool, "proc/cmdline": cmdline + "\n"}


def bls(cmdline, *options):
    entries = {
        f"boot/loader/entries/{number}.conf": f"title x\nlinux /vmlinuz-5.14\ninitrd /initrd\noptions {text}\n"
        for number, text in enumerate(options)
    }
    grub = {"boot/grub2/grub.cfg": "", "boot/grub2/grubenv": "kernelopts=root=/dev/vda1 nosmt\n"}
    return {**entries, **grub, "usr/sbin/grubby": "", "proc/cmdline": cmdline}


def read(root, tree):
    fs = host_files.HostFs(sysfs_tree.write(root, tree))
    return boot_facts.read(fs, detection.find_loader(fs))


RESCUE = menuentry("single", title="Debian GNU/Linux, with Linux 6.1 (recovery mode)")


@pytest.mark.parametrize(
    ("tree", "running", "configured", "reboot"),
    [
        (debian("BOOT_IMAGE=x quiet", menuentry("quiet"), RESCUE), [], [], False),
        (debian("quiet nosmt", menuentry("quiet nosmt"), RESCUE), ["nosmt"], ["nosmt"], False),
        (debian("quiet", menuentry("quiet nosmt"), RESCUE), [], ["nosmt"], True),
        (debian("quiet nosmt=force", menuentry("quiet")), ["nosmt=force"], [], True),
        (debian("quiet", menuentry("nosmt"), menuentry("quiet")), [], None, None),
        (debian("quiet"), [], None, None),
        (bls("quiet", "ro nosmt", "ro nosmt"), [], ["nosmt"], True),
        (bls("quiet nosmt", "$kernelopts"), ["nosmt"], ["nosmt"], False),
        (bls("quiet", "nosmt", "quiet"), [], None, None),
        ({"proc/cmdline": "nosmt"}, ["nosmt"], None, None),
        ({}, None, None, None),
    ],
)
def test_running_and_configured(tmp_path, tree, running, configured, reboot):
    facts = read(tmp_path, tree)
    assert (facts["running"], facts["configured"], facts["reboot_required"]) == (running, configured, reboot)


def test_an_entry_that_is_not_generated_from_the_settings_is_ignored(tmp_path):
    tree = debian("quiet", menuentry("quiet"))
    tree["boot/grub/grub.cfg"] += (
        f"### BEGIN /etc/grub.d/40_custom ###\n{menuentry('nosmt', title='mine')}\n### END /etc/grub.d/40_custom ###\n"
    )
    assert read(tmp_path, tree)["configured"] == []


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
    methods = boot_facts.methods(detection.DetectedLoader(loader, blocked_by=on_loader), blocked_by)
    assert methods["chosen"] == chosen
    assert methods["possible"] == ([] if chosen is None else [chosen])
    assert set(methods["possible"]) | set(methods["impossible"]) == {known.name for known in registry.LOADERS}
    part = on_loader or blocked_by or ""
    assert any(part in reason for reason in methods["impossible"].values())
