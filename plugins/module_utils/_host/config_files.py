# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration files that are to be there, or not: what differs, and making it so."""

from __future__ import annotations

import os

from ansible_collections.threadwise.smt.plugins.module_utils._host import durable


class ConfigFileError(Exception):
    """A configuration file could not be written or removed; the text names it."""


def changes(fs, wanted: dict) -> dict:
    """``{path: (text now, text wanted)}`` of those that differ; None is no file, and a link in a ``.wants`` directory reads as its target."""
    found = {}
    for path, text in wanted.items():
        now = _now(fs, path)
        if now != text:
            found[path] = (now, text)
    return found


def apply(fs, changed: dict) -> None:
    """Raises ConfigFileError."""
    for path, (now, text) in changed.items():
        try:
            if text is None:
                durable.unlink(fs.path(path))
                _remove_if_empty(os.path.dirname(fs.path(path)))
            elif _is_link(path):
                durable.make_folders(os.path.dirname(fs.path(path)), 0o755)
                if now is not None:
                    os.unlink(fs.path(path))
                os.symlink(text, fs.path(path))
                durable.sync_names(os.path.dirname(fs.path(path)))
            else:
                fs.write(path, text)
        except OSError as trouble:
            raise ConfigFileError(f"{fs.path(path)}: {trouble.strerror}") from trouble


def diff(changed: dict) -> list[dict]:
    """In the form of Ansible's ``--diff``."""
    return [{"before_header": "/" + path, "after_header": "/" + path, "before": _lines(now), "after": _lines(text)} for path, (now, text) in changed.items()]


def _lines(text: str | None) -> str:
    return "" if text is None else text.rstrip("\n") + "\n"


def _is_link(path: str) -> bool:
    return ".wants/" in path


def _now(fs, path: str) -> str | None:
    if fs.status(path) is None:
        return None
    if not _is_link(path):
        return fs.read(path)
    try:
        return os.readlink(fs.path(path))
    except OSError:
        return ""


def _remove_if_empty(directory: str) -> None:
    """Only of directories that were made for one of our files; packages bring the others."""
    if directory.endswith((".wants", "/udev-rules")):
        try:
            os.rmdir(directory)
        except OSError:
            # Others have files in it.
            return
