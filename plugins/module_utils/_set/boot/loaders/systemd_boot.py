# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd-boot: how it is found, and its boot entries read."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import base as loader_base

if t.TYPE_CHECKING:
    from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends.base import Backend

_LOADER_INFO = "sys/firmware/efi/efivars/LoaderInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"


def _find(fs: host_files.HostFs) -> "loader_base.LoaderFinding | None":
    directory = boot_entries.bls_directory(fs)
    # When several boot loaders are installed, this firmware variable names the one that started the system.
    if "systemd-boot" in (fs.head(_LOADER_INFO, 256) or "").replace("\0", ""):
        if directory is None:
            places = ", ".join(fs.path(path) for path in boot_entries.BLS_DIRECTORIES)
            missing = (
                f"systemd-boot started this system, and none of {places} has an entry of it: mount the EFI system"
                " partition, at /boot/efi for example"
            )
            unified = next(
                filter(None, (boot_entries.unified_images(fs, path) for path in boot_entries.BLS_DIRECTORIES)), None
            )
            return loader_base.LoaderFinding(loader_base.Evidence.FIRMWARE, "", unified or missing)
        return loader_base.LoaderFinding(loader_base.Evidence.FIRMWARE, directory)
    if directory is None:
        return None
    if (
        loader_base.first_existing(fs, boot_entries.GRUB_CFGS) is None
        and fs.status(boot_entries.KERNEL_CMDLINE) is not None
    ):
        return loader_base.LoaderFinding(loader_base.Evidence.ONLY_ONE, directory)
    return None


def _backend(fs: host_files.HostFs, tool: str) -> "Backend":
    # The facts of a host change nothing, and do not load it.
    from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import systemd_boot

    return systemd_boot.SystemdBoot(fs, tool)


LOADER = loader_base.Loader(
    name="systemd_boot",
    title="systemd-boot",
    chosen="the firmware's report of it, or `/etc/kernel/cmdline` and no grub",
    written="`/etc/kernel/cmdline`, the entries' `options`",
    tested="proven: Debian 12, UEFI",
    find=_find,
    read_entries=lambda fs: [entry for dummy, entry in boot_entries.read_bls(fs, unquotes=True)],
    backend=_backend,
)
