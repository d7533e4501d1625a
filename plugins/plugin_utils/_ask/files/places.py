# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Safe paths on the controller for files with data from hosts: none from which a program reads code or its
configuration, and none that is somebody else's.

Who runs Ansible chooses these paths. A path that got into a variable in another way is stopped here: at the name of a
file, at the directories above it, and at a file that is there already and that this collection did not write.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
import typing as t
from pathlib import Path

from ansible import constants, context
from ansible.plugins.loader import get_all_plugin_loaders
from ansible_collections.threadwise.smt.plugins.plugin_utils._ask.border import results, text

# Kinds of files, by how their names end. A name that ends so is none of a configuration or of code, but what _MAIN and
# _reader name.
PAGE, DOCUMENT, METRICS = (".html", ".htm"), (".json",), (".prom",)
TESTS, FINDINGS = (".xml",), (".sarif",)

# Directories that Ansible reads beside an inventory, a playbook or in a role.
_VARIABLES = ("host_vars", "group_vars")
_READ = re.compile(r"(plugins|module_utils|[a-z_]+_plugins|roles|collections|ansible_collections|ansible\.cfg)")
# What Ansible reads of a role, wherever the role is.
_MAIN = re.compile(r"(tasks|handlers|vars|defaults|meta)/main(\.[a-z]+)?")
# Settings with directories of plugins, modules and roles.
_SETTINGS = ("DEFAULT_MODULE_PATH", "DEFAULT_MODULE_UTILS_PATH", "DEFAULT_ROLES_PATH", "CACHE_PLUGIN_CONNECTION")
# Configured collection paths are allowed: developers of a collection work, and keep results, below such a path.
_OTHERS = ("/etc", "/usr/share/ansible", "~/.ansible/collections")
# Hidden directories are where programs have their configuration, but for these; Molecule keeps a scenario's files in
# them.
_CACHE, _SCRATCH = ".cache", "~/.ansible/tmp"

# How the files of this collection begin or, of pages and documents, what they contain; by how their names end. The
# output formats of a report have their own.
_PAGE_SIGN, DOCUMENT_SIGN, METRICS_SIGN = (
    re.compile(sign)
    for sign in (
        rb"Made by the Ansible collection threadwise\.smt",
        rb'"schema": ?"threadwise\.smt/',
        rb"\A# (HELP threadwise_smt_|EOF\n\Z)",
    )
)
_SIGNS = {
    ".html": _PAGE_SIGN,
    ".htm": _PAGE_SIGN,
    ".json": DOCUMENT_SIGN,
    ".prom": METRICS_SIGN,
    ".xml": re.compile(rb'<testsuites name="threadwise\.smt\.'),
    ".sarif": re.compile(rb'"name": ?"threadwise\.smt"'),
}
# Bytes at the beginning and the end of a file in which its sign is: a page ends with its script, and a report's
# document with its schema.
_MAX_READ = 256 * 1024


def run_directory(dest: str, run: str) -> Path:
    """Return the absolute path of a run's directory.

    Args:
        dest: the directory of runs as the user wrote it; ``~`` is the user's home directory.
        run: the run's name.

    Raises:
        BorderError: the run's name is not valid, or Ansible reads from this path.
    """
    if not results.is_run_name(run):
        raise text.BorderError(
            f"{text.line(ascii(run), 120)} is not a valid run name: use at most 100 letters, digits, '.', '_' and '-',"
            " the first a letter or digit"
        )
    return _checked(os.path.join(dest, run), dest)


def directory(path: str) -> Path:
    """Return the absolute path of a directory for a report.

    Args:
        path: as the user wrote it; ``~`` is the user's home directory.

    Raises:
        BorderError: a program reads its code or its configuration there.
    """
    return _checked(path, path)


def file(path: str, suffixes: t.Sequence[str]) -> Path:
    """Return the absolute path of a file that may be written.

    Args:
        path: as the user wrote it; ``~`` is the user's home directory.
        suffixes: its kind: ``PAGE``, ``DOCUMENT``, ``METRICS``, ``TESTS`` or ``FINDINGS``.

    Raises:
        BorderError: its name is that of another kind, a program reads its code or its configuration there, or the file
            is somebody else's.
    """
    if not path.endswith(tuple(suffixes)):
        raise text.BorderError(
            f"{text.line(path, 300)}: data from hosts is not written here, because the name does not end in"
            f" {' or '.join(suffixes)}: choose one that does, which no program takes for its configuration"
        )
    place = _checked(path, path)
    see_that_ours(place)
    return place


