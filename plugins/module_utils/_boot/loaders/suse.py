# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments on SUSE: a block of our own at the end of /etc/default/grub, whose other bytes stay as they are, and grub2-mkconfig.

grub2-mkconfig of SUSE reads no directory of drop-ins.
"""

from __future__ import annotations

import os

from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import base as loader_base, grub_mkconfig

SETTINGS = "etc/default/grub"
# The line break belongs to the block, so that a file without one at its end comes back as it was.
BEGIN = "\n# BEGIN threadwise.smt (Ansible role smt_boot): do not edit, the next run replaces it\n"
END = "# END threadwise.smt\n"


class GrubSuse(grub_mkconfig.GrubMkconfig):
    """See `base` and `grub_mkconfig`."""

    settings_path = SETTINGS

    def __init__(self, fs, loader):
        super().__init__(fs, loader)
        self._memory = ""

    def _settings(self, wanted, is_needed):
        now = loader_base.read_exact(self._fs, SETTINGS)
        if is_needed:
            return now, without_block(now or "") + BEGIN + grub_mkconfig.shell_text(wanted) + END
        return now, None if now is None else without_block(now)

    def _values(self):
        # A shell reads the file without our block from memory, not from a copy on a disk that may be full.
        text = without_block(loader_base.read_exact(self._fs, SETTINGS) or "")
        descriptor = os.memfd_create("grub")
        try:
            os.write(descriptor, text.encode("utf-8", "surrogateescape"))
            self._memory = f"/proc/{os.getpid()}/fd/{descriptor}"
            return super()._values()
        finally:
            os.close(descriptor)

    def _administrators_files(self):
        return [self._memory]

    def _shown(self, name):
        return self._fs.path(SETTINGS)


def without_block(text):
    """The text without our block; a block whose end is missing is not ours to cut."""
    start = text.find(BEGIN)
    end = text.find(END, start)
    return text if start < 0 or end < 0 else text[:start] + text[end + len(END) :]
