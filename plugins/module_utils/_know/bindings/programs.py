# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that run on a host, by their names; and the kubelet among them, wherever it has its files."""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import ReadableFiles

MAX_PROCESSES = 100000
# Programs that are a kubelet, or have one inside: microk8s and k3s.
KUBELETS = frozenset({"kubelet", "kubelite", "k3s", "k3s-server", "k3s-agent"})
# Where kubelet keeps its state: of itself, of microk8s, and of k0s; another place is among its arguments.
_KUBELET_FOLDERS = ("var/lib/kubelet", "var/snap/microk8s/common/var/lib/kubelet", "var/lib/k0s/kubelet")
_KUBELET_STATE = "cpu_manager_state"
# Cgroups of logins and of pods.
_OF_OTHERS = re.compile(r"/(user\.slice|[^/\n]*kubepods[^/\n]*)(/|$)", re.MULTILINE)


class Program(t.NamedTuple):
    """A program that runs: one of its processes, its name (``comm``), and its arguments."""

    pid: int
    name: str
    arguments: "tuple[str, ...]"

    def argument(self, name: str) -> "str | None":
        """Return the value of an argument, with one or two dashes; empty without a value, None where it is missing. The
        last one counts. k3s hands arguments of kubelet on, as ``--kubelet-arg=NAME=VALUE``.
        """
        last = None
        for position, argument in enumerate(self.arguments):
            words = argument.lstrip("-")
            words = words[len("kubelet-arg=") :] if words.startswith("kubelet-arg=") else words
            option, equals, value = words.partition("=")
            if option == name and argument.startswith("-"):
                following = next(iter(self.arguments[position + 1 :]), "-")
                last = value if equals else "" if following.startswith("-") else following
        return last


def is_roots(files: ReadableFiles, pid: "int | str") -> bool:
    """Return whether a process is root's: by all its ids as the host sees them, which a user namespace does not change,
    not in a login or a pod, and of a program that runs as whoever starts it. Any user can give any name to a process.
    """
    folder = f"proc/{pid}"
    ids = re.search(r"^Uid:(.*)", files.read(f"{folder}/status") or "", re.MULTILINE)
    return (
        (ids is None or set(ids[1].split()) == {"0"})
        and not _OF_OTHERS.search(files.read(f"{folder}/cgroup") or "")
        and not files.is_setuid(f"{folder}/exe")
    )


def running(files: ReadableFiles, names: "t.Container[str]", anybodys: "t.Container[str]" = ()) -> "list[Program]":
    """Return the programs of these names that run.

    Args:
        files: the host's files; a process may end while it is read, which is no problem of the host.
        names: the names.
        anybodys: those that count whoever runs them; the others only where root does.
    """
    programs = []
    for pid in list(filter(str.isdigit, files.names("proc")))[:MAX_PROCESSES]:
        name = (files.read(f"proc/{pid}/comm") or "").strip()
        if name in names and (name in anybodys or is_roots(files, pid)):
            arguments = files.read(f"proc/{pid}/cmdline")
            # What has ended since has neither ids nor arguments.
            if arguments is not None:
                programs.append(Program(int(pid), name, tuple(filter(None, arguments.split("\0")))))
    return programs


def kubelet_setting(files: ReadableFiles, kubelet: Program, argument: str, key: str) -> "str | None":
    """Return a setting of a kubelet: that of its argument, else that of its configuration; None without one.

    Args:
        files: the host's files.
        kubelet: from :func:`running`.
        argument: the name of the argument, such as ``cpu-manager-policy``.
        key: its key in the file, such as ``cpuManagerPolicy``, at the top level.
    """
    given = kubelet.argument(argument)
    if given is not None:
        return given
    values = re.findall(rf"^{key}:[ \t]*([^#\n]*)", _configuration(files, kubelet), re.MULTILINE)
    return values[-1].strip().strip("\"'") if values else None


def _configuration(files: ReadableFiles, kubelet: Program) -> str:
    """Return the text of a kubelet's configuration: its file, and what its directory has, of which the last counts."""
    path, folder = ((kubelet.argument(name) or "").strip("/") for name in ("config", "config-dir"))
    parts = [f"{folder}/{name}" for name in files.names(folder) if name.endswith(".conf")] if folder else []
    return "\n".join(filter(None, map(files.of_root, [*([path] if path else []), *parts])))


class Kubelet(t.NamedTuple):
    """What a kubelet binds.

    Attributes:
        static: what shows that its CPU manager policy is static; empty where it is not.
        reserved: the CPUs that it reserves for the system (``reservedSystemCPUs``).
    """

    static: str
    reserved: "frozenset[int]"


def kubelet(host: ReadableFiles) -> Kubelet:
    """Return what each kubelet binds, by its state, its arguments and its configuration."""
    kubelets: list[Program | None] = [*running(host, KUBELETS)]
    reserved = frozenset().union(
        *(reserved_by(host, kubelet_program) for kubelet_program in kubelets if kubelet_program is not None)
    )
    for kubelet_program in kubelets or [None]:
        path, text = kubelet_state(host, kubelet_program) or ("", "")
        if kubelet_program is not None and text is None:
            return Kubelet(f"of {kubelet_program.name}, which runs", reserved)
        if path:
            return Kubelet(f"/{host_text.printable(path, 300)}", reserved)
    return Kubelet("", reserved)


def reserved_by(host: ReadableFiles, kubelet: Program) -> "frozenset[int]":
    """Return the CPUs that a kubelet reserves for the system."""
    return cpulist.parse_or_empty(kubelet_setting(host, kubelet, "reserved-cpus", "reservedSystemCPUs"))


def kubelet_gives_whole_cores(host: ReadableFiles) -> bool:
    """Return whether a kubelet that runs has the option full-pcpus-only of its CPU manager."""
    return any(
        "full-pcpus-only=true" in (program.argument("cpu-manager-policy-options") or "").split(",")
        or re.search(r"^\s+full-pcpus-only:\s*[\"']?true\b", _configuration(host, program), re.MULTILINE)
        for program in running(host, KUBELETS)
    )


def kubelet_state(host: ReadableFiles, kubelet: "Program | None") -> "tuple[str, str | None] | None":
    """Return the path and the text of the state of a kubelet's CPU manager; the text is None where there is no such
    file. Return None where its policy is not static.

    Args:
        host: the host.
        kubelet: the kubelet that runs; None where none does.
    """
    root = kubelet.argument("root-dir") if kubelet is not None else None
    paths = [
        f"{folder}/{_KUBELET_STATE}"
        for folder in dict.fromkeys([*([root.strip("/")] if root else []), *_KUBELET_FOLDERS])
    ]
    for path in paths:
        text = host.of_root(path)
        if json_text(text or "", ("policyName",)) == "static":
            return path, text
    is_static = kubelet is not None and (
        kubelet_setting(host, kubelet, "cpu-manager-policy", "cpuManagerPolicy") == "static"
    )
    return (paths[0], None) if is_static else None


def json_text(text: str, keys: "tuple[str, ...]") -> str:
    """Return a text in a JSON object, by the keys that lead to it; empty where there is none."""
    try:
        value = host_text.parse_json(text)
    except ValueError:
        return ""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""
