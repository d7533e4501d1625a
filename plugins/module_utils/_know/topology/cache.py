# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The topology cache: cores and packages, saved while all CPUs were online.

The kernel forgets to which core a CPU belongs when the CPU goes offline, so call `save` before taking CPUs offline.
`load` returns the cached topology only if the machine's identity, its CPU model and its present CPUs are unchanged.
"""

import hashlib
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, cpulist, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology

PATH = "var/lib/threadwise-smt/topology.json"

_FILE = state_file.StateFile(PATH, "threadwise.smt/topology", mode=0o644)

# The first that exists and is not empty is used. Only root can read the DMI files, so a cache that root saved must be
# loaded by root.
_IDENTITY_FILES = (
    "sys/class/dmi/id/product_uuid",
    "sys/class/dmi/id/product_serial",
    "proc/device-tree/system-id",
    "etc/machine-id",
)


def save(fs: HostFs, topology: Topology) -> bool:
    """Save a topology, unless it is incomplete or already saved.

    Args:
        fs: the host's files.
        topology: it is saved only if all present CPUs are online and sysfs shows the core of each.

    Returns:
        True when the cache was written.

    Raises:
        OSError: the cache could not be written.
    """
    if topology.source != "sysfs" or not topology.complete or topology.offline:
        return False
    return _FILE.save(fs, _content(topology, machine_key(fs)))


def without_identity(fs: HostFs, topology: Topology) -> str:
    """Return the text of a cache whose key is of the CPU model alone, without the machine's identity: :func:`load`
    takes it in a recorded tree of this machine, which has none of the files of the identity.

    Args:
        fs: the host's files.
        topology: with the core of each present CPU.
    """
    return _FILE.text(_content(topology, _key("", fs)))


def _content(topology: Topology, key: str) -> "dict[str, object]":
    return {
        "key": key,
        "present": cpulist.render(topology.present),
        "cores": [cpulist.render(core) for core in topology.cores],
        "packages": [cpulist.render(package) for package in topology.packages],
    }


def load(fs: HostFs) -> "Topology | None":
    """Return the cached topology (present CPUs, cores and packages only), or None when there is none for this machine.

    A cache that is damaged, from another machine, or writable by users other than root is ignored; `fs.problems` says
    so.
    """
    try:
        return _FILE.load(fs, lambda document: _decoded(document, machine_key(fs)))
    except state_file.StateFileError as error:
        fs.note(f"The topology cache was ignored: {error}.")
        return None


def machine_key(fs: HostFs) -> str:
    """Return a SHA-256 (hexadecimal) of the machine's identity and CPU model. It does not reveal either of them."""
    for name in _IDENTITY_FILES:
        text = fs.read(name)
        if text:
            return _key(name + "=" + text.strip(" \t\r\n\0"), fs)
    return _key("", fs)


def _key(identity: str, fs: HostFs) -> str:
    fields = cpuinfo.read_first(fs)
    model = [f"{name}={fields[name]}" for name in cpuinfo.MODEL_FIELDS if name in fields]
    return hashlib.sha256("\n".join([identity, *model]).encode("utf-8")).hexdigest()


def _decoded(document: t.Any, key: str) -> Topology:
    if document["key"] != key:
        raise ValueError("it was saved on another machine, or the CPUs were replaced")
    present = cpulist.parse(document["present"])
    cores = _partition(document["cores"], present, "cores")
    packages = _partition(document["packages"], present, "packages")
    return Topology(present=present, cores=cores, packages=packages, source="saved", complete=True)


def _partition(texts: object, present: "tuple[int, ...]", name: str) -> "tuple[tuple[int, ...], ...]":
    if not isinstance(texts, list):
        raise ValueError(f"its {name} are not a list")
    groups = tuple(sorted(cpulist.parse(text) for text in texts))
    if (
        sum(map(len, groups)) != len(present)
        or {cpu for group in groups for cpu in group} != set(present)
        or () in groups
    ):
        raise ValueError(f"its {name} do not contain each present CPU exactly once")
    return groups
