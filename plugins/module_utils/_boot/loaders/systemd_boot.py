# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments with systemd-boot: /etc/kernel/cmdline for future kernels, and the `options` of the existing entries.

Both contain the arguments as plain text (Boot Loader Specification, kernel-install(8)); no program is needed.
"""

from __future__ import annotations

import re

from ansible_collections.threadwise.smt.plugins.module_utils._boot import arguments as boot_arguments, entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import base as loader_base
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders.base import BootLoaderError, TextChange
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

_OPTIONS = re.compile(r"^(options[ \t]+)(.*)$", re.MULTILINE)


class SystemdBoot:
    """The backend for systemd-boot.

    Args:
        fs: the host's files.
        loader: the host's boot loader.
    """

    def __init__(self, fs: host_files.HostFs, loader: boot_entries.Loader) -> None:
        self._fs = fs
        self._directory = loader.tool
        self.name = loader.name
        self.warnings: list[str] = []

    def entries(self) -> list[boot_entries.Entry]:
        """Return the entries of type 1. Unified kernel images are refused, because their arguments are embedded in them."""
        images = self._directory.replace("loader/entries", "EFI/Linux")
        unified = [name for name in self._fs.names(images) if name.endswith(".efi")]
        if unified:
            raise BootLoaderError(
                "{} contains unified kernel images ({}), in which the arguments are embedded: set the argument where the images are built".format(
                    self._fs.path(images), ", ".join(unified[:3])
                )
            )
        return [entry for dummy, entry in boot_entries.read_bls(self._fs)]

    def found(self, wanted: boot_arguments.Wanted) -> list[loader_base.FoundArgument]:
        """Return the arguments to remove from the entries and from /etc/kernel/cmdline."""
        found: dict[str, str] = {}
        for path, text in self._texts():
            for argument in boot_arguments.superfluous(_arguments(path, text), wanted):
                found.setdefault(argument, self._fs.path(path))
        return [{"argument": argument, "where": where} for argument, where in found.items()]

    def pending(self, wanted: boot_arguments.Wanted) -> list[loader_base.TextChange]:
        """Return the changes; see `base.Backend`."""
        self.entries()
        texts = self._texts()
        changes = [
            TextChange(self._fs.path(path), text, _rewritten(path, text, wanted))
            for path, text in texts
            if boot_arguments.faults(_arguments(path, text), wanted)
        ]
        return changes + loader_base.leftovers(self._fs, [path for path, dummy in texts])

    def apply(self, wanted: boot_arguments.Wanted) -> None:
        """Make the changes. A run that is killed leaves some entries changed and others not: each of them boots, and the next run continues."""
        texts = self._texts()
        with loader_base.Undo(self._fs) as undo:
            for path, dummy in texts:
                undo.back_up(path)
            for path, text in texts:
                if boot_arguments.faults(_arguments(path, text), wanted):
                    loader_base.replace(self._fs, path, _rewritten(path, text, wanted))
            faulty = loader_base.faulty_entries(self.entries(), wanted)
            if faulty:
                raise BootLoaderError(f"The entries would have wrong arguments: {faulty}. All files were restored")

    def _texts(self) -> list[tuple[str, str]]:
        """Return path and text of /etc/kernel/cmdline and of each entry."""
        path = boot_entries.KERNEL_CMDLINE
        cmdline = loader_base.read_exact(self._fs, path)
        if cmdline is None:
            raise BootLoaderError(
                f"{self._fs.path(path)} is missing, so kernel-install would give a new kernel the arguments of the running one: create the file first"
            )
        texts = [(path, cmdline)]
        for path, dummy in boot_entries.read_bls(self._fs):
            texts.append((path, loader_base.read_exact(self._fs, path) or ""))
        return texts


def _arguments(path: str, text: str) -> list[str]:
    if path == boot_entries.KERNEL_CMDLINE:
        return boot_arguments.split_arguments(text)
    return boot_arguments.split_arguments(" ".join(match.group(2) for match in _OPTIONS.finditer(text)))


def _rewritten(path: str, text: str, wanted: boot_arguments.Wanted) -> str:
    if path == boot_entries.KERNEL_CMDLINE:
        return boot_arguments.rewritten_text(text.strip(), wanted) + "\n"
    added = " ".join(wanted.arguments)
    if not _OPTIONS.search(text):
        return text.rstrip("\n") + f"\noptions {added}\n"
    removal = boot_arguments.without_arguments(wanted)
    text = _OPTIONS.sub(lambda match: match.group(1) + boot_arguments.rewritten_text(match.group(2), removal), text)
    return _OPTIONS.sub(lambda match: match.group(1) + (added + " " + match.group(2)).strip(), text, count=1)
