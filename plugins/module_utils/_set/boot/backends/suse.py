# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments on SUSE: our own block at the end of /etc/default/grub, whose other bytes do not change,
and grub2-mkconfig.

On SUSE grub2-mkconfig reads no drop-in directory.
"""

import os
import tempfile

from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    entries as boot_entries,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import grub_mkconfig, transaction

SETTINGS = "etc/default/grub"
# The line break belongs to the block, so that a file without one at its end can be restored exactly.
BEGIN = "\n# BEGIN threadwise.smt (Ansible role smt_boot): do not edit, the next run replaces it\n"
END = "# END threadwise.smt\n"
# A file system in memory, for a file without a name.
MEMORY = "/dev/shm"


class GrubSuse(grub_mkconfig.GrubMkconfig):
    """The backend for SUSE."""

    cfg_path = boot_entries.GRUB2_CFG
    settings_path = SETTINGS

    _memory_file = ""

    def _settings(self, desired: boot_arguments.DesiredArguments, is_needed: bool) -> "tuple[str | None, str | None]":
        now = transaction.read_exact(self._fs, SETTINGS)
        return now, self._with_own(now, BEGIN + grub_mkconfig.shell_text(desired) + END if is_needed else None)

    def _with_own(self, settings: "str | None", own: "str | None") -> "str | None":
        return None if settings is None and own is None else without_block(settings or "") + (own or "")

    def _own(self, settings: "str | None") -> "str | None":
        start, end = _block(settings or "")
        return (settings or "")[start:end] or None

    def _values(self, own: "str | None" = None) -> "list[tuple[str, list[str]]]":
        # The shell reads the file without our block from memory: a disk for a copy may be full.
        text = without_block(transaction.read_exact(self._fs, SETTINGS) or "")
        with tempfile.TemporaryFile(dir=MEMORY, buffering=0) as copy:
            copy.write(text.encode("utf-8", "surrogateescape"))
            self._memory_file = f"/proc/{os.getpid()}/fd/{copy.fileno()}"
            return super()._values(own)

    def _administrators_files(self) -> "list[str]":
        return [self._memory_file]

    def _file_name(self, name: str) -> str:
        return self._fs.path(SETTINGS)


def without_block(text: str) -> str:
    """Return the text without our block. A block without an end is kept, because it is not known how far it reaches."""
    start, end = _block(text)
    return text[:start] + text[end:]


def _block(text: str) -> "tuple[int, int]":
    start = text.find(BEGIN)
    end = text.find(END, start)
    return (0, 0) if start < 0 or end < 0 else (start, end + len(END))
