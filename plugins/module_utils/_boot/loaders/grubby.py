# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments with grubby: RHEL family and Fedora, with entries of the Boot Loader Specification or without.

The exit code of grubby is not enough: older versions (grubby-bls of EL 8) search for an argument as a substring, so they take ``mds=full,nosmt`` for
``nosmt``. Therefore each entry is read back and all its arguments are compared. Kernels installed later get their arguments from
/etc/kernel/cmdline, or from `kernelopts` in grub's environment block.
"""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.module_utils._boot import arguments as boot_arguments, entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import base as loader_base
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders.base import BootLoaderError, TextChange
from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

# All files that grubby may write; they are restored when anything fails.
_FILES = ("etc/default/grub", boot_entries.KERNEL_CMDLINE, "boot/grub2/grub.cfg", "boot/grub2/grubenv", "etc/zipl.conf")


class Grubby:
    """The backend for grubby.

    Args:
        fs: the host's files.
        loader: the host's boot loader.
    """

    def __init__(self, fs: host_files.HostFs, loader: boot_entries.Loader) -> None:
        self._fs = fs
        self._tool = loader.tool
        self.name = loader.name
        self.warnings: list[str] = []

    def entries(self) -> list[boot_entries.Entry]:
        """Return the entries that ``grubby --info=ALL`` lists."""
        return [entry for dummy, entry in self._indexed()]

    def found(self, wanted: boot_arguments.Wanted) -> list[loader_base.FoundArgument]:
        """Return the arguments to remove from the entries and from the arguments of future kernels."""
        places = [(f"boot entry {entry.title or entry.kernel}", list(entry.arguments)) for entry in self.entries()]
        places += [(where, arguments) for where, arguments in self._future() if arguments is not None]
        found: dict[str, str] = {}
        for where, arguments in places:
            for argument in boot_arguments.superfluous(arguments, wanted):
                found.setdefault(argument, where)
        return [{"argument": argument, "where": where} for argument, where in found.items()]

    def pending(self, wanted: boot_arguments.Wanted) -> list[loader_base.TextChange]:
        """Return the changes; see `base.Backend`."""
        changes = [loader_base.entries_change("grubby --info=ALL", self.entries(), wanted)]
        future = self._future()
        for where, arguments in future:
            if arguments is not None and boot_arguments.faults(arguments, wanted):
                changes.append(TextChange(where, " ".join(arguments) + "\n", " ".join(boot_arguments.applied(arguments, wanted)) + "\n"))
        if all(arguments is None for dummy, arguments in future):
            self.warnings.append(
                f"Neither {self._fs.path(boot_entries.KERNEL_CMDLINE)} nor kernelopts in grub's environment block exists: "
                "check the arguments in the entry of a kernel that is installed later."
            )
        return [change for change in changes if change is not None] + loader_base.leftovers(self._fs, self._files())

    def apply(self, wanted: boot_arguments.Wanted) -> None:
        """Make the changes. A run that is killed leaves some entries changed and others not: each of them boots, and the next run continues."""
        before = self._indexed()
        with loader_base.Undo(self._fs) as undo:
            for path in self._files():
                undo.back_up(path)
            if any(boot_arguments.faults(entry.arguments, wanted) for dummy, entry in before) or self._kernelopts_faults(wanted):
                self._update(before, wanted)
            self._write_kernel_cmdline(wanted)
            self._check(before, wanted)

    def _files(self) -> list[str]:
        # There may be further copies on a FAT partition or in a recovery image, but grubby writes only these.
        return [path for path in _FILES if self._fs.status(path) is not None] + [path for path, dummy in boot_entries.read_bls(self._fs)]

    def _indexed(self) -> list[tuple[str, boot_entries.Entry]]:
        """Return all entries that boot Linux, each with its index."""
        output = self._run("--info=ALL")
        indexed = []
        values: dict[str, str] = {}
        for line in [*output.split("\n"), "index="]:
            name, equals, value = line.partition("=")
            if name == "index" and equals:
                if "kernel" in values:
                    arguments = values.get("args", "")
                    # The outer quotes come from grubby, which does not escape those in an argument.
                    arguments = arguments[1:-1] if arguments[:1] == arguments[-1:] == '"' and len(arguments) > 1 else arguments
                    expanded = tuple(boot_arguments.split_arguments(self._expanded(arguments)))
                    entry = boot_entries.Entry(values.get("title", "").strip('"'), values["kernel"].strip('"'), expanded)
                    indexed.append((values["index"], entry))
                values = {}
            values[name] = value
        if not indexed:
            raise BootLoaderError("grubby --info=ALL lists no entry that boots Linux. Nothing was changed")
        return indexed

    def _expanded(self, arguments: str) -> str:
        kernelopts = boot_entries.read_kernelopts(self._fs)
        return arguments if kernelopts is None else arguments.replace("$kernelopts", kernelopts)

    def _run(self, *arguments: str) -> str:
        return loader_base.run_tool(self._fs, [self._fs.path(self._tool), *arguments])

    def _update(self, before: list[tuple[str, boot_entries.Entry]], wanted: boot_arguments.Wanted) -> None:
        removed = sorted({argument for dummy, entry in before for argument in boot_arguments.superfluous(entry.arguments, wanted)})
        if removed:
            self._run("--update-kernel=ALL", "--remove-args=" + " ".join(removed))
        for dummy, entry in before:
            remainders = [boot_arguments.remainder(argument, wanted) for argument in boot_arguments.superfluous(entry.arguments, wanted)]
            shortened = [argument for argument in remainders if argument is not None]
            if shortened:
                self._run("--update-kernel=" + entry.kernel, "--args=" + " ".join(shortened))
        if wanted.arguments:
            self._run("--update-kernel=ALL", "--args=" + " ".join(wanted.arguments))

    def _future(self) -> list[tuple[str, list[str] | None]]:
        """Return the two places that define the arguments of future kernels, each with its arguments or None."""
        path = boot_entries.KERNEL_CMDLINE
        cmdline = loader_base.read_exact(self._fs, path)
        kernelopts = boot_entries.read_kernelopts(self._fs)
        return [
            (self._fs.path(path), None if cmdline is None else boot_arguments.split_arguments(cmdline)),
            ("kernelopts in grub's environment block", None if kernelopts is None else boot_arguments.split_arguments(kernelopts)),
        ]

    def _kernelopts_faults(self, wanted: boot_arguments.Wanted) -> list[str]:
        kernelopts = boot_entries.read_kernelopts(self._fs)
        return [] if kernelopts is None else boot_arguments.faults(boot_arguments.split_arguments(kernelopts), wanted)

    def _write_kernel_cmdline(self, wanted: boot_arguments.Wanted) -> None:
        """Write /etc/kernel/cmdline, which newer versions of grubby do, but not that of EL 8."""
        text = loader_base.read_exact(self._fs, boot_entries.KERNEL_CMDLINE)
        if text is not None and boot_arguments.faults(boot_arguments.split_arguments(text), wanted):
            loader_base.replace(self._fs, boot_entries.KERNEL_CMDLINE, boot_arguments.rewritten_text(text.strip(), wanted) + "\n")

    def _check(self, before: list[tuple[str, boot_entries.Entry]], wanted: boot_arguments.Wanted) -> None:
        after = dict(self._indexed())
        for index, entry in before:
            if index not in after:
                raise BootLoaderError(f"grubby lost the entry {entry.title!r}. All files were restored")
            expected = boot_arguments.applied(entry.arguments, wanted)
            if sorted(after[index].arguments) != sorted(expected):
                raise BootLoaderError(
                    "grubby ended with exit code 0, but the entry {!r} has {!r} instead of {!r}. All files were restored".format(
                        entry.title or entry.kernel, " ".join(after[index].arguments), " ".join(expected)
                    )
                )
        faults = self._kernelopts_faults(wanted)
        if faults:
            raise BootLoaderError(
                "grubby left wrong arguments for future kernels in kernelopts in grub's environment block: {}. All files were restored".format(
                    ", ".join(faults)
                )
            )
