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

    def _arguments(self, path: str, text: str) -> "list[str]":
        """Return the arguments in a text."""
        raise NotImplementedError

    def _rewritten(self, path: str, text: str, desired: boot_arguments.DesiredArguments) -> str:
        """Return a text with the desired arguments, in which nothing else is different."""
        raise NotImplementedError

    # ---- the interface

    def to_remove(self, desired: boot_arguments.DesiredArguments) -> "list[backend_base.FoundArgument]":
        """Return the arguments to remove from the files."""
        places = [(self._fs.path(path), self._arguments(path, text)) for path, text in self._texts()]
        return backend_base.found(places, desired)

    def pending(self, desired: boot_arguments.DesiredArguments) -> "list[backend_base.TextChange]":
        """Return the changes; see `base.Backend`."""
        self.entries()
        texts = self._texts()
        changes = [
            TextChange(self._fs.path(path), text, self._rewritten(path, text, desired))
            for path, text in texts
            if boot_arguments.differences(self._arguments(path, text), desired)
        ]
        return changes + transaction.leftovers(self._fs, [path for path, dummy in texts])

    def apply(self, desired: boot_arguments.DesiredArguments) -> None:
        """Make the changes.

        A run that is killed leaves some files changed and others not: each entry boots, and the next run continues.
        """
        texts = self._texts()
        with transaction.Undo(self._fs) as undo:
            for path, dummy in texts:
                undo.back_up(path)
            for path, text in texts:
                if boot_arguments.differences(self._arguments(path, text), desired):
                    transaction.replace(self._fs, path, self._rewritten(path, text, desired))
            differences = backend_base.entry_differences(self.entries(), desired)
            if differences:
                raise BootLoaderError(f"The entries would have wrong arguments: {differences}")

    def texts(self) -> "dict[str, str | None]":
        """Return the texts; see `base.Backend`."""
        return dict(self._texts())

    def put_back(self, before: backend_base.Texts) -> None:
        """Make these changes; see `base.Backend`."""
        transaction.replace_all(self._fs, self._texts_back(self.texts(), before))
