# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of a host's files decides the value of a sysctl at boot: sysctl.d(5), sysctl.conf(5), TuneD profiles, and who
sets it after them.
"""

import os
import re
import stat
import typing as t
from collections.abc import Iterable, Mapping

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import tuned_profiles
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory import late_writers
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.errors import MemoryPolicyError
from ansible_collections.threadwise.smt.plugins.module_utils._set.memory.policy import COUNTERPARTS

# A file hides those of the same name in later directories; the remaining files are read in the order of their names
# (sysctl.d(5)).
DIRECTORIES = ("etc/sysctl.d", "run/sysctl.d", "usr/local/lib/sysctl.d", "usr/lib/sysctl.d", "lib/sysctl.d")
TUNED_CONF = "etc/tuned/tuned-main.conf"
# Sorts after 99-sysctl.conf, the link to /etc/sysctl.conf.
OURS = "etc/sysctl.d/99-threadwise-smt-memory.conf"
# What the kernel takes for a number (proc_get_long in kernel/sysctl.c): what follows a blank does not count.
_NUMBER = re.compile(r"(-?)(0[xX][0-9a-fA-F]{1,16}|[0-9]{1,18})(?=\s|\Z)")


class Assignment(t.NamedTuple):
    """A value, and where it comes from: the path of a file relative to the sysroot, or the name of a TuneD profile."""

    value: str
    source: str


def assignments(text: str) -> "list[tuple[str, str]]":
    """Parse the text of a sysctl.d file.

    Patterns are left out, because a plain name takes precedence over them.

    Args:
        text: the content of the file.

    Returns:
        Names, with dots, and values, in order.
    """
    pairs = []
    for line in text.split("\n"):
        name, equals, value = line.strip().partition("=")
        name = name.strip().lstrip("-").strip()
        if not equals or name[:1] in ("", "#", ";") or any(sign in name for sign in "*?["):
            continue
        pairs.append((_dotted(name), value.strip()))
    return pairs


def number(text: str) -> "int | None":
    """Return the number that the kernel makes of a value, None where it refuses the value."""
    match = _NUMBER.match(text.strip())
    if match is None:
        return None
    sign, digits = match.groups()
    base = 16 if digits[:2].lower() == "0x" else 8 if digits[0] == "0" else 10
    try:
        return int(digits, base) * (-1 if sign else 1)
    except ValueError:
        return None


def _dotted(name: str) -> str:
    separator = re.search(r"[./]", name)
    return name.replace("/", ".") if separator and separator.group() == "/" else name


def read(fs: HostFs) -> "list[tuple[str, str]]":
    """Read the sysctl.d files that have an effect.

    Args:
        fs: the host's files.

    Returns:
        Paths and texts, in the order in which the files are read at boot.
    """
    by_name: dict[str, str] = {}
    for directory in DIRECTORIES:
        for name in fs.names(directory):
            if name.endswith(".conf"):
                by_name.setdefault(name, f"{directory}/{name}")
    return [(path, _text(fs, path)) for _name, path in sorted(by_name.items())]


def _text(fs: HostFs, path: str) -> str:
    """Return the text of a file; a link to /dev/null masks those of its name, and has none."""
    status = fs.status(path)
    is_link = status is not None and stat.S_ISLNK(status.st_mode)
    return "" if is_link and os.readlink(fs.path(path)) == os.devnull else fs.read(path) or ""


def at_boot(files: "Iterable[tuple[str, str]]") -> "dict[str, Assignment]":
    """Compute the values that sysctl.d files set at boot.

    systemd-sysctl writes each name once: with its last value, at the place of its last change (systemd 252,
    src/sysctl/sysctl.c). Writing overcommit_ratio sets overcommit_kbytes to 0, and the other way round.

    Args:
        files: paths and texts, in order.

    Returns:
        The final value by name.
    """
    written: dict[str, Assignment] = {}
    for path, text in files:
        for name, value in assignments(text):
            if name not in written or written[name].value != value:
                written.pop(name, None)
                written[name] = Assignment(value, path)
    result: dict[str, Assignment] = {}
    for name, assignment in written.items():
        result[name] = assignment
        if name in COUNTERPARTS:
            result[COUNTERPARTS[name]] = Assignment("0", assignment.source)
    return result


def own_text(fs: HostFs, path: str) -> "str | None":
    """Return the text of a file that this collection writes, or None when it does not exist.

    Args:
        fs: the host's files.
        path: relative to the sysroot.

    Raises:
        MemoryPolicyError: What is there is not a text file, so it could not be put back.
    """
    status = fs.status(path)
    if status is None:
        return None
    text = fs.read(path) if stat.S_ISREG(status.st_mode) else None
    # U+FFFD stands for bytes that are not text.
    if text is None or "\ufffd" in text:
        raise MemoryPolicyError(
            f"{fs.path(path)} is not a text file that can be read, and nothing was changed: remove it"
        )
    return text


def our_text(text: "str | None", wanted: "Mapping[str, int]") -> str:
    """Return the text of our file with the wanted values; its lines about other sysctls stay.

    The counterpart of a wanted ratio or kbytes is left out: its line would reset the wanted value to 0.

    Args:
        text: what is in the file now; None when it does not exist.
        wanted: the values to write, as ``memory_policy.settings`` returns them.
    """
    replaced = {*wanted, *(COUNTERPARTS[name] for name in wanted if name in COUNTERPARTS)}
    values = dict(assignments(text or ""))
    if {name: value for name, value in values.items() if name in replaced} == {
        name: str(value) for name, value in wanted.items()
    }:
        return text or ""
    kept = [
        line for line in (text or "").splitlines() if not any(name in replaced for name, _value in assignments(line))
    ]
    return "".join(f"{line}\n" for line in [*kept, *(f"{name}={value:d}" for name, value in wanted.items())])


class BootFiles:
    """The files that decide sysctl values at boot, read once.

    Args:
        fs: the host's files.

    Attributes:
        running: the processes that set values, or do without them.
    """

    def __init__(self, fs: HostFs) -> None:
        self._fs = fs
        self._files = read(fs)
        self._last = at_boot([(late_writers.SYSCTL_CONF, fs.read(late_writers.SYSCTL_CONF) or "")])
        self._tuned: dict[str, Assignment] = {}
        for profile in tuned_profiles.active(fs):
            for name, value in profile.of_plugin("sysctl").items():
                self._tuned[_dotted(name)] = Assignment(value.lstrip(">").strip(), profile.name)
        # TuneD writes its profile's values when it starts, after systemd-sysctl, and then by default those of sysctl.d
        # again.
        reapply = tuned_profiles.settings(fs.read(TUNED_CONF) or "").get("", {}).get("reapply_sysctl", "1")
        self._tuned_is_last = reapply.lower() not in ("1", "true", "yes")
        self.running = late_writers.processes(fs)
        self._kubelets = late_writers.find_kubelets(fs, self.running)
        self._ufw = dict(assignments(late_writers.ufw_text(fs)))

    def overrides(self, wanted: "Mapping[str, int]") -> "list[str]":
        """List what would override the collection's sysctl.d file.

        Args:
            wanted: the values to write, as ``memory_policy.settings`` returns them; taken as the content of our file,
                whether it exists yet or not.

        Returns:
            One sentence per override; empty when our values stay in effect.
        """
        late = self._late(wanted)
        problems = [
            f"{self._fs.path(late_writers.SYSCTL_CONF)} sets {name} to {self._last[name].value!s:.20} whenever sysctl"
            " --system is run, which reads it last: remove that line from the file"
            for name, value in wanted.items()
            if name in self._last and number(self._last[name].value) != value and name not in late
        ]
        problems += self._late_overrides(wanted, late) + late_writers.would_not_start(self._kubelets, wanted)
        return self._file_overrides(wanted) + problems

    def differences(self, wanted: "Mapping[str, int]") -> "tuple[list[str], str | None]":
        """List the wanted values that the next boot would not set, as the files are now.

        Args:
            wanted: the values to write, as ``memory_policy.settings`` returns them.

        Returns:
            One sentence per setting that differs; and why our file could not fix that, or None.
        """
        effective = at_boot(self._files)
        late = self._late_overrides(wanted, self._late(wanted))
        differences = []
        for name, value in wanted.items():
            assignment = effective.get(name)
            if assignment is None:
                differences.append(f"no file sets {name} at boot")
            elif number(assignment.value) != value:
                differences.append(
                    f"{self._fs.path(assignment.source)} sets {name} to {assignment.value!s:.20} instead of {value} at"
                    " boot"
                )
        return differences + late, next(iter(self._file_overrides(wanted) + late), None)

    def sources(self, text: "str | None") -> "dict[str, Assignment]":
        """Return what each sysctl is set to at boot, and by what, once our file has this text.

        Args:
            text: the text of our file; None when it does not exist.

        Returns:
            Values by name; ``source`` is the path of a file, ``TuneD profile NAME``, or the name of a program.
        """
        files = {
            name: Assignment(assignment.value, self._fs.path(assignment.source))
            for name, assignment in at_boot(self._with_ours(text)).items()
        }
        tuned = {
            name: Assignment(assignment.value, f"TuneD profile {assignment.source}")
            for name, assignment in self._tuned.items()
        }
        ours = {name for name, _value in assignments(text or "")}
        late = {name: Assignment(assignment.value, assignment.source) for name, assignment in self._late(ours).items()}
        return {**files, **tuned, **late} if self._tuned_is_last else {**tuned, **files, **late}

    def _late(self, ours: "Iterable[str]") -> "dict[str, late_writers.Late]":
        """Return what is set late, once our file has these names."""
        is_reapplied = bool(self._tuned) and not self._tuned_is_last
        of_system = {*at_boot(self._files), *self._last, *ours} if is_reapplied else ()
        conf = {name: assignment.value for name, assignment in self._last.items()}
        return late_writers.read(self._fs, conf, self._ufw, {*self._tuned, *of_system}, is_reapplied, self._kubelets)

    def _with_ours(self, text: "str | None") -> "list[tuple[str, str]]":
        """Return the files of sysctl.d in their order, with this text in our file."""
        files = [(path, other) for path, other in self._files if path != OURS]
        return sorted([*files, *([] if text is None else [(OURS, text)])], key=lambda item: item[0].rpartition("/")[2])

    def _file_overrides(self, wanted: "Mapping[str, int]") -> "list[str]":
        effective = at_boot(self._with_ours(our_text(None, wanted)))
        return [
            f"{self._fs.path(effective[name].source)} sets {name} to {effective[name].value!s:.20} at boot and"
            f" overrides {self._fs.path(OURS)}: remove that line from the file"
            for name, value in wanted.items()
            if number(effective[name].value) != value
        ]

    def _late_overrides(self, wanted: "Mapping[str, int]", later: "Mapping[str, late_writers.Late]") -> "list[str]":
        late = [
            f"{assignment.source} sets {name} to {assignment.value!s:.20} {assignment.when}"
            for name, assignment in ((name, later[name]) for name in wanted if name in later)
            if number(assignment.value) != wanted[name]
        ]
        return late + [
            f"the TuneD profile {self._tuned[name].source} sets {name} to {self._tuned[name].value!s:.20} when TuneD"
            f" starts, because reapply_sysctl is off: switch it on in {self._fs.path(TUNED_CONF)}, or change the"
            " profile"
            for name, value in wanted.items()
            if self._tuned_is_last and name in self._tuned and number(self._tuned[name].value) != value
        ]
