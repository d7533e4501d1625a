# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a backend has to offer, which reads and changes the boot arguments of one host's boot loader."""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import Protocol, TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import (
    arguments as boot_arguments,
    entries as boot_entries,
)

NOTHING_WAS_CHANGED = "Nothing was changed"

# The text of each file that has arguments, by its path below the sysroot; None for no file.
Texts = t.Mapping[str, t.Optional[str]]


class BootLoaderError(boot_arguments.BootError):
    """A boot loader's configuration cannot be read or changed.

    Args:
        reason: the file or the tool, and what is wrong with it, without a full stop.

    Attributes:
        reason: the same.
        outcome: what has become of the files, without a full stop; `transaction.Undo` sets it after files may have been
            written.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outcome = NOTHING_WAS_CHANGED

    def __str__(self) -> str:
        """Return the reason and the outcome."""
        return f"{self.reason}. {self.outcome}"


class TextChange(t.NamedTuple):
    """A pending change of a text: the content of a file, or a list of boot entries with their arguments.

    Attributes:
        where: the file or the list.
        before: the current text; None when the file does not exist.
        after: the new text; None when the file will be removed.
    """

    where: str
    before: "str | None"
    after: "str | None"


class FoundArgument(TypedDict):
    """An argument in the administrator's own settings that has to be removed.

    Attributes:
        argument: the boot argument.
        where: the file or the boot entry that contains it.
    """

    argument: str
    where: str


class Backend(Protocol):
    """The boot arguments of one host's boot loader, read and changed.

    Args:
        fs: the host's files.
        tool: what the finding has: the path of the tool or of a directory, below the sysroot.

    Attributes:
        warnings: sentences for the user.
    """

    _fs: host_files.HostFs
    _tool: str
    warnings: "list[str]"

    def __init__(self, fs: host_files.HostFs, tool: str) -> None:
        self._fs, self._tool, self.warnings = fs, tool, []

    def entries(self) -> "list[boot_entries.Entry]":
        """Return the boot entries that the backend manages."""

    def to_remove(self, desired: boot_arguments.DesiredArguments) -> "list[FoundArgument]":
        """Return the arguments in the administrator's own settings that `desired` removes."""

    def pending(self, desired: boot_arguments.DesiredArguments) -> "list[TextChange]":
        """Return the changes that `apply` would make, without writing anything; empty when there are none."""

    def apply(self, desired: boot_arguments.DesiredArguments) -> None:
        """Make the changes, or raise `BootLoaderError` and leave everything as it was."""

    def texts(self) -> "dict[str, str | None]":
        """Return the text of each file that the backend writes arguments into, by its path below the sysroot;
        None for no file.

        Of a file that is the administrator's otherwise it is the part of this collection alone, where there is one.
        """

    def put_back(self, before: Texts) -> None:
        """Give these texts, from `texts`, the arguments they had, and generate what is generated from them;
        or raise `BootLoaderError`, as `apply`.
        """

    def changes_back(self, before: Texts) -> "list[TextChange]":
        """Return the changes of files that `put_back` would make, without writing anything."""
        now = self.texts()
        return [
            TextChange(self._fs.path(path), now[path], text) for path, text in self._texts_back(now, before).items()
        ]

    def _texts_back(self, now: Texts, before: Texts) -> "dict[str, str | None]":
        """Return the new text of each file whose arguments are not as before;
        files that are gone or new since are left alone.

        Args:
            now: the present texts, by path.
            before: the earlier ones; other paths do not count.
        """
        texts: dict[str, t.Optional[str]] = {}
        for path, text in now.items():
            earlier = before.get(path)
            if text is not None and earlier is not None:
                texts[path] = boot_arguments.with_related_of(text, earlier)
            elif path in before and path == boot_entries.KERNEL_CMDLINE:
                # A tool made it for the arguments of future kernels.
                texts[path] = earlier
        return {path: text for path, text in texts.items() if text != now[path]}


def found(
    places: "t.Iterable[tuple[str, list[str]]]", desired: boot_arguments.DesiredArguments
) -> "list[FoundArgument]":
    """Return the arguments of places that `desired` removes, each once, with the first place that has it."""
    first: dict[str, str] = {}
    for where, arguments in places:
        for argument in boot_arguments.superfluous(arguments, desired):
            first.setdefault(argument, where)
    return [{"argument": argument, "where": where} for argument, where in first.items()]


def entries_change(
    where: str, entries: "list[boot_entries.Entry]", desired: boot_arguments.DesiredArguments
) -> "TextChange | None":
    """Return the change of the entries' SMT arguments, one line for each entry;
    None when all entries have the desired arguments.
    """
    if all(not boot_arguments.differences(entry.arguments, desired) for entry in entries):
        return None
    before = "".join(_entry_line(entry, entry.arguments) for entry in entries)
    after = "".join(_entry_line(entry, boot_arguments.applied(entry.arguments, desired)) for entry in entries)
    return TextChange(where, before, after)


def _entry_line(entry: boot_entries.Entry, arguments: "t.Iterable[str]") -> str:
    return (
        f"{entry.title or entry.kernel}:"
        f" {' '.join(boot_arguments.related_arguments(arguments)) or '(no SMT arguments)'}\n"
    )


def entry_differences(entries: "list[boot_entries.Entry]", desired: boot_arguments.DesiredArguments) -> str:
    """Return what is wrong with the arguments of entries, as text for a message; empty when nothing is."""
    differing = [
        f"{entry.title or entry.kernel!r}: {', '.join(differences)}"
        for entry, differences in ((entry, boot_arguments.differences(entry.arguments, desired)) for entry in entries)
        if differences
    ]
    return "; ".join(differing[:5]) + (f"; and {len(differing) - 5} more" if len(differing) > 5 else "")
