# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""GRUB on Debian and Ubuntu: how it is found, and its boot entries read."""

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.loaders import base as loader_base


def _backend(fs: host_files.HostFs, tool: str) -> "loader_base.Backend":
    # The facts of a host change nothing, and do not load it.
    from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import grub_debian

    return grub_debian.GrubDebian(fs, tool)


LOADER = loader_base.Loader(
    name="grub_debian",
    title="grub on Debian and Ubuntu",
    chosen="a `grub-mkconfig` that reads `/etc/default/grub.d`, and `/boot/grub/grub.cfg`",
    written="`/etc/default/grub.d/zz-threadwise-smt.cfg`, `grub.cfg`",
    tested="proven: Debian 12; expected: Ubuntu",
    evidence=loader_base.Evidence.GENERATOR,
    tools=loader_base.GRUB_MKCONFIG,
    file=boot_entries.GRUB_CFG,
    text="default/grub.d",
    read_entries=lambda fs: boot_entries.read_grub_cfg(fs, boot_entries.GRUB_CFG),
    backend=_backend,
    keeps_settings=True,
)
