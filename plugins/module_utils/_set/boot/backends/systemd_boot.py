# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments with systemd-boot: /etc/kernel/cmdline for future kernels, and the `options` of the existing entries.

Both contain the arguments as plain text (Boot Loader Specification, kernel-install(8)); no program is needed.
"""

import itertools
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    entries as boot_entries,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import text_files, transaction
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends.base import BootLoaderError, TextChange

# A line may be indented, as systemd-boot reads it. One without a value is no line of ours, and stays as it is.
_OPTIONS = re.compile(r"^([ \t]*options[ \t]+)(\S.*)$")


class _Line(t.NamedTuple):
    """A line of an entry with what is not an option, and the options, where it has some."""

    before: str
    options: "str | None" = None
    after: str = ""

    @classmethod
    def read(cls, line: str) -> "_Line":
        match = _OPTIONS.match(line)
        if match is None:
            return cls(line)
        before, value = match.groups()
        options = value.rstrip(" \t")
        after = value[len(options) :]
        # As systemd-boot does, whatever is between them.
        return (
            cls(before + '"', options[1:-1], '"' + after)
            if boot_entries.is_quoted(options)
            else cls(before, options, after)
        )

    def written(self, options: "str | None") -> str:
        """Return the line with other options; those that would be taken for quoted ones get quotes."""
        if options is None:
            return self.before
        quote = '"' if boot_entries.is_quoted(options) and not self.before.endswith('"') else ""
        return self.before + quote + options + quote + self.after


class SystemdBoot(text_files.TextFiles):
    """The backend for systemd-boot; its `tool` is the directory with the entries."""

    def entries(self) -> "list[boot_entries.Entry]":
        """Return the entries of type 1.

        Unified kernel images are refused, because their arguments are embedded in them.
        """
        unified = boot_entries.unified_images(self._fs, self._tool)
        if unified:
            raise BootLoaderError(unified)
        entries = [entry for dummy, entry in boot_entries.read_bls(self._fs, unquotes=True)]
        if not entries:
            raise BootLoaderError(f"None of the entries in {self._fs.path(self._tool)} boots Linux")
        return entries

    def pending(self, desired: boot_arguments.DesiredArguments) -> "list[TextChange]":
        """Return the changes; see `base.Backend`."""
        changes = super().pending(desired)
        self._warn_of_other_directories()
        return changes

    def _warn_of_other_directories(self) -> None:
        """Say which entries systemd-boot shows beside those that are changed:
        it reads the EFI system partition and the extended boot partition.
        """
        here = self._fs.status(self._tool)
        for path in boot_entries.BLS_DIRECTORIES:
            there = self._fs.status(path)
            # One partition may be mounted twice.
            if here is None or there is None or (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino):
                continue
            if boot_entries.bls_names(self._fs, path):
                self.warnings.append(
                    f"{self._fs.path(path)} also has entries, which keep their arguments: those of"
                    f" {self._fs.path(self._tool)} are changed. Remove them, or do not boot them."
                )

    def _texts(self) -> "list[tuple[str, str]]":
        """Return path and text of /etc/kernel/cmdline and of each entry."""
        path = boot_entries.KERNEL_CMDLINE
        cmdline = transaction.read_exact(self._fs, path)
        if cmdline is None:
            raise BootLoaderError(
                f"{self._fs.path(path)} is missing, so kernel-install would give a new kernel the arguments of the"
                " running one: create the file first"
            )
        texts = [(path, cmdline)]
        for path, dummy in boot_entries.read_bls(self._fs):
            texts.append((path, transaction.read_exact(self._fs, path) or ""))
        return texts

    def _arguments(self, path: str, text: str) -> "list[list[str]]":
        if path == boot_entries.KERNEL_CMDLINE:
            return [boot_entries.cmdline_arguments(text)]
        lines = [_Line.read(line) for line in boot_entries.LINE_END.split(text)]
        return [boot_arguments.split_arguments(" ".join(line.options for line in lines if line.options is not None))]

    def _rewritten(self, path: str, text: str, desired: boot_arguments.DesiredArguments) -> str:
        if path == boot_entries.KERNEL_CMDLINE:
            return boot_entries.rewritten_cmdline(text, desired)
        lines = [_Line.read(line) for line in boot_entries.LINE_END.split(text)]
        if all(line.options is None for line in lines):
            end = "\n" if text.endswith("\n") else ""
            return f"{text[: len(text) - len(end)]}\noptions {' '.join(desired.arguments)}{end}"
        # The first line of options gets our arguments.
        desired_lines = itertools.chain([desired], itertools.repeat(boot_arguments.without_arguments(desired)))
        written = ""
        is_kernels = True
        for line, end in zip(lines, [*boot_entries.LINE_END.findall(text), ""]):
            options = line.options
            if options is not None and is_kernels:
                # The lines are one command line: what follows `--`, or a quote that is not closed, is no argument of
                # the kernel's in later lines either.
                is_kernels = boot_arguments.split_arguments(options + " -")[-1:] == ["-"]
                options = boot_arguments.rewritten_text(options, next(desired_lines))
                # A line that would be left without an argument goes: an entry that had none gets its bytes back.
                if not options.strip():
                    written = written if end else written[:-1]
                    continue
            written += line.written(options) + end
        return written
