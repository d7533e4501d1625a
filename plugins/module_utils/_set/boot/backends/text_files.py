# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of backends for boot loaders whose entries are text files with the arguments; no program is needed."""

from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import arguments as boot_arguments
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends import base as backend_base, transaction
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.backends.base import BootLoaderError, TextChange


class TextFiles(backend_base.Backend):
    """A backend that changes text files.

    Subclasses implement `entries` and the methods that raise NotImplementedError.
    """

    # ---- differences between boot loaders

    def _texts(self) -> "list[tuple[str, str]]":
        """Return path, below the sysroot, and text of each file that has arguments."""
        raise NotImplementedError

    def _arguments(self, path: str, text: str) -> "list[list[str]]":
        """Return the arguments of each entry in a text."""
        raise NotImplementedError

    def _rewritten(self, path: str, text: str, desired: boot_arguments.DesiredArguments) -> str:
        """Return a text with the desired arguments, in which nothing else is different."""
        raise NotImplementedError

    # ---- the interface

    def to_remove(self, desired: boot_arguments.DesiredArguments) -> "list[backend_base.FoundArgument]":
        """Return the arguments to remove from the files."""
        texts = [(self._fs.path(path), self._arguments(path, text)) for path, text in self._texts()]
        return backend_base.found(
            [(where, arguments) for where, of_entries in texts for arguments in of_entries], desired
        )

    def pending(self, desired: boot_arguments.DesiredArguments) -> "list[backend_base.TextChange]":
        """Return the changes; see `base.Backend`."""
        self.entries()
        changes = [TextChange(self._fs.path(path), *texts) for path, *texts in self._changes(desired)]
        return changes + transaction.leftovers(self._fs, [path for path, dummy in self._texts()])

    def apply(self, desired: boot_arguments.DesiredArguments) -> None:
        """Make the changes.

        A run that is killed leaves some files changed and others not: each entry boots, and the next run continues.
        """
        changes = self._changes(desired)
        with transaction.Undo(self._fs) as undo:
            for path, dummy in self._texts():
                undo.back_up(path)
            for path, dummy, text in changes:
                transaction.replace(self._fs, path, text)
            differences = backend_base.entry_differences(self.entries(), desired)
            if differences:
                raise BootLoaderError(f"The entries would have wrong arguments: {differences}")

    def _changes(self, desired: boot_arguments.DesiredArguments) -> "list[tuple[str, str, str]]":
        """Return path, text and new text of each file in which an entry has other arguments than the desired ones."""
        return [
            (path, text, self._rewritten(path, text, desired))
            for path, text in self._texts()
            if any(boot_arguments.differences(arguments, desired) for arguments in self._arguments(path, text))
        ]

    def texts(self) -> "dict[str, str | None]":
        """Return the texts; see `base.Backend`."""
        return dict(self._texts())

    def put_back(self, before: backend_base.Texts) -> None:
        """Make these changes; see `base.Backend`."""
        transaction.replace_all(self._fs, self._texts_back(self.texts(), before))
