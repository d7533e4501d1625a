# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where on the controller a file may be written that holds what a host said: nowhere that Ansible reads something from."""

from __future__ import annotations

import os
import re
import typing as t
from pathlib import Path

from ansible import constants, context
from ansible_collections.threadwise.smt.plugins.plugin_utils._border import results, text

# Directories that Ansible reads wherever they stand beside an inventory, a playbook or in a role.
_VARIABLES = ("host_vars", "group_vars")
_READ = re.compile(r"(plugins|library|module_utils|[a-z]+_plugins)")
# Settings whose values are directories, or lists of them, that plugins, modules and roles come from.
_SETTINGS = ("DEFAULT_MODULE_PATH", "DEFAULT_MODULE_UTILS_PATH", "DEFAULT_ROLES_PATH", "CACHE_PLUGIN_CONNECTION")
# The configured paths of collections are not among them: who develops one works below such a path, and has results there.
_OTHERS = ("/etc/ansible", "~/.ansible/collections")


def run_directory(dest: str, run: str) -> Path:
    """The directory of a run below the directory of runs, absolute.

    Args:
        dest: the directory of runs as the user wrote it; ``~`` is the user's home directory.
        run: the run's name.

    Raises:
        BorderError: this cannot be a run's name, or no file of a host belongs there.
    """
    if not results.is_run_name(run):
        raise text.BorderError(
            f"a run cannot be called {text.line(ascii(run), 120)}: only letters, digits, '.', '_' and '-', at most 100, the first a letter or digit"
        )
    return _seen(os.path.join(dest, run), dest)


def file(path: str) -> Path:
    """A file's path as the user wrote it, absolute.

    Raises:
        BorderError: no file of a host belongs there.
    """
    return _seen(path, path)


def _seen(path: str, told: str) -> Path:
    absolute = Path(os.path.abspath(os.path.expanduser(path)))
    # Links are followed to where they lead, and the way as it is written counts, too.
    for way in (absolute, Path(os.path.realpath(absolute))):
        reader = _reader(way)
        if reader:
            raise text.BorderError(f"{text.line(told, 300)}: what comes from hosts is not written there, because {reader}: name another place")
    return absolute


def _reader(path: Path) -> str | None:
    """Why Ansible would read what is written at this path, or None."""
    here = Path(os.path.realpath(os.getcwd()))
    # What the directories above the working directory are called (a checkout in ~/library) is no reason: there Ansible reads variables alone.
    below = path.parts[len(here.parts) :] if _is_below(path, here) else path.parts
    part = next((part for part in path.parts if part in _VARIABLES or (part in below and _READ.fullmatch(part))), None)
    if part:
        return f"Ansible reads directories that are called {part}"
    for directory in _plugin_directories():
        if _is_below(path, directory):
            return f"Ansible looks for its own files in {directory}"
    for source in context.CLIARGS.get("inventory") or ():
        place = Path(os.path.realpath(os.path.expanduser(source)))
        # All files of a directory that is an inventory are read; beside a file it is the directories of variables, which are known by their names.
        # Who works in the directory of the inventory means to have results there.
        if place.is_dir() and _is_below(path, place):
            return f"{place} is an inventory"
        if place.is_file() and _is_below(path, place.parent) and not _is_below(here, place.parent):
            return f"the inventory {place} lies there"
    return None


def _plugin_directories() -> t.Iterator[Path]:
    configured = [getattr(constants, name, None) for name in (*_SETTINGS, *(name for name in dir(constants) if name.endswith("_PLUGIN_PATH")))]
    for value in (_OTHERS, *filter(None, configured)):
        for directory in [value] if isinstance(value, str) else value:
            yield Path(os.path.realpath(os.path.expanduser(directory)))


def _is_below(path: Path, directory: Path) -> bool:
    return directory == path or directory in path.parents
