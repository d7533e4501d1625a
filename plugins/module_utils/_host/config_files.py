# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration files with their desired content: compare them with what is on the host, and write them."""

import os
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable
from ansible_collections.threadwise.smt.plugins.module_utils._host.errors import HostError
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs


class ConfigFileError(HostError):
    """A configuration file could not be written or removed; the message names it."""


def changes(fs: HostFs, wanted: "t.Mapping[str, str | None]") -> "dict[str, tuple[str | None, str | None]]":
    """Return the files that differ from their desired content.

    None means that the file does not exist, or must not exist. In a ``.wants`` directory the content is the target of
    the symbolic link.

    Args:
        fs: the host's files.
        wanted: path relative to the sysroot -> desired content.

    Returns:
        path -> (current content, desired content).
    """
    changed_files = {}
    for path, desired in wanted.items():
        current = content(fs, path)
        if current != desired:
            changed_files[path] = (current, desired)
    return changed_files


def apply(fs: HostFs, changed: "t.Mapping[str, tuple[str | None, str | None]]") -> None:
    """Write or remove the files that differ.

    Args:
        fs: the host's files.
        changed: as `changes` returns it.

    Raises:
        ConfigFileError: a file could not be written or removed.
    """
    for path, (current, desired) in changed.items():
        try:
            if desired is None:
                durable.unlink(fs.path(path))
                _remove_if_empty(os.path.dirname(fs.path(path)))
            elif _is_link(path):
                durable.make_folders(os.path.dirname(fs.path(path)), 0o755)
                if current is not None:
                    os.unlink(fs.path(path))
                os.symlink(desired, fs.path(path))
                durable.sync_names(os.path.dirname(fs.path(path)))
            else:
                fs.write(path, desired)
        except OSError as error:
            raise ConfigFileError(f"{fs.path(path)}: {error.strerror}") from error


def diff(changed: "t.Mapping[str, tuple[str | None, str | None]]") -> "list[dict[str, str]]":
    """Return the differences in the format of Ansible's ``--diff``.

    Args:
        changed: as `changes` returns it.
    """
    return [
        {"before_header": "/" + path, "after_header": "/" + path, "before": _lines(current), "after": _lines(desired)}
        for path, (current, desired) in changed.items()
    ]


def content(fs: HostFs, path: str) -> "str | None":
    """Return the content of a configuration file, None where there is none;
    of one in a ``.wants`` directory the target of the link.
    """
    if fs.status(path) is None:
        return None
    if not _is_link(path):
        return fs.read(path)
    try:
        return os.readlink(fs.path(path))
    except OSError:
        return ""


def _lines(text: "str | None") -> str:
    return "" if text is None else text.rstrip("\n") + "\n"


def _is_link(path: str) -> bool:
    return ".wants/" in path


def remove_empty_folders(fs: HostFs, paths: "t.Iterable[str]") -> None:
    """Remove the directories of these files that were made for files of this collection, where they are empty;
    all others belong to packages.
    """
    for path in paths:
        _remove_if_empty(os.path.dirname(fs.path(path)))


def _remove_if_empty(directory: str) -> None:
    if directory.endswith((".wants", "/udev-rules")):
        try:
            os.rmdir(directory)
        except OSError:
            # It still holds files of others.
            return
