# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""udev rules that bring CPUs online on their "add" event, and override files that disable them.

Such rules undo changes of cpuN/online (and ``maxcpus=``) at boot and after each hot-plug; they cannot undo a control
that reads off. A file of the same name in /etc/udev/rules.d overrides a rules file in another directory (udev(7)).
"""

import fnmatch
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

# udev(7): if several directories have a file of the same name, the first one is used.
DIRECTORIES = (
    "etc/udev/rules.d",
    "run/udev/rules.d",
    "usr/local/lib/udev/rules.d",
    "usr/lib/udev/rules.d",
    "lib/udev/rules.d",
)
OVERRIDES = DIRECTORIES[0]
BACKUPS = "var/lib/threadwise-smt/udev-rules"
HEADER = (
    "# Written by the Ansible role threadwise.smt.smt_runtime (smt_runtime_neutralise_udev_rules): rules that online"
    " CPUs are commented out.\n"
)
DISABLED_MARK = "# threadwise.smt: "

# A command that writes 1 to the file.
_RUNS = re.compile(r"\b1\b[^|;&]*(?:>|\|\s*tee)\s*\S*online|\bchcpu\s+(?:-e|--enable)")
_PART = re.compile(r'\s*,?\s*([A-Z_]+(?:\{[^}]*\})?)\s*(==|!=|\+=|-=|:=|=)\s*e?"((?:[^"\\]|\\.)*)"')


def brings_cpus_online(rule: str, is_of_cpus: bool = False) -> bool:
    """Return whether one rule writes 1 to ``online`` of a CPU that is added, by itself or by a program.

    Args:
        rule: a line, continuations joined.
        is_of_cpus: whether an earlier rule skips this one for other devices (``SUBSYSTEM!="cpu", GOTO=...``).
    """
    parts = _PART.findall(rule)
    if rule.lstrip().startswith("#"):
        return False

    def matches(key: str, value: str) -> bool:
        return all(
            any(fnmatch.fnmatchcase(value, pattern) for pattern in text.split("|")) == (operator == "==")
            for name, operator, text in parts
            if name == key and operator in ("==", "!=")
        )

    is_about_cpus = is_of_cpus or any(
        name in ("SUBSYSTEM", "KERNEL", "DEVPATH") and operator == "==" and "cpu" in text
        for name, operator, text in parts
    )
    sets = any(
        (name == "ATTR{online}" and operator in ("=", ":=") and text == "1")
        or (name.partition("{")[0] == "RUN" and operator in ("=", "+=", ":=") and _RUNS.search(text))
        for name, operator, text in parts
    )
    return sets and is_about_cpus and matches("SUBSYSTEM", "cpu") and matches("ACTION", "add")


def without_them(text: str) -> str:
    """Return the text of a rules file with the rules that bring CPUs online commented out."""
    lines = []
    skips = ""
    for rule in re.findall(r"(?:[^\n]*\\\n)*[^\n]*\n?", text):
        joined = rule.replace("\\\n", " ")
        parts = [] if joined.lstrip().startswith("#") else _PART.findall(joined)
        if ("SUBSYSTEM", "!=", "cpu") in parts:
            skips = next((label for name, _operator, label in parts if name == "GOTO"), skips)
        if skips and ("LABEL", "=", skips) in parts:
            skips = ""
        if brings_cpus_online(joined, bool(skips)):
            lines += [DISABLED_MARK + line.rstrip("\\\n") + "\n" for line in rule.splitlines(True)]
        else:
            lines.append(rule)
    return "".join(lines)


def active(fs: host_files.HostFs) -> "list[str]":
    """Return the sorted paths of the effective rules files that bring CPUs online."""
    rules = []
    reader = host_files.HostFs(fs.sysroot)  # a mask, a link to /dev/null, is no problem of the host
    for _name, path in sorted(_effective(reader, DIRECTORIES).items()):
        text = reader.read(path) or ""
        if without_them(text) != text:
            rules.append(path)
    return rules


def wanted(fs: host_files.HostFs, neutralise: bool) -> "dict[str, str | None]":
    """Return the text of each override file and backup; None for a file that must not exist.

    Without ``neutralise`` the rules are restored.
    """
    files: dict[str, t.Optional[str]] = {}
    for path in active(fs) if neutralise else []:
        name = path.rpartition("/")[2]
        text = fs.read(path) or ""
        if path.startswith(OVERRIDES + "/"):
            # The administrator's own file: it is backed up and restored later.
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


def ours(fs: host_files.HostFs) -> "list[str]":
    """Return the paths of the override files that this collection has written,
    and of the administrator's files behind them.
    """
    return [path for path in wanted(fs, neutralise=False) if fs.status(path) is not None]


def is_ours(path: object) -> bool:
    """Return whether a path is that of an override file or of an administrator's file behind one."""
    folder, _slash, name = str(path).rpartition("/")
    return folder in (OVERRIDES, BACKUPS) and name.endswith(".rules")


def _effective(fs: host_files.HostFs, directories: "t.Iterable[str]") -> "dict[str, str]":
    """Return name and path of each rules file that no file of the same name in an earlier directory overrides."""
    texts: dict[str, str] = {}
    for directory in directories:
        for name in fs.names(directory):
            if name.endswith(".rules"):
                texts.setdefault(name, f"{directory}/{name}")
    return texts
