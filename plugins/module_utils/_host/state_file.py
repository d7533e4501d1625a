# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files in which the collection keeps JSON data on a host from one run to the next.

On a running host only those that root alone can write are used.
"""

import json
import os
import stat
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable, files, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError

SCHEMA_VERSION = 1

FOLDERS = ("run/threadwise-smt", "var/lib/threadwise-smt")
"""The folders of what modules keep on a host, below the sysroot."""

_BOOT_ID = "proc/sys/kernel/random/boot_id"
_Content = t.TypeVar("_Content")


class StateFileError(HostError):
    """A state file exists and cannot be used; the message names it and the reason."""


class StateFile(t.NamedTuple):
    """A state file.

    Attributes:
        path: relative to the sysroot.
        schema: the value of ``schema`` in the document, which then has a ``schema_version`` too; None for a document
            without.
        mode: permission bits of the file.
        limit: maximum size in bytes.
    """

    path: str
    schema: "str | None" = None
    mode: int = 0o600
    limit: int = files.SMALL

    def load(self, fs: files.HostFs, check: "t.Callable[[t.Any], _Content]") -> "_Content | None":
        """Read and check the file.

        Args:
            fs: the host's files.
            check: gets the document, a dict, and returns what `load` returns; it raises ValueError, KeyError or another
                error of data that is not valid.

        Returns:
            what `check` returned; None when there is no file.

        Raises:
            StateFileError: the file cannot be read, users other than root could have written it, or its content is not
                valid.
        """
        if fs.status(self.path) is None:
            return None
        self._check_owner(fs)
        try:
            document = host_text.parse_json(fs.text(self.path, self.limit))
            if not isinstance(document, dict):
                raise ValueError("it is not a JSON object")
            if self.schema is not None and (
                document["schema"] != self.schema or document["schema_version"] != SCHEMA_VERSION
            ):
                raise ValueError(f"it is not a {self.schema} of version {SCHEMA_VERSION}")
            return check(document)
        except OSError as error:
            raise StateFileError(f"{fs.path(self.path)} cannot be read: {error.strerror}") from error
        except KeyError as error:
            raise StateFileError(f"{fs.path(self.path)} cannot be used (it lacks {error!s:.200})") from error
        except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RecursionError) as error:
            raise StateFileError(f"{fs.path(self.path)} cannot be used ({error!s:.200})") from error

    def save(self, fs: files.HostFs, content: "t.Mapping[str, object]") -> bool:
        """Write the file atomically and durably, unless it has this content.

        Args:
            fs: the host's files.
            content: the document, without ``schema`` and ``schema_version``.

        Returns:
            whether the file was written.

        Raises:
            OSError: it could not be written.
        """
        text = self.text(content)
        if self._has(fs, text):
            return False
        fs.write(self.path, text, self.mode)
        return True

    def text(self, content: "t.Mapping[str, object]") -> str:
        """Return the text of the file with a content, as for :meth:`save`."""
        head = {} if self.schema is None else {"schema": self.schema, "schema_version": SCHEMA_VERSION}
        return json.dumps({**head, **content}, indent=1) + "\n"

    def remove(self, fs: files.HostFs) -> bool:
        """Remove the file durably. Return whether there was one.

        Raises:
            OSError: it could not be removed.
        """
        if fs.status(self.path) is None:
            return False
        durable.unlink(fs.path(self.path))
        return True

    def _has(self, fs: files.HostFs, text: str) -> bool:
        try:
            self._check_owner(fs)
            return fs.text(self.path, self.limit) == text
        except (OSError, StateFileError):
            return False

    def _check_owner(self, fs: files.HostFs) -> None:
        """Raise StateFileError when users other than root could have written the file, or have replaced it.

        Recorded trees are always trusted.
        """
        for checked in (self.path, os.path.dirname(self.path)) if fs.is_host else ():
            status = fs.status(checked)
            if (
                status is None
                or stat.S_ISLNK(status.st_mode)
                or status.st_uid != 0
                or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            ):
                raise StateFileError(
                    f"{fs.path(checked)} is not owned by root, or is writable by other users: correct its owner and"
                    " mode if you trust it, or remove it"
                )


class Kept:
    """Which files and folders are in those of the state files, by one listing each. In one that cannot be listed there
    may be any: who reads it says why it cannot.

    Args:
        fs: the host's files.
    """

    def __init__(self, fs: files.HostFs) -> None:
        self._paths: set[str] = set()
        self._unlisted: tuple[str, ...] = ()
        for folder in FOLDERS:
            try:
                for name in fs.listing(folder):
                    self._paths.add(f"{folder}/{name}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                self._unlisted += (folder,)

    def __contains__(self, path: str) -> bool:
        return path in self._paths or path.startswith(self._unlisted)


def boot_id(fs: files.HostFs) -> str:
    """Return the random id of the host's present boot; empty when the kernel does not show it."""
    return (fs.read(_BOOT_ID) or "").strip()
