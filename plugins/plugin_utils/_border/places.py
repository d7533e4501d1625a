# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Safe paths on the controller for files with data from hosts: none that Ansible reads from."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible import constants, context
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results, text

# Directories that Ansible reads beside an inventory, a playbook or in a role.
_VARIABLES = ("host_vars", "group_vars")
_READ = re.compile(r"(plugins|library|module_utils|[a-z]+_plugins)")
# Settings with directories of plugins, modules and roles.
_SETTINGS = ("DEFAULT_MODULE_PATH", "DEFAULT_MODULE_UTILS_PATH", "DEFAULT_ROLES_PATH", "CACHE_PLUGIN_CONNECTION")
# Configured collection paths are allowed: developers of a collection work, and keep results, below such a path.
_OTHERS = ("/etc/ansible", "~/.ansible/collections")


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
            f"{text.line(ascii(run), 120)} is not a valid run name: use at most 100 letters, digits, '.', '_' and '-', the first a letter or digit"
        )
    return _checked(os.path.join(dest, run), dest)


def file(path: str) -> Path:
    """Return the absolute path of a file.

    Args:
        path: as the user wrote it; ``~`` is the user's home directory.

    Raises:
        BorderError: Ansible reads from this path.
    """
    return _checked(path, path)


def _checked(path: str, shown: str) -> Path:
    """Return the absolute path; refuse one that Ansible reads from."""
    absolute = Path(os.path.abspath(os.path.expanduser(path)))
    # Both the path as written and its target after following symlinks are checked.
    for candidate in (absolute, Path(os.path.realpath(absolute))):
        reader = _reader(candidate)
        if reader:
            raise text.BorderError(f"{text.line(shown, 300)}: data from hosts is not written here, because {reader}: choose another path")
    return absolute


def _reader(path: Path) -> str | None:
    """Return why Ansible would read a file at this path, or None."""
    here = Path(os.path.realpath(os.getcwd()))
    # Names of directories above the working directory (a checkout in ~/library) do not matter: there Ansible reads variables only.
    below = path.parts[len(here.parts) :] if _is_below(path, here) else path.parts
    part = next((part for part in path.parts if part in _VARIABLES or (part in below and _READ.fullmatch(part))), None)
    if part:
        return f"Ansible reads directories named {part}"
    for directory in _plugin_directories():
        if _is_below(path, directory):
            return f"Ansible reads plugins or settings from {directory}"
    for source in context.CLIARGS.get("inventory") or ():
        place = Path(os.path.realpath(os.path.expanduser(source)))
        # Ansible reads all files of an inventory directory; beside an inventory file it reads the directories of variables, matched by name above.
        # Results are allowed when the working directory is the inventory's directory.
        if place.is_dir() and _is_below(path, place):
            return f"{place} is an inventory"
        if place.is_file() and _is_below(path, place.parent) and not _is_below(here, place.parent):
            return f"the inventory {place} is in this directory"
    return None


def _plugin_directories() -> t.Iterator[Path]:
    configured = [getattr(constants, name, None) for name in (*_SETTINGS, *(name for name in dir(constants) if name.endswith("_PLUGIN_PATH")))]
    for value in (_OTHERS, *filter(None, configured)):
        for directory in [value] if isinstance(value, str) else value:
            yield Path(os.path.realpath(os.path.expanduser(directory)))


def _is_below(path: Path, directory: Path) -> bool:
    return directory == path or directory in path.parents
