# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""GRUB on SUSE: how it is found, and its boot entries read."""

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import base as loader_base


def _backend(fs: host_files.HostFs, tool: str) -> "loader_base.Backend":
    # The facts of a host change nothing, and do not load it.
    from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import suse

    return suse.GrubSuse(fs, tool)


LOADER = loader_base.Loader(
    name="grub_suse",
    title="grub on SUSE",
    chosen="`grub2-mkconfig` with SUSE's `update-bootloader` or `pbl`",
    written="a block at the end of `/etc/default/grub`, `grub.cfg`",
    tested="expected",
    evidence=loader_base.Evidence.DISTRIBUTION,
    tools=loader_base.GRUB2_MKCONFIG,
    helpers=("usr/sbin/update-bootloader", "sbin/update-bootloader", "usr/sbin/pbl", "sbin/pbl"),
    file=boot_entries.GRUB2_CFG,
    read_entries=lambda fs: boot_entries.read_grub_cfg(fs, boot_entries.GRUB2_CFG),
    backend=_backend,
    keeps_settings=True,
)
