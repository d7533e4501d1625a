# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd-boot: how it is found, and its boot entries read."""

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import base as loader_base


def _backend(fs: host_files.HostFs, tool: str) -> "loader_base.Backend":
    # The facts of a host change nothing, and do not load it.
    from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import systemd_boot

    return systemd_boot.SystemdBoot(fs, tool)


LOADER = loader_base.Loader(
    name="systemd_boot",
    title="systemd-boot",
    chosen="the firmware's report of it, or `/etc/kernel/cmdline` and no grub",
    written="`/etc/kernel/cmdline`, the entries' `options`",
    tested="proven: Debian 12, UEFI",
    evidence=loader_base.Evidence.ONLY_ONE,
    lacks=boot_entries.GRUB_CFGS,
    file=boot_entries.KERNEL_CMDLINE,
    firmware="systemd-boot",
    read_entries=lambda fs: [entry for dummy, entry in boot_entries.read_bls(fs, unquotes=True)],
    backend=_backend,
)
