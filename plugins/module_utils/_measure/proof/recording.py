# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a host from which its topology can be read again elsewhere, without what names the host or its owner.

/proc/cpuinfo has serial numbers on Arm (``Serial``) and s390 (``identification``): only fields that describe the
processor are kept.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, files, state_file
from ansible_collections.threadwise.smt.plugins.module_utils._know.machine import hypervisor
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache, seen_cpus
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import CPU_DIR, NODE_DIR
from ansible_collections.threadwise.smt.plugins.module_utils._set import facts

# A recording with more is of no use to people; 1024 CPUs have half of it.
MAX_CHARACTERS = 2_000_000
# Begins a text that stands for that of another file, whose path follows: on a large machine most files of a CPU have
# long lists that those of many CPUs have as well.
SAME_AS = "= "
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
# Fields of /proc/cpuinfo that say where a CPU is, and all that describe it.
PLACE = frozenset(
    (
        *("processor", "cpu number", "physical id", "siblings", "core id", "cpu cores", "book id", "drawer id"),
        *("address", "hart"),
    )
)
FIELDS = frozenset(
    (
        *PLACE,
        *cpuinfo.MODEL_FIELDS,
        *(field for field, _start, _name in facts.ARCHITECTURE_SIGNS),
        *("microcode", "cpu MHz", "flags", "clock", "revision", "timebase", "platform", "Features", "version"),
        *("facilities", "max thread id", "# processors", "features", "mmu"),
    )
)
# What a path of a recording looks like; no part of it leads upwards.
PATHS = (
    r"^(proc/(cpuinfo|sysinfo|self/mounts|sys/kernel/arch|device-tree/(hypervisor/)?[a-z]{1,20})"
    r"|sys/(devices/system/[a-z0-9/_]{1,200}|hypervisor/type|firmware/dmi/entries/0-0/raw)"
    r"|sys/class/dmi/id/(sys_vendor|product_name|bios_vendor|board_vendor)"
    r"|var/lib/threadwise-smt/topology\.json)$"
)
_IDENTIFICATION = re.compile(r"(identification = )\w+")


def read(fs: files.HostFs) -> "dict[str, str]":
    """Return the text of each file, by its path below the root; nothing of a host that is too large.

    A text that begins with :data:`SAME_AS` stands for that of another file.

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
    texts: dict[str, str] = {}
    first: dict[str, str] = {}
    size = 0
    for path, text in [*((path, fs.read(path)) for path in paths), *_of_the_machine(fs).items()]:
        if text:
            same = SAME_AS + first.setdefault(text, path)
            texts[path] = same if first[text] != path and len(same) < len(text) else text
            size += len(texts[path])
        if size > MAX_CHARACTERS:
            return {}
    return texts


def _of_the_machine(fs: files.HostFs) -> "dict[str, str]":
    """Return what says which kind of machine it is, and how its CPUs were when all were online."""
    texts = {"proc/cpuinfo": _processor_fields(fs), **hypervisor.signs(fs)}
    texts[facts.ARCHITECTURE_PATH] = facts.architecture(fs, cpuinfo.read_first(fs)) + "\n"
    covered = seen_cpus.of_lxcfs(fs)
    if covered:
        texts[seen_cpus.MOUNTS] = f"lxcfs {covered} fuse.lxcfs rw 0 0\n"
    known = facts.kernel_topology(fs, state_file.Kept(fs))
    if known.source == "saved" and known.complete:
        texts[cache.PATH] = cache.without_identity(fs, known)
    return texts


def _processor_fields(fs: files.HostFs) -> str:
    """Return the lines of /proc/cpuinfo that begin a CPU or are of ``FIELDS``. One that is the same as the first CPU's
    is left out, but for ``PLACE``; identification numbers are zeros.
    """
    kept: t.List[str] = []
    first: dict[str, str] = {}
    for line in (fs.read("proc/cpuinfo", files.LARGE) or "").split("\n"):
        name = line.partition(":")[0].strip()
        if name in FIELDS - PLACE:
            if first.get(name) == line:
                continue
            first.setdefault(name, line)
        if not line.strip() or name in FIELDS or re.match(r"processor [0-9]{1,6}|CPU[0-9]{1,6}\s*:\s*online", line):
            kept.append(_IDENTIFICATION.sub(r"\g<1>000000", line))
    return "\n".join(kept)
