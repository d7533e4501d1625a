# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which boot loader a host has, detected from what is installed and not from the name of the distribution."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import base as loader_base, registry

NONE = "none"

# systemd-stub says so in unified kernel images, whatever has started them (systemd-stub(7)).
_STUB_INFO = "sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
# Systems that no method supports, by the file that identifies them: something else writes their boot entries.
_UNSUPPORTED_SYSTEMS = (
    (
        _STUB_INFO,
        (
            "this system was booted from a unified kernel image, in which the arguments are embedded: set the argument"
            " where the images are built, or in a signed add-on of it"
        ),
    ),
    ("etc/NIXOS", "NixOS writes all boot entries: set boot.kernelParams in its configuration"),
    (
        "etc/kernelstub/configuration",
        "kernelstub writes the boot entries of this system: use kernelstub --add-options and --delete-options",
    ),
    ("run/ostree-booted", "this system is managed by rpm-ostree: use rpm-ostree kargs"),
    (
        "etc/kernel/proxmox-boot-uuids",
        "proxmox-boot-tool copies the boot configuration to partitions of its own: set the argument in its files",
    ),
    (
        "usr/sbin/transactional-update",
        (
            "transactional-update changes this system in a new snapshot: set the argument with transactional-update"
            " grub.cfg"
        ),
    ),
)
# What is named where no loader of the registry takes the host, by the file that shows it.
OTHER_LOADERS = (
    (
        "etc/default/u-boot",
        "extlinux with U-Boot, whose entries u-boot-update writes: set the argument in U_BOOT_PARAMETERS there",
    ),
    ("boot/extlinux/extlinux.conf", "extlinux"),
    (
        "etc/zfsbootmenu",
        "ZFSBootMenu, which takes arguments from the property org.zfsbootmenu:commandline of the root's dataset",
    ),
    (
        "sys/firmware/devicetree/base/ibm,opal",
        "petitboot, which reads the entries of another boot loader: none was found that can be changed",
    ),
    ("boot/firmware/cmdline.txt", "the boot loader of the Raspberry Pi"),
    ("boot/cmdline.txt", "the boot loader of the Raspberry Pi"),
    ("etc/zipl.conf", "zipl without grubby"),
    ("etc/lilo.conf", "LILO"),
    ("boot/refind_linux.conf", "rEFInd"),
    ("boot/grub/menu.lst", "GRUB legacy"),
    ("boot/grub2/grub.cfg", "GRUB without grubby and without the tools of SUSE"),
    ("boot/grub/grub.cfg", "GRUB without a grub-mkconfig that reads /etc/default/grub.d"),
)


class DetectedLoader(t.NamedTuple):
    """The boot loader of a host.

    Attributes:
        loader: the boot loader, or None when it is not a supported one.
        tool: path, below the sysroot, of the program or the directory that the loader's backend uses; empty without a
            loader.
        blocked_by: why its configuration cannot be changed, with the file that shows this; None when it can.
    """

    loader: t.Optional[loader_base.Loader]
    tool: str = ""
    blocked_by: "str | None" = None

    @property
    def name(self) -> str:
        """The name of the boot loader, or `NONE`."""
        return NONE if self.loader is None else self.loader.name


def find_loader(fs: host_files.HostFs) -> DetectedLoader:
    """Return the boot loader of a host.

    Args:
        fs: the host's files.

    Returns:
        The boot loader with the highest evidence, of equal ones the first in the registry; or the reason why none is
        supported.
    """
    for path, reason in _UNSUPPORTED_SYSTEMS:
        if fs.status(path) is not None:
            return DetectedLoader(None, blocked_by=f"{fs.path(path)} exists: {reason}")
    findings = [
        (loader, finding)
        for loader, finding in ((loader, loader.find(fs)) for loader in registry.LOADERS)
        if finding is not None
    ]
    if findings:
        loader, finding = max(findings, key=lambda pair: pair[1].evidence)
        return (
            DetectedLoader(loader, finding.tool)
            if finding.blocked_by is None
            else DetectedLoader(None, blocked_by=finding.blocked_by)
        )
    why_not = next(
        (f"{fs.path(path)} was found: {what}" for path, what in OTHER_LOADERS if fs.status(path) is not None), None
    )
    why_not = why_not or _not_mounted(fs)
    titles = [loader.title for loader in registry.LOADERS]
    return DetectedLoader(
        None,
        blocked_by=(why_not or f"no boot loader was found in {fs.path('boot')}, as is usual in a container")
        + f". Supported are {', '.join(titles[:-1])} and {titles[-1]}. Without one of these use smt_runtime_persist of"
        " the role smt_runtime",
    )


def _not_mounted(fs: host_files.HostFs) -> "str | None":
    """Return that /boot is not there where grub is installed without its configuration, or None."""
    for path in loader_base.GRUB_MKCONFIG + loader_base.GRUB2_MKCONFIG:
        if fs.status(path) is not None:
            return (
                f"{fs.path(path)} is installed, and neither"
                f" {' nor '.join(fs.path(cfg) for cfg in boot_entries.GRUB_CFGS)} is there: check that the file system"
                " with /boot is mounted, and that grub-mkconfig has been run"
            )
    return None