def see_that_ours(path: Path, sign: re.Pattern[bytes] | None = None) -> None:
    """Refuse a file that is there and that this collection did not write.

    Args:
        path: absolute; of a kind of file that the collection writes.
        sign: what the collection's own files of this name contain; None for that of their kind.

    Raises:
        BorderError: it is somebody else's, no regular file, or cannot be read.
    """
    try:
        if not os.path.lexists(path):
            return
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as stream:
            is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
            content = stream.read(_MAX_READ) if is_file else b""
            if len(content) == _MAX_READ:
                stream.seek(max(_MAX_READ, os.fstat(stream.fileno()).st_size - _MAX_READ))
                content += stream.read(_MAX_READ)
    except OSError as error:
        raise text.BorderError(
            f"{text.line(path, 300)} is there, and cannot be read ({error.strerror}): choose another path, or remove it"
        ) from None
    if not is_file or (content and not (sign or _SIGNS[path.suffix]).search(content)):
        raise text.BorderError(
            f"{text.line(path, 300)} is there, and this collection did not write it: choose another path, or move it"
            " away"
        )


def _checked(path: str, shown: str) -> Path:
    """Return the absolute path; refuse one from which a program reads code or its configuration."""
    absolute = Path(os.path.abspath(os.path.expanduser(path)))
    # Both the path as written and its target after following symlinks are checked.
    for candidate in (absolute, Path(os.path.realpath(absolute))):
        reader = _reader(candidate)
        if reader:
            raise text.BorderError(
                f"{text.line(shown, 300)}: data from hosts is not written here, because {reader}: choose another path"
            )
    return absolute


def _reader(path: Path) -> str | None:
    """Return why a program would read a file at this path, or None."""
    here = Path(os.path.realpath(os.getcwd()))
    # Names of directories that the working directory is in, too (a checkout in ~/library) do not matter: there Ansible
    # reads variables only.
    own = path.parts[len(Path(os.path.commonpath([path, here])).parts) :]
    directory = next((directory for directory in _plugin_directories() if _is_below(path, directory)), None)
    if directory:
        return f"programs read code or settings from {directory}"
    return _by_name(path, own) or next(
        filter(None, (_of_inventory(path, _real(source), here) for source in context.CLIARGS.get("inventory") or ())),
        None,
    )


def _by_name(path: Path, own: tuple[str, ...]) -> str | None:
    """Return why a program would read a file because of names in its path,
    of which ``own`` are those that the working directory is not in.
    """
    plugins = {loader.subdir for _name, loader in get_all_plugin_loaders()}
    # Some file systems ignore case.
    read = (part for part in own if part.casefold() in plugins or _READ.fullmatch(part.casefold()))
    part = next(itertools.chain(read, (part for part in path.parts if part.casefold() in _VARIABLES)), None)
    if part:
        return f"Ansible reads what is named {text.line(part, 100)}"
    if _MAIN.fullmatch("/".join(path.parts[-2:]).casefold()):
        return "Ansible reads it in a role"
    hidden = next((part for part in own if part.startswith(".") and part != _CACHE), None)
    return (
        f"programs read their configuration from names such as {text.line(hidden, 100)}"
        if hidden and not _is_below(path, _real(_SCRATCH))
        else None
    )


def _of_inventory(path: Path, place: Path, here: Path) -> str | None:
    """Return why Ansible would read a file with an inventory, or None.

    Ansible reads all files of an inventory directory; beside an inventory file it reads the directories of variables,
    matched by name. Results are allowed when the working directory is the inventory's directory.
    """
    if path == place or (place.is_dir() and _is_below(path, place)):
        return f"{place} is an inventory"
    if place.is_file() and _is_below(path, place.parent) and not _is_below(here, place.parent):
        return f"the inventory {place} is in this directory"
    return None


def _real(path: str) -> Path:
    return Path(os.path.realpath(os.path.expanduser(path)))


def _plugin_directories() -> t.Iterator[Path]:
    configured = [
        getattr(constants, name, None)
        for name in (*_SETTINGS, *(name for name in dir(constants) if name.endswith("_PLUGIN_PATH")))
    ]
    for value in (_OTHERS, *filter(None, configured)):
        for directory in [value] if isinstance(value, str) else value:
            yield _real(directory)


def _is_below(path: Path, directory: Path) -> bool:
    return directory == path or directory in path.parents
