# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that run on a host, by their names; and the kubelet among them, wherever it has its files."""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import ReadableFiles

MAX_PROCESSES = 100000
# Programs that are a kubelet, or have one inside: microk8s and k3s.
KUBELETS = frozenset({"kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent"})


class Program(t.NamedTuple):
    """A program that runs: one of its processes, its name (``comm``), and its arguments."""

    pid: int
    name: str
    arguments: "tuple[str, ...]"

    def argument(self, name: str) -> "str | None":
        """Return the value of an argument, with one or two dashes; empty without a value, None where it is missing.
        k3s hands arguments of kubelet on, as ``--kubelet-arg=NAME=VALUE``.
        """
        for position, argument in enumerate(self.arguments):
            words = argument.lstrip("-")
            words = words[len("kubelet-arg=") :] if words.startswith("kubelet-arg=") else words
            found, equals, value = words.partition("=")
            if found == name and argument.startswith("-"):
                following = next(iter(self.arguments[position + 1 :]), "-")
                return value if equals else "" if following.startswith("-") else following
        return None


def running(files: ReadableFiles, names: "t.Container[str]") -> "list[Program]":
    """Return the programs of these names that run.

    Args:
        files: the host's files; a process may end while it is read, which is no problem of the host.
        names: the names.
    """
    found = []
    for pid in [name for name in files.names("proc") if name.isdigit()][:MAX_PROCESSES]:
        name = (files.read(f"proc/{pid}/comm") or "").strip()
        if name in names:
            arguments = (files.read(f"proc/{pid}/cmdline") or "").split("\0")
            found.append(Program(int(pid), name, tuple(argument for argument in arguments if argument)))
    return found


def kubelet_setting(files: ReadableFiles, kubelet: Program, argument: str, key: str) -> "str | None":
    """Return a setting of a kubelet: that of its argument, else that of its configuration file; None without one.

    Args:
        files: the host's files.
        kubelet: from :func:`running`.
        argument: the name of the argument, such as ``cpu-manager-policy``.
        key: its key in the file, such as ``cpuManagerPolicy``, at the top level.
    """
    given = kubelet.argument(argument)
    if given is not None:
        return given
    path = kubelet.argument("config")
    found = re.search(rf"^{key}:[ \t]*([^#\n]*)", (files.read(path.lstrip("/")) or "") if path else "", re.MULTILINE)
    return found[1].strip().strip("\"'") if found else None
