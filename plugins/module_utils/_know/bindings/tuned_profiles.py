# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""TuneD's profiles that are active on a host, with those that they include: what they set, TuneD sets again at each
start (tuned/profiles/loader.py of TuneD 2.20).
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import ReadableFiles

ACTIVE = "etc/tuned/active_profile"
_FOLDERS = ("etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned")
_MAX_INCLUDES = 16
_NAME = re.compile(r"\A[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")


class Profile(t.NamedTuple):
    """A profile.

    Attributes:
        name: its name.
        folder: the folder with its files, below the sysroot.
        sections: the values of its file, by section and name.
    """

    name: str
    folder: str
    sections: "dict[str, dict[str, str]]"

    def of_plugin(self, plugin: str) -> "dict[str, str]":
        """Return the values of its sections for a plug-in: the one of this name, and those of this type."""
        values: dict[str, str] = {}
        for name, section in self.sections.items():
            if section.get("type", name) == plugin:
                values.update(section)
        return values


def active(files: ReadableFiles) -> "list[Profile]":
    """Return the active profiles and those that they include; values of later ones take precedence.

    Args:
        files: the host's files.
    """
    profiles: list[Profile] = []
    for name in (files.read(ACTIVE) or "").split():
        _add(files, name, set(), profiles)
    return profiles


def _add(files: ReadableFiles, name: str, seen: "set[str]", profiles: "list[Profile]") -> None:
    if name in seen or len(seen) >= _MAX_INCLUDES or not _NAME.match(name):
        return
    seen.add(name)
    for folder in (f"{above}/{name}" for above in _FOLDERS):
        text = files.read(f"{folder}/tuned.conf")
        if text is not None:
            sections = settings(text)
            for included in re.split(r"[\s,]+", sections.get("main", {}).get("include", "")):
                _add(files, included, seen, profiles)
            profiles.append(Profile(name, folder, sections))
            return


def settings(text: str) -> "dict[str, dict[str, str]]":
    """Return the values of one of TuneD's files by section and name;
    the lines before the first section are in section ``""``.
    """
    sections: dict[str, dict[str, str]] = {"": {}}
    section = ""
    for raw_line in text.split("\n"):
        line = raw_line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
            sections.setdefault(section, {})
        elif "=" in line and line[0] not in "#;":
            name, _equals, value = line.partition("=")
            sections[section][name.strip()] = value.split("#", maxsplit=1)[0].strip().strip('"')
    return sections
