# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments on SUSE: our own block at the end of /etc/default/grub, whose other bytes do not change, and grub2-mkconfig.

On SUSE grub2-mkconfig reads no drop-in directory.
"""

from __future__ import annotations

import os

from ansible_collections.threadwise.smt.plugins.module_utils._boot import arguments as boot_arguments, entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import base as loader_base, grub_mkconfig
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

SETTINGS = "etc/default/grub"
# The line break belongs to the block, so that a file without one at its end can be restored exactly.
BEGIN = "\n# BEGIN threadwise.smt (Ansible role smt_boot): do not edit, the next run replaces it\n"
END = "# END threadwise.smt\n"


class GrubSuse(grub_mkconfig.GrubMkconfig):
    """The backend for SUSE."""

    settings_path = SETTINGS

    def __init__(self, fs: host_files.HostFs, loader: boot_entries.Loader) -> None:
        super().__init__(fs, loader)
        self._memory_file = ""

    def _settings(self, wanted: boot_arguments.Wanted, is_needed: bool) -> tuple[str | None, str | None]:
        now = loader_base.read_exact(self._fs, SETTINGS)
        if is_needed:
            return now, without_block(now or "") + BEGIN + grub_mkconfig.shell_text(wanted) + END
        return now, None if now is None else without_block(now)

    def _values(self) -> list[tuple[str, list[str]]]:
        # The shell reads the file without our block from memory: a disk for a copy may be full.
        text = without_block(loader_base.read_exact(self._fs, SETTINGS) or "")
        descriptor = os.memfd_create("grub")
        try:
            os.write(descriptor, text.encode("utf-8", "surrogateescape"))
            self._memory_file = f"/proc/{os.getpid()}/fd/{descriptor}"
            return super()._values()
        finally:
            os.close(descriptor)

    def _administrators_files(self) -> list[str]:
        return [self._memory_file]

    def _shown(self, name: str) -> str:
        return self._fs.path(SETTINGS)


def without_block(text: str) -> str:
    """Return the text without our block. A block without an end is kept, because it is not known how far it reaches."""
    start = text.find(BEGIN)
    end = text.find(END, start)
    return text if start < 0 or end < 0 else text[:start] + text[end + len(END) :]
