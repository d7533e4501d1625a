# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a host from which its topology can be read again elsewhere, without what names the host or its owner.

/proc/cpuinfo has serial numbers on Arm (``Serial``) and s390 (``identification``): only fields that describe the
processor are kept.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import CPU_DIR, NODE_DIR

# A recording with more is of no use to people; 1024 CPUs have 200 kB.
MAX_CHARACTERS = 2_000_000
OF_ALL = ("online", "enabled", "offline", "present", "possible", "isolated", "smt/control", "smt/active")
OF_A_CPU = (
    "online",
    "configure",
    *(
        "topology/" + name
        for name in (
            "core_id",
            "physical_package_id",
            "die_id",
            "cluster_id",
            "book_id",
            "drawer_id",
            "core_cpus_list",
            "core_cpus",
            "thread_siblings_list",
            "thread_siblings",
            "package_cpus_list",
            "package_cpus",
            "core_siblings_list",
            "core_siblings",
            "die_cpus_list",
            "cluster_cpus_list",
        )
    ),
)
OF_ALL_NODES, OF_A_NODE = ("online", "has_cpu", "has_memory"), ("cpulist", "cpumap")
# Fields of /proc/cpuinfo that describe the processor and its place.
FIELDS = frozenset(
    (
        *("processor", "vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "cpu MHz"),
        *("physical id", "siblings", "core id", "cpu cores", "flags", "cpu", "clock", "revision", "timebase"),
        *("platform", "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features"),
        *("cpu number", "version", "machine", "facilities", "max thread id", "# processors", "features"),
        *("book id", "drawer id", "address", "isa", "hart", "uarch", "mmu"),
    )
)
# What a path of a recording looks like; no part of it leads upwards.
PATHS = r"^(proc/cpuinfo|sys/devices/system/[a-z0-9/_]{1,200})$"
_IDENTIFICATION = re.compile(r"(identification = )\w+")


def read(fs: files.HostFs) -> "dict[str, str]":
    """Return the text of each file, by its path below the root; nothing of a host that is too large.

    Args:
        fs: the host's files.
    """
    paths = [CPU_DIR + name for name in OF_ALL]
    folders = [name for name in fs.names(CPU_DIR) if re.fullmatch("cpu[0-9]{1,6}", name)]
    paths += [f"{CPU_DIR}{folder}/{name}" for folder in folders for name in OF_A_CPU]
    paths += [f"{CPU_DIR}vulnerabilities/{name}" for name in fs.names(CPU_DIR + "vulnerabilities")]
    nodes = [name for name in fs.names(NODE_DIR) if re.fullmatch("node[0-9]{1,6}", name)]
    paths += [NODE_DIR + name for name in OF_ALL_NODES]
    paths += [f"{NODE_DIR}{node}/{name}" for node in nodes for name in OF_A_NODE]
    found: dict[str, str] = {}
    size = 0
    for path, text in [*((path, fs.read(path)) for path in paths), ("proc/cpuinfo", _described(fs))]:
        if text:
            size += len(text)
            found[path] = text
        if size > MAX_CHARACTERS:
            return {}
    return found


def _described(fs: files.HostFs) -> str:
    """Return /proc/cpuinfo with the fields that describe processors."""
    kept: t.List[str] = []
    for line in (fs.read("proc/cpuinfo", files.LARGE) or "").split("\n"):
        name = line.partition(":")[0].strip()
        if not line.strip() or name in FIELDS or re.match(r"processor [0-9]{1,6}|CPU[0-9]{1,6}\s*:\s*online", line):
            kept.append(_IDENTIFICATION.sub(r"\g<1>000000", line))
    return "\n".join(kept)
