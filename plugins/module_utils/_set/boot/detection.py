# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot part of the facts: which boot loader a host has, by what is installed and not by the name of the
distribution; SMT arguments of the running kernel, those of the next boot, and whether a reboot would change them.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.arguments import (
    are_same,
    smt_arguments,
    split_arguments,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import base as loader_base, registry

NONE = "none"

_LOADER_INFO = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
# systemd-stub says so in unified kernel images, whatever has started them (systemd-stub(7)).
_STUB_INFO = "sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
# Systems that no method supports, by the file that identifies them: something else writes their boot entries.
_UNSUPPORTED_SYSTEMS = {
    _STUB_INFO: (
        "this system was booted from a unified kernel image, in which the arguments are embedded: set the argument"
        " where the images are built, or in a signed add-on of it"
    ),
    "etc/NIXOS": "NixOS writes all boot entries: set boot.kernelParams in its configuration",
    "etc/kernelstub/configuration": (
        "kernelstub writes the boot entries of this system: use kernelstub --add-options and --delete-options"
    ),
    "run/ostree-booted": "this system is managed by rpm-ostree: use rpm-ostree kargs",
    "etc/kernel/proxmox-boot-uuids": (
        "proxmox-boot-tool copies the boot configuration to partitions of its own: set the argument in its files"
    ),
    "usr/sbin/transactional-update": (
        "transactional-update changes this system in a new snapshot: set the argument with transactional-update"
        " grub.cfg"
    ),
}
# What is named where no loader of the registry takes the host, by the file that shows it.
OTHER_LOADERS = {
    "etc/default/u-boot": (
        "extlinux with U-Boot, whose entries u-boot-update writes: set the argument in U_BOOT_PARAMETERS there"
    ),
    "boot/extlinux/extlinux.conf": "extlinux",
    "etc/zfsbootmenu": (
        "ZFSBootMenu, which takes arguments from the property org.zfsbootmenu:commandline of the root's dataset"
    ),
    "sys/firmware/devicetree/base/ibm,opal": (
        "petitboot, which reads the entries of another boot loader: none was found that can be changed"
    ),
    "boot/firmware/cmdline.txt": "the boot loader of the Raspberry Pi",
    "boot/cmdline.txt": "the boot loader of the Raspberry Pi",
    "etc/zipl.conf": "zipl without grubby",
    "etc/lilo.conf": "LILO",
    "boot/refind_linux.conf": "rEFInd",
    "boot/grub/menu.lst": "GRUB legacy",
    "boot/grub2/grub.cfg": "GRUB without grubby and without the tools of SUSE",
    "boot/grub/grub.cfg": "GRUB without a grub-mkconfig that reads /etc/default/grub.d",
}
_NAMES = [loader.name for loader in registry.LOADERS]


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


class BootFacts(TypedDict):
    """Facts about boot arguments. The lists hold the arguments that affect SMT, in order.

    Attributes:
        running: arguments of the running kernel; None when they cannot be read.
        configured: arguments of the next boot; None when it is not known which entry boots next.
        loader: name of the boot loader.
        reboot_required: whether the two lists differ; None when one of them is unknown.
    """

    running: "list[str] | None"
    configured: "list[str] | None"
    loader: str
    reboot_required: "bool | None"


class BootMethods(TypedDict):
    """Methods to set a boot argument.

    Attributes:
        chosen: the method for this host, or None.
        possible: methods that work on this host.
        impossible: for each other method the reason why it does not.
    """

    chosen: "str | None"
    possible: "list[str]"
    impossible: "dict[str, str]"


def find_loader(fs: host_files.HostFs) -> DetectedLoader:
    """Return the boot loader of a host.

    Args:
        fs: the host's files.

    Returns:
        The boot loader with the highest evidence, of equal ones the first in the registry; or the reason why none is
        supported.
    """
    path = _first_existing(fs, _UNSUPPORTED_SYSTEMS)
    if path is not None:
        return DetectedLoader(None, blocked_by=f"{fs.path(path)} exists: {_UNSUPPORTED_SYSTEMS[path]}")
    highest, detected = 0, DetectedLoader(None)
    for loader in registry.LOADERS:
        evidence, found = _found(fs, loader)
        if evidence > highest:
            highest, detected = evidence, found
    if highest:
        return detected
    path = _first_existing(fs, OTHER_LOADERS)
    if path is not None:
        why_not = f"{fs.path(path)} was found: {OTHER_LOADERS[path]}"
    else:
        path = _first_existing(fs, loader_base.GRUB_MKCONFIG + loader_base.GRUB2_MKCONFIG)
        why_not = (
            f"no boot loader was found in {fs.path('boot')}, as is usual in a container"
            if path is None
            else f"{fs.path(path)} is installed, and neither {' nor '.join(map(fs.path, boot_entries.GRUB_CFGS))} is"
            " there: check that the file system with /boot is mounted, and that grub-mkconfig has been run"
        )
    *titles, last = [loader.title for loader in registry.LOADERS]
    return DetectedLoader(
        None,
        blocked_by=f"{why_not}. Supported are {', '.join(titles)} and {last}. Without one of these use"
        " smt_runtime_persist of the role smt_runtime",
    )


def _found(fs: host_files.HostFs, loader: loader_base.Loader) -> "tuple[int, DetectedLoader]":
    """Return the evidence for a boot loader, 0 without, and what follows for this host."""
    tool = _first_existing(fs, loader.tools) if loader.tools else boot_entries.bls_directory(fs)
    # When several boot loaders are installed, this firmware variable names the one that started the system.
    if loader.firmware and loader.firmware in (fs.head(_LOADER_INFO, 256) or "").replace("\0", ""):
        detected = DetectedLoader(loader, tool) if tool else DetectedLoader(None, blocked_by=_no_entries(fs, loader))
        return loader_base.Evidence.FIRMWARE, detected
    is_helped = not loader.helpers or _first_existing(fs, loader.helpers) is not None
    if (
        tool is None
        or not is_helped
        or _first_existing(fs, loader.lacks) is not None
        or (loader.file and fs.status(loader.file) is None)
        or (loader.text and loader.text not in (fs.read(tool) or ""))
    ):
        return 0, DetectedLoader(None)
    return loader.evidence, DetectedLoader(loader, tool)


def _no_entries(fs: host_files.HostFs, loader: loader_base.Loader) -> str:
    """Return why a boot loader that started the system cannot be changed where no entries of it are there."""
    directories = boot_entries.BLS_DIRECTORIES
    unified = next(filter(None, (boot_entries.unified_images(fs, path) for path in directories)), None)
    return unified or (
        f"{loader.title} started this system, and none of {', '.join(map(fs.path, directories))} has an entry of it:"
        " mount the EFI system partition, at /boot/efi for example"
    )


def _first_existing(fs: host_files.HostFs, paths: "t.Iterable[str]") -> "str | None":
    for path in paths:
        if fs.status(path) is not None:
            return path
    return None


def facts(fs: host_files.HostFs, detected: DetectedLoader) -> BootFacts:
    """Return the facts about boot arguments.

    Args:
        fs: the host's files.
        detected: the host's boot loader.

    Returns:
        The facts.
    """
    cmdline = fs.read("proc/cmdline")
    running = None if cmdline is None else list(dict.fromkeys(smt_arguments(split_arguments(cmdline))))
    configured = None if detected.loader is None else _configured(detected.loader.read_entries(fs))
    reboot_required = None if running is None or configured is None else not are_same(running, configured)
    return {"running": running, "configured": configured, "loader": detected.name, "reboot_required": reboot_required}


def _configured(entries: "list[boot_entries.Entry]") -> "list[str] | None":
    """Return the SMT arguments on which all entries that can boot by default agree;
    None when there are no such entries or they differ.

    The default entry can depend on variables, fallbacks and the last choice in the menu, so no single entry is trusted.
    Entries for recovery do not boot by default, and those written by hand or for another system are not generated from
    this host's settings.
    """
    normal = [entry for entry in entries if entry.generated and not entry.is_rescue]
    # What another tool sets, too, is there once. What one setting has twice, smt_boot_args would change.
    distinct = {
        tuple(
            smt_arguments(
                [*entry.arguments, *(argument for argument in entry.borrowed if argument not in entry.arguments)]
            )
        )
        for entry in normal
    }
    return list(distinct.pop()) if len(distinct) == 1 else None


def methods(detected: DetectedLoader, blocked_by: "str | None") -> BootMethods:
    """Return the methods to set a boot argument, possible and impossible ones.

    Args:
        detected: the host's boot loader.
        blocked_by: why the boot configuration cannot be written at all, or None.

    Returns:
        The methods.
    """
    if detected.loader is None or detected.blocked_by is not None:
        reasons = dict.fromkeys(_NAMES, detected.blocked_by or "no boot loader was found")
    else:
        reasons = dict.fromkeys(_NAMES, f"the boot loader found here is {detected.name}")
        del reasons[detected.name]
        if blocked_by is not None:
            reasons[detected.name] = blocked_by
    possible = [] if len(reasons) == len(_NAMES) else [detected.name]
    return {"chosen": possible[0] if possible else None, "possible": possible, "impossible": reasons}
