# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""grubby: how it is found, and boot entries read as it lists them."""

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import base as loader_base


def _read_entries(fs: host_files.HostFs) -> "list[boot_entries.Entry]":
    return [entry for dummy, entry in boot_entries.read_bls(fs)] or boot_entries.read_grub_cfg(
        fs, boot_entries.GRUB2_CFG
    )


def _backend(fs: host_files.HostFs, tool: str) -> "loader_base.Backend":
    # The facts of a host change nothing, and do not load it.
    from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import grubby

    return grubby.Grubby(fs, tool)


LOADER = loader_base.Loader(
    name="grubby",
    title="grubby",
    chosen="`grubby`",
    written="by grubby: every entry, and `kernelopts`; `/etc/kernel/cmdline`, `/etc/default/grub`",
    tested="expected: RHEL family, Fedora; recorded calls of a real grubby",
    evidence=loader_base.Evidence.MANAGER,
    tools=("usr/sbin/grubby", "usr/bin/grubby", "sbin/grubby"),
    read_entries=_read_entries,
    backend=_backend,
)
