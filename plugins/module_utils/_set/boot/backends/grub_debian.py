# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments on Debian and Ubuntu: our own file in /etc/default/grub.d,
which is read after those of the administrator, and grub-mkconfig.
"""

from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    entries as boot_entries,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import grub_mkconfig, transaction

DIRECTORY = "etc/default/grub.d"
DROP_IN = DIRECTORY + "/zz-threadwise-smt.cfg"

HEADER = """# Written by Ansible (threadwise.smt, role smt_boot): do not edit, the next run replaces it.
# It is read after the other files, removes conflicting arguments from their variables, and adds its own.
"""


class GrubDebian(grub_mkconfig.GrubMkconfig):
    """The backend for Debian and Ubuntu."""

    cfg_path = boot_entries.GRUB_CFG
    settings_path = DROP_IN

    def _settings(self, desired: boot_arguments.DesiredArguments, is_needed: bool) -> "tuple[str | None, str | None]":
        return transaction.read_exact(self._fs, DROP_IN), (
            HEADER + grub_mkconfig.shell_text(desired) if is_needed else None
        )

    def _with_own(self, settings: "str | None", own: "str | None") -> "str | None":
        return own

    def _own(self, settings: "str | None") -> "str | None":
        return settings

    def _administrators_files(self) -> "list[str]":
        paths = ["etc/default/grub"] + [
            DIRECTORY + "/" + name for name in self._fs.names(DIRECTORY) if name.endswith(".cfg") and name[0] != "."
        ]
        return [self._fs.path(path) for path in paths if path != DROP_IN and self._fs.status(path) is not None]

    def _place(self, files: "list[str]") -> int:
        return len([path for path in files if path < self._fs.path(DROP_IN)])
