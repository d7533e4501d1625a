# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments on Debian and Ubuntu: a file of our own in /etc/default/grub.d, which is read after the administrator's, and grub-mkconfig."""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import base as loader_base, grub_mkconfig

DIRECTORY = "etc/default/grub.d"
DROP_IN = DIRECTORY + "/zz-threadwise-smt.cfg"

HEADER = """# Written by Ansible (threadwise.smt, role smt_boot): do not edit, the next run replaces it.
# It comes after the other files, takes words that contradict the setting out of their variables, and adds its own.
"""


class GrubDebian(grub_mkconfig.GrubMkconfig):
    """See `base` and `grub_mkconfig`."""

    settings_path = DROP_IN

    def _settings(self, wanted, is_needed):
        return loader_base.read_exact(self._fs, DROP_IN), HEADER + grub_mkconfig.shell_text(wanted) if is_needed else None

    def _administrators_files(self):
        paths = ["etc/default/grub"] + [DIRECTORY + "/" + name for name in self._fs.names(DIRECTORY) if name.endswith(".cfg") and name[0] != "."]
        return [self._fs.path(path) for path in paths if path != DROP_IN and self._fs.status(path) is not None]
