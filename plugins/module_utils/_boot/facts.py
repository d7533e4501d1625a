# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The boot part of the facts: SMT arguments of the running kernel, those of the next start, and whether a reboot would change something."""

from __future__ import annotations

import re

from ansible_collections.threadwise.smt.plugins.module_utils._boot import entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._boot.arguments import smt_arguments, split_arguments

METHODS = (boot_entries.GRUB_DEBIAN, boot_entries.GRUBBY, boot_entries.GRUB_SUSE, boot_entries.SYSTEMD_BOOT)

_RESCUE = re.compile(r"recovery|rescue", re.IGNORECASE)


def read(fs, loader):
    """The facts about boot arguments.

    Args:
        fs: `files.HostFs`.
        loader: `boot_entries.Loader`.

    Returns:
        ``{'running': [str] or None, 'configured': [str] or None, 'loader': str, 'reboot_required': bool or None}``. The lists hold the
            arguments that bear on SMT, in order. `configured` is None where it is not known what would be started next; `reboot_required`, whether
            the two differ, is None where one of them is unknown.
    """
    cmdline = fs.read("proc/cmdline")
    running = None if cmdline is None else smt_arguments(split_arguments(cmdline))
    configured = _configured(boot_entries.read_entries(fs, loader))
    unknown = running is None or configured is None
    return {"running": running, "configured": configured, "loader": loader.name, "reboot_required": None if unknown else sorted(running) != sorted(configured)}


def _configured(entries):
    """What the entries that could be started by themselves have in common; None when there are none, or they do not agree.

    Which entry is the default can hang on variables, fallbacks and what was chosen last, so no single entry is believed against the others.
    Entries for recovery are not started by themselves, and those written by hand or for another system are not made from this host's settings.
    """
    normal = [entry for entry in entries if entry.generated and not _RESCUE.search(entry.title)]
    wishes = {tuple(smt_arguments(entry.arguments)) for entry in normal}
    return list(wishes.pop()) if len(wishes) == 1 else None


def methods(loader, hindrance):
    """Ways to set a boot argument: ``{'chosen': str or None, 'possible': [str], 'impossible': {name: reason}}``.

    Args:
        loader: `boot_entries.Loader`.
        hindrance: why nothing can be written here at all (str), or None.
    """
    found = loader.name in METHODS and loader.hindrance is None
    reasons = {name: f"the boot loader found here is {loader.name}" for name in METHODS if name != loader.name}
    if not found:
        reasons = dict.fromkeys(METHODS, loader.hindrance or "no boot loader was found")
    elif hindrance is not None:
        reasons[loader.name] = hindrance
    possible = [name for name in METHODS if name not in reasons]
    return {"chosen": possible[0] if possible else None, "possible": possible, "impossible": reasons}
