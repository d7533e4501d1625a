# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The sibling map kept from a moment when all CPUs were online.

The kernel forgets where a CPU belongs when it goes offline, so whoever takes CPUs offline calls `save` first. The map holds for one machine
as it then was: `load` gives it back only when the machine's identity, its CPU model and its present CPUs are still the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import Topology

PATH = "var/lib/threadwise-smt/topology.json"
SCHEMA = "threadwise.smt/topology"
SCHEMA_VERSION = 1

# The first that is there and tells something. The DMI files are readable by root alone, so a map saved by root is looked up by root.
_IDENTITY_FILES = ("sys/class/dmi/id/product_uuid", "sys/class/dmi/id/product_serial", "proc/device-tree/system-id", "etc/machine-id")
_MODEL_FIELDS = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU implementer", "CPU part", "cpu", "machine")
_HEAD = 4096


def save(fs, topology):
    """Write the map of a topology, when it is worth keeping and not already kept.

    Args:
        fs: `files.HostFs`.
        topology: Topology; it is written only when the kernel told the place of each present CPU and all are online.

    Returns:
        True when a map was written.

    Raises:
        OSError: when the map cannot be written.
    """
    if topology.source != "sysfs" or not topology.complete or topology.offline:
        return False
    text = (
        json.dumps(
            {
                "schema": SCHEMA,
                "schema_version": SCHEMA_VERSION,
                "key": machine_key(fs),
                "present": cpulist.render(topology.present),
                "cores": [cpulist.render(core) for core in topology.cores],
                "packages": [cpulist.render(package) for package in topology.packages],
            },
            indent=1,
        )
        + "\n"
    )
    if fs.read(PATH) == text and is_trusted(fs, PATH):
        return False
    fs.write(PATH, text)
    return True


def load(fs):
    """The saved map as a Topology (present, cores and packages only), or None when there is none for this machine.

    A map that is damaged, of another machine, or that others than root could have written is not used; `fs.problems` says so.
    """
    text = fs.read(PATH)
    if text is None or not is_trusted(fs, PATH):
        return None
    try:
        return _decoded(text, machine_key(fs))
    except KeyError as error:
        fs.note(f"The saved sibling map {fs.path(PATH)} was left out: it lacks {error}.")
    except (ValueError, TypeError, RecursionError) as error:
        fs.note(f"The saved sibling map {fs.path(PATH)} was left out: {error}.")
    return None


def machine_key(fs):
    """What tells this machine from another (str, a SHA-256 in hexadecimal): its identity and its CPU model. No part of it can be read back."""
    identity = next((name + "=" + text.strip(" \t\r\n\0") for name, text in ((name, fs.read(name)) for name in _IDENTITY_FILES) if text), "")
    fields = cpuinfo.first(fs.head("proc/cpuinfo", _HEAD) or "")
    model = [f"{name}={fields[name]}" for name in _MODEL_FIELDS if name in fields]
    return hashlib.sha256("\n".join([identity, *model]).encode("utf-8")).hexdigest()


def is_trusted(fs, path):
    """Whether only root could have written a file and its directory (bool); `fs.problems` says why not. A recorded tree is what its keeper made it.

    Args:
        path: of a file that this collection keeps on the host, relative to the sysroot.
    """
    if not fs.is_host:
        return True
    for place in (path, os.path.dirname(path)):
        status = fs.status(place)
        if status is None:
            return False
        if stat.S_ISLNK(status.st_mode) or status.st_uid != 0 or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            fs.note(
                f"{fs.path(place)} is not owned by root, or others may write it: what was saved there was left out. Remove it, or set owner and mode right."
            )
            return False
    return True


def _decoded(text, key):
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA or data.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"it is no {SCHEMA} of version {SCHEMA_VERSION}")
    if data["key"] != key:
        raise ValueError("it was saved on another machine, or the CPUs were exchanged")
    present = cpulist.parse(data["present"])
    cores = _partition(data["cores"], present, "cores")
    packages = _partition(data["packages"], present, "packages")
    return Topology(present=present, cores=cores, packages=packages, source="saved", complete=True)


def _partition(texts, present, what):
    if not isinstance(texts, list):
        raise ValueError(f"its {what} are no list")
    groups = tuple(sorted(cpulist.parse(text) for text in texts))
    if sum(map(len, groups)) != len(present) or {cpu for group in groups for cpu in group} != set(present) or () in groups:
        raise ValueError(f"its {what} do not hold each present CPU once")
    return groups
