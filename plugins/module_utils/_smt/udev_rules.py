# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""udev rules that bring CPUs online on their "add" event, and a way to have them rest.

They undo what was done by cpuN/online (and ``maxcpus=``), at boot and after each hot-plug; they cannot undo a control that reads off. A rules
file is hidden by one of the same name in /etc/udev/rules.d (udev(7)).
"""

from __future__ import annotations

import fnmatch
import re

# udev(7): a name that is in several is taken from the first.
DIRECTORIES = ("etc/udev/rules.d", "run/udev/rules.d", "usr/local/lib/udev/rules.d", "usr/lib/udev/rules.d", "lib/udev/rules.d")
OVERRIDES = DIRECTORIES[0]
BACKUPS = "var/lib/threadwise-smt/udev-rules"
HEADER = "# Written by the Ansible role threadwise.smt.smt_runtime (smt_runtime_neutralise_udev_rules): rules that online CPUs are commented out.\n"
RESTING = "# threadwise.smt: "

_PART = re.compile(r'\s*,?\s*([A-Z_]+(?:\{[^}]*\})?)\s*(==|!=|\+=|-=|:=|=)\s*e?"((?:[^"\\]|\\.)*)"')


def brings_cpus_online(rule: str) -> bool:
    """Whether one rule (a line, continuations joined) writes 1 to ``online`` of a CPU that is added."""
    parts = _PART.findall(rule)
    if rule.lstrip().startswith("#"):
        return False

    def admits(key, value):
        return all(
            any(fnmatch.fnmatchcase(value, one) for one in text.split("|")) == (operator == "==")
            for name, operator, text in parts
            if name == key and operator in ("==", "!=")
        )

    is_about_cpus = any(name in ("SUBSYSTEM", "KERNEL", "DEVPATH") and operator == "==" and "cpu" in text for name, operator, text in parts)
    sets = any(name == "ATTR{online}" and operator in ("=", ":=") and text == "1" for name, operator, text in parts)
    return sets and is_about_cpus and admits("SUBSYSTEM", "cpu") and admits("ACTION", "add")


def without_them(text: str) -> str:
    """The text of a rules file with those rules commented out."""
    lines = []
    for rule in re.findall(r"(?:[^\n]*\\\n)*[^\n]*\n?", text):
        if brings_cpus_online(rule.replace("\\\n", " ")):
            rule = "".join(RESTING + line.rstrip("\\\n") + "\n" for line in rule.splitlines(True))
        lines.append(rule)
    return "".join(lines)


def active(fs) -> list[str]:
    """Paths of the rules files in force that bring CPUs online."""
    found = []
    for name, path in sorted(_in_force(fs, DIRECTORIES).items()):
        text = fs.read(path) or ""
        if without_them(text) != text:
            found.append(path)
    return found


def wanted(fs, neutralise: bool) -> dict:
    """``{path: text or None}``: override files and backups that should be there, or should not any more."""
    files = {}
    for path in active(fs) if neutralise else []:
        name = path.rpartition("/")[2]
        text = fs.read(path) or ""
        if path.startswith(OVERRIDES + "/"):
            # The administrator's own file: it is kept aside and comes back.
            files[f"{BACKUPS}/{name}"] = text
        files[f"{OVERRIDES}/{name}"] = HEADER + without_them(text)
    if not neutralise:
        for name in fs.names(OVERRIDES):
            path = f"{OVERRIDES}/{name}"
            if name.endswith(".rules") and (fs.read(path) or "").startswith(HEADER):
                backup = f"{BACKUPS}/{name}"
                files[path] = fs.read(backup)
                files[backup] = None
    return files


def _in_force(fs, directories) -> dict:
    found = {}
    for directory in directories:
        for name in fs.names(directory):
            if name.endswith(".rules"):
                found.setdefault(name, f"{directory}/{name}")
    return found
