# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments by grubby: RHEL family and Fedora, with entries of the Boot Loader Specification or without.

grubby's exit code is not enough: older versions (grubby-bls of EL 8) search for an argument as a mere part of the text, so that ``nosmt`` counts as
there when ``mds=full,nosmt`` is. So each entry is read back and held against what it should be, to the last argument. Kernels installed later take
their arguments from /etc/kernel/cmdline, or from `kernelopts` in grub's environment block.
"""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.module_utils._boot import arguments as boot_arguments, entries as boot_entries
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders import base as loader_base
from ansible_collections.threadwise.smt.plugins.module_utils._boot.loaders.base import BootLoaderError, Change

# All that grubby may write: put back when anything fails.
_FILES = ("etc/default/grub", boot_entries.KERNEL_CMDLINE, "boot/grub2/grub.cfg", "boot/grub2/grubenv", "etc/zipl.conf")


class Grubby:
    """See `base`."""

    def __init__(self, fs, loader):
        self._fs = fs
        self._tool = loader.tool
        self.name = loader.name
        self.warnings = []

    def entries(self):
        """As ``grubby --info=ALL`` tells them."""
        return [entry for dummy, entry in self._indexed()]

    def found(self, wanted):
        """What drops out of the entries and of the arguments for kernels to come."""
        places = [("boot entry %s" % (entry.title or entry.kernel), entry.arguments) for entry in self.entries()]
        places += [(where, arguments) for where, arguments in self._future() if arguments is not None]
        found = {}
        for where, arguments in places:
            for argument in boot_arguments.superfluous(arguments, wanted):
                found.setdefault(argument, where)
        return [{"argument": argument, "where": where} for argument, where in found.items()]

    def pending(self, wanted):
        """See `base`."""
        changes = [loader_base.entries_change("grubby --info=ALL", self.entries(), wanted)]
        future = self._future()
        for where, arguments in future:
            if arguments is not None and boot_arguments.faults(arguments, wanted):
                changes.append(Change(where, " ".join(arguments) + "\n", " ".join(boot_arguments.applied(arguments, wanted)) + "\n"))
        if all(arguments is None for dummy, arguments in future):
            self.warnings.append(
                f"Neither {self._fs.path(boot_entries.KERNEL_CMDLINE)} nor kernelopts in grub's environment block is there: look at the entry of a kernel that is installed later."
            )
        return [change for change in changes if change is not None] + loader_base.leftovers(self._fs, self._files())

    def apply(self, wanted):
        """See `base`. Killed half way it leaves some entries changed and others not: each of them boots, and the next run goes on."""
        before = self._indexed()
        with loader_base.Undo(self._fs) as undo:
            for path in self._files():
                undo.keep(path)
            if any(boot_arguments.faults(entry.arguments, wanted) for dummy, entry in before) or self._kernelopts_faults(wanted):
                self._update(before, wanted)
            self._write_kernel_cmdline(wanted)
            self._check(before, wanted)

    def _files(self):
        # A FAT partition or a recovery image may hold further copies; grubby writes none but these.
        return [path for path in _FILES if self._fs.status(path) is not None] + [path for path, dummy in boot_entries.read_bls(self._fs)]

    def _indexed(self):
        """[(index, Entry)] of all entries that boot Linux."""
        output = self._run("--info=ALL")
        indexed = []
        values = {}
        for line in [*output.split("\n"), "index="]:
            name, equals, value = line.partition("=")
            if name == "index" and equals:
                if "kernel" in values:
                    arguments = values.get("args", "")
                    # The quotes are grubby's, and it does not escape those of an argument.
                    arguments = arguments[1:-1] if arguments[:1] == arguments[-1:] == '"' and len(arguments) > 1 else arguments
                    expanded = tuple(boot_arguments.split_arguments(self._expanded(arguments)))
                    entry = boot_entries.Entry(values.get("title", "").strip('"'), values["kernel"].strip('"'), expanded)
                    indexed.append((values["index"], entry))
                values = {}
            values[name] = value
        if not indexed:
            raise BootLoaderError("grubby --info=ALL tells of no entry that boots Linux. Nothing was changed")
        return indexed

    def _expanded(self, arguments):
        kernelopts = boot_entries.read_kernelopts(self._fs)
        return arguments if kernelopts is None else arguments.replace("$kernelopts", kernelopts)

    def _run(self, *arguments):
        return loader_base.run_tool(self._fs, [self._fs.path(self._tool), *list(arguments)])

    def _update(self, before, wanted):
        gone = sorted({argument for dummy, entry in before for argument in boot_arguments.superfluous(entry.arguments, wanted)})
        if gone:
            self._run("--update-kernel=ALL", "--remove-args=" + " ".join(gone))
        for dummy, entry in before:
            rests = [boot_arguments.remainder(argument, wanted) for argument in boot_arguments.superfluous(entry.arguments, wanted)]
            rests = [rest for rest in rests if rest is not None]
            if rests:
                self._run("--update-kernel=" + entry.kernel, "--args=" + " ".join(rests))
        if wanted.arguments:
            self._run("--update-kernel=ALL", "--args=" + " ".join(wanted.arguments))

    def _future(self):
        """[(where, arguments or None)] of what a kernel installed later gets."""
        path = boot_entries.KERNEL_CMDLINE
        cmdline = loader_base.read_exact(self._fs, path)
        kernelopts = boot_entries.read_kernelopts(self._fs)
        return [
            (self._fs.path(path), None if cmdline is None else boot_arguments.split_arguments(cmdline)),
            ("kernelopts in grub's environment block", None if kernelopts is None else boot_arguments.split_arguments(kernelopts)),
        ]

    def _kernelopts_faults(self, wanted):
        kernelopts = boot_entries.read_kernelopts(self._fs)
        return [] if kernelopts is None else boot_arguments.faults(boot_arguments.split_arguments(kernelopts), wanted)

    def _write_kernel_cmdline(self, wanted):
        """Newer versions of grubby write it, EL 8's does not."""
        text = loader_base.read_exact(self._fs, boot_entries.KERNEL_CMDLINE)
        if text is not None and boot_arguments.faults(boot_arguments.split_arguments(text), wanted):
            loader_base.replace(self._fs, boot_entries.KERNEL_CMDLINE, boot_arguments.rewritten_text(text.strip(), wanted) + "\n")

    def _check(self, before, wanted):
        after = dict(self._indexed())
        for index, entry in before:
            if index not in after:
                raise BootLoaderError(f"grubby lost the entry {entry.title!r}. Everything was put back as it was")
            expected = boot_arguments.applied(entry.arguments, wanted)
            if sorted(after[index].arguments) != sorted(expected):
                raise BootLoaderError(
                    "grubby ended with exit code 0, but the entry {!r} has {!r} instead of {!r}. Everything was put back as it was".format(
                        entry.title or entry.kernel, " ".join(after[index].arguments), " ".join(expected)
                    )
                )
        faults = self._kernelopts_faults(wanted)
        if faults:
            raise BootLoaderError(
                "grubby left kernelopts in grub's environment block, which later kernels get, with faults: {}. Everything was put back as it was".format(
                    ", ".join(faults)
                )
            )
