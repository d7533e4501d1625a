# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot arguments with grubby: RHEL family and Fedora, with entries of the Boot Loader Specification or without.

The exit code of grubby is not enough: versions before 8.40-21 search for an argument as a substring, so they take
``mds=full,nosmt`` for ``nosmt``, and later ones remove only one of two equal arguments. Therefore each entry is read
back and all its arguments are compared. On s390x zipl has to run after it. Kernels installed later get
their arguments from /etc/kernel/cmdline, or from `kernelopts` in grub's environment block, which grub2-mkconfig makes
anew from /etc/default/grub.
"""

import contextlib
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    entries as boot_entries,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base, transaction
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends.base import BootLoaderError, TextChange

_SETTINGS = "etc/default/grub"
# A line of it that is the same to a shell and to us: without variables, escapes, and quotes within quotes.
_PLAIN_SETTING = re.compile(
    r"^((?:export[ \t]+)?GRUB_CMDLINE_LINUX=([\"']))([^\"'`$\\]*)(\2[ \t\r]*(?:#.*)?)$", re.MULTILINE
)
# A line that begins an assignment of it in any other form.
_ANY_SETTING = re.compile(r"^(?:export[ \t]+)?GRUB_CMDLINE_LINUX=.*$", re.MULTILINE)
# What the file says to the shell of grub2-mkconfig.
_SHOW = """set -e
exec 3>&1 >/dev/null
eval "$1"
printf %s "${GRUB_CMDLINE_LINUX-}" >&3
"""
# There only on s390x.
_ZIPL = ("usr/sbin/zipl", "sbin/zipl")
# All files that grubby may write; they are restored when anything fails.
_FILES = (_SETTINGS, boot_entries.KERNEL_CMDLINE, boot_entries.GRUB2_CFG, "boot/grub2/grubenv", "etc/zipl.conf")


class Grubby(backend_base.Backend):
    """The backend for grubby."""

    # What it last listed: a real one takes seconds on a host with many kernels.
    _listed: t.Optional[str] = None

    def entries(self) -> "list[boot_entries.Entry]":
        """Return the entries that ``grubby --info=ALL`` lists."""
        return [entry for dummy, entry in self._indexed()]

    def to_remove(self, desired: boot_arguments.DesiredArguments) -> "list[backend_base.FoundArgument]":
        """Return the arguments to remove from the entries and from the arguments of future kernels."""
        places = [(f"boot entry {entry.title or entry.kernel}", list(entry.arguments)) for entry in self.entries()]
        places += [(where, boot_entries.cmdline_arguments(text)) for where, text in self._future() if text is not None]
        places += [
            (self._fs.path(_SETTINGS), boot_arguments.split_arguments(value)) for value in _values(self._settings())
        ]
        return backend_base.found(places, desired)

    def pending(self, desired: boot_arguments.DesiredArguments) -> "list[backend_base.TextChange]":
        """Return the changes; see `base.Backend`."""
        changes = [backend_base.entries_change("grubby --info=ALL", self.entries(), desired)]
        future = self._future()
        changes += [
            TextChange(where, text, boot_entries.rewritten_cmdline(text, desired))
            for where, text in future
            if text is not None and _differences(text, desired)
        ]
        settings = self._settings() or ""
        rewritten = self._rewritten_settings(settings, desired)
        if rewritten != settings:
            changes.append(TextChange(self._fs.path(_SETTINGS), settings, rewritten))
        if all(text is None for dummy, text in future):
            self.warnings.append(
                f"Neither {self._fs.path(boot_entries.KERNEL_CMDLINE)}, which grubby creates since 8.40-66, nor"
                " kernelopts in grub's environment block exists: check the arguments in the entry of a kernel that is"
                " installed later."
            )
        return [change for change in changes if change is not None] + transaction.leftovers(self._fs, self._files())

    def apply(self, desired: boot_arguments.DesiredArguments) -> None:
        """Make the changes.

        A run that is killed leaves some entries changed and others not: each of them boots, and the next run continues.
        """
        before = self._indexed()
        cmdline, settings = transaction.read_exact(self._fs, boot_entries.KERNEL_CMDLINE), self._settings()
        with transaction.Undo(self._fs) as undo:
            for path in self._files():
                undo.back_up(path)
            if any(
                boot_arguments.differences(entry.arguments, desired) for dummy, entry in before
            ) or self._kernelopts_differences(desired):
                self._update(before, desired)
            self._write_kernel_cmdline(cmdline, desired)
            self._write_settings(settings, desired)
            self._check(before, desired)
            self._write_boot_record()

    def texts(self) -> "dict[str, str | None]":
        """Return the texts; see `base.Backend`."""
        return {path: transaction.read_exact(self._fs, path) for path in self._files()}

    def put_back(self, before: backend_base.Texts) -> None:
        """Make these changes; see `base.Backend`. grubby itself would put the arguments at another place of their
        line.
        """
        transaction.replace_all(self._fs, self._texts_back(self.texts(), before))
        self._listed = None
        self._write_boot_record()

    def _texts_back(self, now: backend_base.Texts, before: backend_base.Texts) -> "dict[str, str | None]":
        texts = super()._texts_back(now, before)
        for path in set(texts).intersection(boot_entries.GRUBENV):
            present, text = now[path] or "", texts[path] or ""
            if present.endswith("#"):
                # An environment block has a fixed size, to which it is filled up.
                content = text.rstrip("#")
                texts[path] = content + "#" * (len(present) - len(content))
        return texts

    def _write_boot_record(self) -> None:
        """On s390x copy the entries into the boot record, which the firmware reads instead of the files (zipl(8))."""
        zipl = next((path for path in _ZIPL if self._fs.status(path) is not None), None)
        if zipl is not None:
            transaction.run_tool(self._fs, [self._fs.path(zipl)])

    def _files(self) -> "list[str]":
        # There may be further copies on a FAT partition or in a recovery image, but grubby writes only these.
        return [*_FILES, *(path for path, dummy in boot_entries.read_bls(self._fs))]

    def _indexed(self) -> "list[tuple[str, boot_entries.Entry]]":
        """Return all entries that boot Linux, each with its index."""
        if self._listed is None:
            self._listed = self._run("--info=ALL")
        indexed = []
        values: dict[str, str] = {}
        for line in [*self._listed.split("\n"), "index="]:
            name, equals, value = line.partition("=")
            if name == "index" and equals:
                if "kernel" in values:
                    arguments = values.get("args", "")
                    # The outer quotes come from grubby, which does not escape those in an argument.
                    arguments = (
                        arguments[1:-1] if arguments[:1] == arguments[-1:] == '"' and len(arguments) > 1 else arguments
                    )
                    expanded = tuple(boot_arguments.split_arguments(self._expanded(arguments)))
                    entry = boot_entries.Entry(
                        values.get("title", "").strip('"'),
                        values["kernel"].strip('"'),
                        expanded,
                        borrowed=boot_entries.read_tuned(self._fs, arguments),
                    )
                    indexed.append((values["index"], entry))
                values = {}
            values[name] = value
        if not indexed:
            raise BootLoaderError("grubby --info=ALL lists no entry that boots Linux")
        return indexed

    def _expanded(self, arguments: str) -> str:
        kernelopts = boot_entries.read_kernelopts(self._fs)
        return arguments if kernelopts is None else boot_entries.expand_kernelopts(arguments, kernelopts)

    def _run(self, *arguments: str) -> str:
        return transaction.run_tool(self._fs, [self._fs.path(self._tool), *arguments])

    def _update_kernel(self, kernel: str, change: str) -> None:
        self._listed = None
        self._run("--update-kernel=" + kernel, change)

    def _update(self, before: "list[tuple[str, boot_entries.Entry]]", desired: boot_arguments.DesiredArguments) -> None:
        self._remove([entry for dummy, entry in before], desired)
        for dummy, entry in before:
            remainders = [
                boot_arguments.remainder(argument, desired)
                for argument in boot_arguments.superfluous(entry.arguments, desired)
            ]
            shortened = [argument for argument in remainders if argument is not None]
            if shortened:
                self._update_kernel(entry.kernel, "--args=" + " ".join(shortened))
        if desired.arguments:
            self._update_kernel("ALL", "--args=" + " ".join(desired.arguments))

    def _remove(self, entries: "list[boot_entries.Entry]", desired: boot_arguments.DesiredArguments) -> None:
        """Remove superfluous arguments.

        Of equal ones a call may remove only one, so there are as many calls as one place has of them, at most.
        """
        left = self._superfluous(entries, desired)
        for dummy in range(max(map(len, left))):
            if not any(left):
                break
            self._update_kernel(
                "ALL",
                "--remove-args=" + " ".join(sorted({argument for of_place in left for argument in of_place})),
            )
            left = self._superfluous(self.entries(), desired)

    def _superfluous(
        self, entries: "list[boot_entries.Entry]", desired: boot_arguments.DesiredArguments
    ) -> "list[list[str]]":
        """Return the arguments to remove of each entry and of kernelopts."""
        kernelopts = boot_arguments.split_arguments(boot_entries.read_kernelopts(self._fs) or "")
        return [
            boot_arguments.superfluous(arguments, desired)
            for arguments in [kernelopts, *(entry.arguments for entry in entries)]
        ]

    def _settings(self) -> "str | None":
        return transaction.read_exact(self._fs, _SETTINGS)

    def _future(self) -> "list[tuple[str, str | None]]":
        """Return the two places that define the arguments of future kernels, each with its text or None."""
        path = boot_entries.KERNEL_CMDLINE
        kernelopts = boot_entries.read_kernelopts(self._fs)
        return [
            (self._fs.path(path), transaction.read_exact(self._fs, path)),
            ("kernelopts in grub's environment block", None if kernelopts is None else kernelopts + "\n"),
        ]

    def _kernelopts_differences(self, desired: boot_arguments.DesiredArguments) -> "list[str]":
        kernelopts = boot_entries.read_kernelopts(self._fs)
        return [] if kernelopts is None else _differences(kernelopts, desired)

    def _write_kernel_cmdline(self, text: "str | None", desired: boot_arguments.DesiredArguments) -> None:
        """Write /etc/kernel/cmdline from its earlier text: grubby of EL 8 does not,
        and newer versions split quoted arguments at their blanks.
        """
        if text is None:
            return
        new = boot_entries.rewritten_cmdline(text, desired) if _differences(text, desired) else text
        if new != transaction.read_exact(self._fs, boot_entries.KERNEL_CMDLINE):
            transaction.replace(self._fs, boot_entries.KERNEL_CMDLINE, new)

    def _write_settings(self, text: "str | None", desired: boot_arguments.DesiredArguments) -> None:
        """Write /etc/default/grub from its earlier text:
        grubby also overwrites each other variable whose name begins with GRUB_CMDLINE_LINUX.
        """
        now = self._settings()
        if text is None or now is None:
            return
        new = self._rewritten_settings(text, desired)
        if new != now:
            transaction.replace(self._fs, _SETTINGS, new)

    def _rewritten_settings(self, settings: str, desired: boot_arguments.DesiredArguments) -> str:
        """Return the text of /etc/default/grub with the desired arguments, which a shell has read.

        Raises:
            BootLoaderError: only a shell knows what it says, and it cannot be changed safely.
        """
        rewritten = _rewritten(settings, desired)
        if "GRUB_CMDLINE_LINUX" not in settings:
            return rewritten
        value = self._shell_value(rewritten)
        if not value.strip() or not _differences(value, desired):
            return rewritten
        # The value that the shell knows takes the place of the whole line, as grubby itself does it.
        words = boot_arguments.applied(value.split(), desired._replace(arguments=()))
        plain = " ".join([*words, *desired.arguments])
        lines = _ANY_SETTING.findall(settings)
        if len(lines) == 1 and not re.search("[\"'`$\\\\]", plain):
            line = lines[0][: lines[0].index("=") + 1] + f'"{plain}"'
            rewritten = settings.replace(lines[0], line)
            with contextlib.suppress(BootLoaderError):
                if self._shell_value(rewritten) == plain:
                    return rewritten
        raise BootLoaderError(
            f"{self._fs.path(_SETTINGS)} has GRUB_CMDLINE_LINUX in a form that cannot be changed safely (over several"
            " lines, with +=, or more than once), and grub2-mkconfig would make of it:"
            f" {', '.join(_differences(value, desired))}. Give it its whole value once, in one line and in quotes, and"
            " run this again"
        )

    def _shell_value(self, settings: str) -> str:
        try:
            return transaction.run_tool(self._fs, ["/bin/sh", "-c", _SHOW, "sh", settings])
        except BootLoaderError as error:
            raise BootLoaderError(f"{self._fs.path(_SETTINGS)} cannot be read by a shell: {error.reason}") from error

    def _check(self, before: "list[tuple[str, boot_entries.Entry]]", desired: boot_arguments.DesiredArguments) -> None:
        self._listed = None
        after = dict(self._indexed())
        for index, entry in before:
            if index not in after:
                raise BootLoaderError(f"grubby lost the entry {entry.title!r}")
            expected = boot_arguments.applied(entry.arguments, desired)
            if sorted(after[index].arguments) != sorted(expected):
                raise BootLoaderError(
                    "grubby ended with exit code 0, but the entry {!r} has {!r} instead of {!r}".format(
                        entry.title or entry.kernel, " ".join(after[index].arguments), " ".join(expected)
                    )
                )
        differences = self._kernelopts_differences(desired)
        if differences:
            raise BootLoaderError(
                "grubby left wrong arguments for future kernels in kernelopts in grub's environment block: {}".format(
                    ", ".join(differences)
                )
            )


def _differences(text: str, desired: boot_arguments.DesiredArguments) -> "list[str]":
    return boot_arguments.differences(boot_entries.cmdline_arguments(text), desired)


def _values(settings: "str | None") -> "list[str]":
    """Return the values of GRUB_CMDLINE_LINUX in /etc/default/grub, as far as they are plain text.

    An empty one is not changed, neither by grubby.
    """
    return [match.group(3) for match in _PLAIN_SETTING.finditer(settings or "") if match.group(3).strip()]


def _rewritten(settings: str, desired: boot_arguments.DesiredArguments) -> str:
    """Return the text of /etc/default/grub with the desired arguments in these values."""

    def value(match: "re.Match[str]") -> str:
        is_right = not match.group(3).strip() or not _differences(match.group(3), desired)
        return (
            match.group(0)
            if is_right
            else match.group(1) + boot_arguments.rewritten_text(match.group(3), desired) + match.group(4)
        )

    return _PLAIN_SETTING.sub(value, settings)
