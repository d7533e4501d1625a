# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of a host's files has the last word on a sysctl value at boot: sysctl.d(5), sysctl.conf(5), TuneD's profiles."""

from __future__ import annotations

import re

from ansible_collections.threadwise.smt.plugins.module_utils._memory.policy import TWINS

# A file hides those of the same name in later directories; what is left is read in the order of the names (sysctl.d(5)).
DIRECTORIES = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d")
# procps reads it after all others; systemd-sysctl only where a link in sysctl.d names it.
SYSCTL_CONF = "etc/sysctl.conf"
TUNED_PROFILES = ("etc/tuned/profiles", "etc/tuned", "usr/lib/tuned/profiles", "usr/lib/tuned")
# Sorts after 99-sysctl.conf, the link to /etc/sysctl.conf.
OURS = "etc/sysctl.d/99-threadwise-smt-memory.conf"
MOST_INCLUDES = 16


def assignments(text):
    """The (name, value) pairs (str) of a file in the form of sysctl.d(5), in order; names with dots. Patterns are left out: a plain name beats them."""
    found = []
    for line in text.split("\n"):
        name, equals, value = line.strip().partition("=")
        name = name.strip().lstrip("-").strip()
        if not equals or name[:1] in ("", "#", ";") or any(sign in name for sign in "*?["):
            continue
        found.append((_dotted(name), value.strip()))
    return found


def _dotted(name):
    separator = re.search(r"[./]", name)
    return name.replace("/", ".") if separator and separator.group() == "/" else name


def read(fs):
    """The files that count, as (path, text) in the order in which they are read.

    Args:
        fs: ``files.HostFs``.
    """
    by_name = {}
    for directory in DIRECTORIES:
        for name in fs.names(directory):
            if name.endswith(".conf"):
                by_name.setdefault(name, f"{directory}/{name}")
    return [(path, fs.read(path) or "") for _name, path in sorted(by_name.items())]


def at_boot(files):
    """What the files come to: ``{name: (value, path)}``, values as str.

    systemd-sysctl writes each name once: with its last value, at the place of its last change (systemd 252, src/sysctl/sysctl.c). A write of
    overcommit_ratio zeroes overcommit_kbytes and the other way round.
    """
    written = {}
    for path, text in files:
        for name, value in assignments(text):
            if written.get(name, (None,))[0] != value:
                written.pop(name, None)
                written[name] = (value, path)
    result = {}
    for name, (value, path) in written.items():
        result[name] = (value, path)
        if name in TWINS:
            result[TWINS[name]] = ("0", path)
    return result


def overrides(fs, wanted, ours=OURS):
    """Who would have the last word against our file, one sentence (str) each; empty when our values hold.

    Args:
        fs: ``files.HostFs``.
        wanted: settings as ``memory_policy.settings`` returns them; taken as what our file says, whether it is there yet or not.
        ours: our file, relative to the sysroot.
    """
    problems = []
    last = at_boot([(SYSCTL_CONF, fs.read(SYSCTL_CONF) or "")])
    for name, value in wanted.items():
        at_last = last.get(name, (str(value),))[0]
        if at_last != str(value):
            problems.append(
                f"{fs.path(SYSCTL_CONF)} makes {name} {at_last!s:.20} whenever somebody calls sysctl --system, which reads it last: take the line out of it"
            )
    return _file_overrides(fs, wanted, ours) + problems + _tuned_overrides(fs, wanted)


def boot_differences(fs, wanted, ours=OURS):
    """What the next boot makes other than wanted, as the files are now.

    Args:
        fs: ``files.HostFs``.
        wanted: settings as ``memory_policy.settings`` returns them.
        ours: our file, relative to the sysroot.

    Returns:
        ``(differences, hindrance)``: a sentence (str) for each setting, and why our file could not mend it (str), or None.
    """
    effective = at_boot(read(fs))
    tuned = _tuned_overrides(fs, wanted)
    differences = []
    for name, value in wanted.items():
        at_last, path = effective.get(name, (None, None))
        if path is None:
            differences.append(f"no file sets {name} at boot")
        elif at_last != str(value):
            differences.append(f"{fs.path(path)} makes {name} {at_last!s:.20} instead of {value} at boot")
    return differences + tuned, next(iter(_file_overrides(fs, wanted, ours) + tuned), None)


def _file_overrides(fs, wanted, ours):
    own_text = "".join("%s=%d\n" % item for item in wanted.items())
    files = [(path, text) for path, text in read(fs) if path != ours]
    effective = at_boot(sorted([*files, (ours, own_text)], key=lambda item: item[0].rpartition("/")[2]))
    problems = []
    for name, value in wanted.items():
        at_last, path = effective[name]
        if at_last != str(value):
            problems.append(f"{fs.path(path)} makes {name} {at_last!s:.20} at boot, in spite of {fs.path(ours)}: take the line out of it")
    return problems


def _tuned_overrides(fs, wanted):
    """TuneD writes its profile's values when it starts, after systemd-sysctl, and then by default those of sysctl.d again (reapply_sysctl)."""
    if _ini(fs.read("etc/tuned/tuned-main.conf") or "").get("", {}).get("reapply_sysctl", "1").lower() in ("1", "true", "yes"):
        return []
    values = {}
    for profile in (fs.read("etc/tuned/active_profile") or "").split():
        values.update(_profile_values(fs, profile, set()))
    problems = []
    for name, value in wanted.items():
        at_last, profile = values.get(name, (str(value), None))
        if at_last != str(value):
            problems.append(
                "the tuned profile {} makes {} {!s:.20} when tuned starts, because reapply_sysctl is off: switch that on in {} or change the profile".format(
                    profile, name, at_last, fs.path("etc/tuned/tuned-main.conf")
                )
            )
    return problems


def _profile_values(fs, profile, seen):
    """``{name: (value, profile)}`` of a profile and those it includes; its own win."""
    if profile in seen or len(seen) >= MOST_INCLUDES or not re.match(r"\A[A-Za-z0-9_][A-Za-z0-9_.-]*\Z", profile):
        return {}
    seen.add(profile)
    text = next((text for text in (fs.read(f"{folder}/{profile}/tuned.conf") for folder in TUNED_PROFILES) if text is not None), "")
    sections = _ini(text)
    values = {}
    for name in re.split(r"[\s,]+", sections.get("main", {}).get("include", "")):
        values.update(_profile_values(fs, name, seen))
    values.update({_dotted(name): (value.lstrip(">").strip(), profile) for name, value in sections.get("sysctl", {}).items()})
    return values


def _ini(text):
    """``{section: {name: value}}`` of a TuneD file; the lines before the first section are under ``""``."""
    sections = {"": {}}
    section = ""
    for line in text.split("\n"):
        line = line.strip()
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
            sections.setdefault(section, {})
        elif "=" in line and line[0] not in "#;":
            name, _equals, value = line.partition("=")
            sections[section][name.strip()] = value.split("#")[0].strip().strip('"')
    return sections
