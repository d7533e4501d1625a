# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm's configuration counts on a node: slurmctld drains a node that registers with fewer threads or CPUs than
its line says (slurm.conf(5): NodeName, ThreadsPerCore, CPUs; SlurmdParameters=config_overrides takes it as it is).
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import kernel_files

# Of a host with files of its own, of one that has them from the controller, and of Debian before 12.
FILES = ("etc/slurm/slurm.conf", "run/slurm/conf/slurm.conf", "etc/slurm-llnl/slurm.conf")
MAX_LINES = 20000
_HOSTNAME = "proc/sys/kernel/hostname"
_WORD = re.compile(r"(\w+)=(\"[^\"]*\"|\S+)")
# A name, with numbers in brackets: ``rack[1-2]node[01-16,20]``.
_BRACKETS = re.compile(r"\[([0-9,-]+)\]")
_NAMES = re.compile(r"(?:[^,\[]|\[[^\]]*\])+")


class Node(t.NamedTuple):
    """What a node's line counts.

    Attributes:
        path: the file, below the sysroot.
        threads: threads of a core; 1 where the line does not say.
        cpus: CPUs; 0 where the line does not say.
    """

    path: str
    threads: int
    cpus: int


def node(host: kernel_files.KernelFiles) -> "Node | None":
    """Return what Slurm counts on this host, or None where it is no node, or its line does not bind Slurm."""
    name = (host.read(_HOSTNAME) or "").strip().partition(".")[0]
    for path in FILES:
        text = re.sub(r"\\\n", " ", host.read(path) or "")
        if not text or not name:
            continue
        if re.search(r"^\s*SlurmdParameters\s*=[^#\n]*\bconfig_overrides\b", text, re.IGNORECASE | re.MULTILINE):
            return None
        default: dict[str, str] = {}
        for line in text.split("\n")[:MAX_LINES]:
            values = {key.lower(): value.strip('"') for key, value in _WORD.findall(line.partition("#")[0])}
            names = values.pop("nodename", "")
            if names == "DEFAULT":
                default.update(values)
            elif name in (values.get("nodehostname"), names) or _has(names, name):
                node_values = {**default, **values}
                return Node(path, _number(node_values.get("threadspercore"), 1), _number(node_values.get("cpus"), 0))
    return None


def _has(names: str, name: str) -> bool:
    """Return whether a list of nodes, as Slurm writes it, has this one."""
    for pattern in _NAMES.findall(names):
        parts = _BRACKETS.split(pattern)
        match = re.fullmatch("([0-9]+)".join(map(re.escape, parts[::2])), name)
        if match and all(_is_in(number, ranges) for number, ranges in zip(match.groups(), parts[1::2])):
            return True
    return False


def _is_in(number: str, ranges: str) -> bool:
    for part in ranges.split(","):
        first, _dash, last = part.partition("-")
        last = last or first
        has_width = len(number) >= len(first)
        if has_width and first.isdigit() and last.isdigit() and int(first) <= int(number) <= int(last):
            return True
    return False


def _number(text: "str | None", default: int) -> int:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,6}", text) else default
