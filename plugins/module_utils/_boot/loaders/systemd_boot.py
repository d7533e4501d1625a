# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments with systemd-boot: /etc/kernel/cmdline for kernels to come, and the `options` of the entries that are there.

Both hold the arguments as plain text (Boot Loader Specification, kernel-install(8)); no program is needed.
"""

from __future__ import annotations

import re

from ansible_collections.threadwise.smt.plugins.module_utils._boot import arguments as boot_arguments, entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import base as loader_base
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders.base import BootLoaderError, Change

_OPTIONS = re.compile(r"^(options[ \t]+)(.*)$", re.MULTILINE)


class SystemdBoot:
    """See `base`."""

    def __init__(self, fs, loader):
        self._fs = fs
        self._directory = loader.tool
        self.name = loader.name
        self.warnings = []

    def entries(self):
        """The entries of type 1; a unified kernel image carries its arguments inside and cannot be changed here."""
        images = self._directory.replace("loader/entries", "EFI/Linux")
        unified = [name for name in self._fs.names(images) if name.endswith(".efi")]
        if unified:
            raise BootLoaderError(
                "{} holds unified kernel images ({}), which carry their arguments inside: set the argument where they are built".format(
                    self._fs.path(images), ", ".join(unified[:3])
                )
            )
        return [entry for dummy, entry in boot_entries.read_bls(self._fs)]

    def found(self, wanted):
        """What drops out of the entries and of /etc/kernel/cmdline."""
        found = {}
        for path, text in self._texts():
            for argument in boot_arguments.superfluous(_arguments(path, text), wanted):
                found.setdefault(argument, self._fs.path(path))
        return [{"argument": argument, "where": where} for argument, where in found.items()]

    def pending(self, wanted):
        """See `base`."""
        self.entries()
        texts = self._texts()
        changes = [
            Change(self._fs.path(path), text, _rewritten(path, text, wanted)) for path, text in texts if boot_arguments.faults(_arguments(path, text), wanted)
        ]
        return changes + loader_base.leftovers(self._fs, [path for path, dummy in texts])

    def apply(self, wanted):
        """See `base`. Killed half way it leaves some entries changed and others not: each of them boots, and the next run goes on."""
        texts = self._texts()
        with loader_base.Undo(self._fs) as undo:
            for path, dummy in texts:
                undo.keep(path)
            for path, text in texts:
                if boot_arguments.faults(_arguments(path, text), wanted):
                    loader_base.replace(self._fs, path, _rewritten(path, text, wanted))
            faulty = loader_base.faulty_entries(self.entries(), wanted)
            if faulty:
                raise BootLoaderError(f"The entries would not be as wanted: {faulty}. Everything was put back as it was")

    def _texts(self):
        """[(path, text)] of /etc/kernel/cmdline and of the entries."""
        path = boot_entries.KERNEL_CMDLINE
        cmdline = loader_base.read_exact(self._fs, path)
        if cmdline is None:
            raise BootLoaderError(f"{self._fs.path(path)} is missing, so kernel-install gives a new kernel the arguments of the running one: write it first")
        texts = [(path, cmdline)]
        for path, dummy in boot_entries.read_bls(self._fs):
            texts.append((path, loader_base.read_exact(self._fs, path) or ""))
        return texts


def _arguments(path, text):
    if path == boot_entries.KERNEL_CMDLINE:
        return boot_arguments.split_arguments(text)
    return boot_arguments.split_arguments(" ".join(match.group(2) for match in _OPTIONS.finditer(text)))


def _rewritten(path, text, wanted):
    if path == boot_entries.KERNEL_CMDLINE:
        return boot_arguments.rewritten_text(text.strip(), wanted) + "\n"
    ours = " ".join(wanted.arguments)
    if not _OPTIONS.search(text):
        return text.rstrip("\n") + f"\noptions {ours}\n"
    nothing = boot_arguments.without_arguments(wanted)
    text = _OPTIONS.sub(lambda match: match.group(1) + boot_arguments.rewritten_text(match.group(2), nothing), text)
    return _OPTIONS.sub(lambda match: match.group(1) + (ours + " " + match.group(2)).strip(), text, count=1)
