# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`Topology`: which CPUs a host has, which of them share a core, a package and a NUMA node, and what is online.

Where the kernel tells the same thing in several ways they do not always agree. The order of trust, and why:

1. `topology/core_cpus_list`, its older name `thread_siblings_list`, then the hex masks `core_cpus` and `thread_siblings`. They are the kernel's
   own idea of a core (Documentation/admin-guide/cputopology.rst). They are believed when they part the CPUs: each CPU is in its own list and in
   no other one.
2. The ids `physical_package_id`, `die_id` and `core_id`: only where no list is, because a core_id is unique at most within a die.
3. `physical id` and `core id` of /proc/cpuinfo, which are older than dies.

A CPU that is offline has no place: the kernel takes its folder away, or leaves a stale one (seen on s390 and on old kernels). Only a map that was saved
while all CPUs were online can tell, see cache.py. What nothing tells is left out, and `complete` is False.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, cpulist, files as host_files

CPU_DIR = "sys/devices/system/cpu/"
NODE_DIR = "sys/devices/system/node/"
BLANK = " \t\r\n\0"

_CPU_NAME = re.compile(r"cpu([0-9]{1,6})")
_NODE_NAME = re.compile(r"node([0-9]{1,6})")
_CORE_FILES = (
    ("core_cpus_list", cpulist.parse),
    ("thread_siblings_list", cpulist.parse),
    ("core_cpus", cpulist.parse_mask),
    ("thread_siblings", cpulist.parse_mask),
)
_PACKAGE_FILES = (
    ("package_cpus_list", cpulist.parse),
    ("core_siblings_list", cpulist.parse),
    ("package_cpus", cpulist.parse_mask),
    ("core_siblings", cpulist.parse_mask),
)


@dataclass(frozen=True)
class Topology:
    """A host's CPUs. CPU sets are sorted tuples of int.

    Attributes:
        present: CPUs that are there, online or not.
        possible: CPU numbers the kernel has room for; beyond `present` they are slots for hot-plug, not missing CPUs.
        online: CPUs that run.
        isolated: CPUs kept from the scheduler's balancing (isolcpus=, cpuset partitions).
        cores: one tuple a core, sorted by first CPU; offline siblings are in it when their place is known.
        packages: one tuple a package (socket), sorted by first CPU, of CPUs whose core is known.
        nodes: NUMA node (int) -> its CPUs as the kernel tells them now; empty when it tells no node.
        source: where the cores come from: ``sysfs``, ``saved`` (the saved map was needed), ``cpuinfo`` or ``unknown``.
        complete: True when the core of every present CPU is known.
    """

    present: tuple = ()
    possible: tuple = ()
    online: tuple = ()
    isolated: tuple = ()
    cores: tuple = ()
    packages: tuple = ()
    nodes: dict = field(default_factory=dict)
    source: str = "unknown"
    complete: bool = False

    @property
    def offline(self):
        """CPUs that are present and do not run (tuple of int)."""
        online = set(self.online)
        return tuple(cpu for cpu in self.present if cpu not in online)

    @property
    def primaries(self):
        """The first CPU of each core (tuple of int)."""
        return tuple(core[0] for core in self.cores)

    @property
    def secondaries(self):
        """The CPUs that share a core with a primary (tuple of int)."""
        return tuple(sorted(cpu for core in self.cores for cpu in core[1:]))

    @property
    def threads_per_core(self):
        """``{'min', 'max', 'online_max'}``: threads a core has, and the most that are online in one; None each when no core is known."""
        if not self.cores:
            return {"min": None, "max": None, "online_max": None}
        online = set(self.online)
        sizes = [len(core) for core in self.cores]
        return {"min": min(sizes), "max": max(sizes), "online_max": max(sum(cpu in online for cpu in core) for core in self.cores)}

    @property
    def numbering(self):
        """How siblings are numbered, among the cores that have some.

        ``adjacent``: side by side (0,1)(2,3); ``split``: all first threads before all second threads (0,2)(1,3); ``mixed``: neither; ``none``: no
        core is known to have siblings.
        """
        shared = [core for core in self.cores if len(core) > 1]
        if not shared:
            return "none"
        if all(core[-1] - core[0] == len(core) - 1 for core in shared):
            return "adjacent"
        ranks = [[core[rank] for core in shared if len(core) > rank] for rank in range(max(map(len, shared)))]
        if all(max(lower) < min(upper) for lower, upper in zip(ranks, ranks[1:])):
            return "split"
        return "mixed"


def read_topology(fs, saved=None):
    """Read a host's topology.

    Args:
        fs: `host_files.HostFs`; what could not be read or believed is noted in its `problems`.
        saved: Topology saved while all CPUs were online, already held against the machine (`cache.load`), or None.

    Returns:
        Topology. Nothing is raised for what the files hold.
    """
    folders = _cpu_folders(fs)
    processors = _Processors(fs)
    present, online = _present_and_online(fs, folders, processors)
    topology = Topology(
        present=present,
        possible=_cpu_file(fs, "possible") or present,
        online=online,
        isolated=_cpu_file(fs, "isolated") or (),
        nodes=_nodes(fs, set(present)),
    )
    topology = _with_places(topology, *_live_places(fs, [cpu for cpu in online if cpu in folders], processors, online))
    if saved is not None and not topology.complete:
        topology = _with_saved(fs, topology, saved)
    return topology


def _with_places(topology, cores, packages, source):
    known = {cpu for core in cores for cpu in core}
    return replace(
        topology,
        cores=_sorted_sets(cores),
        packages=_sorted_sets(packages),
        source=source if cores else "unknown",
        complete=bool(cores) and known.issuperset(topology.present),
    )


def _sorted_sets(groups):
    return tuple(sorted(tuple(sorted(group)) for group in groups if group))


# ---- which CPUs there are -------------------------------------------------------------------------------------------------------------------------


class _Processors:
    """/proc/cpuinfo, read once and only when it is needed: on a large host the kernel takes its time over it."""

    def __init__(self, fs):
        self._fs = fs
        self._blocks = None

    @property
    def blocks(self):
        if self._blocks is None:
            text = self._fs.read("proc/cpuinfo", host_files.LARGE)
            self._blocks = cpuinfo.parse(text)[1] if text else {}
        return self._blocks


def _cpu_folders(fs):
    return _numbered(fs, CPU_DIR, _CPU_NAME)


def _numbered(fs, directory, pattern):
    matches = (pattern.fullmatch(name) for name in fs.names(directory.rstrip("/")))
    numbers = (int(match.group(1)) for match in matches if match is not None)
    return {number for number in numbers if number <= cpulist.MAX_CPU}


def _cpu_file(fs, name):
    return _read_set(fs, CPU_DIR + name, cpulist.parse)


def _read_set(fs, path, parse):
    """The CPU set in a file (tuple), or None when it is missing, unreadable, or no CPU set, which is noted."""
    text = fs.read(path)
    if text is None:
        return None
    try:
        return parse(text)
    except cpulist.CpuListError as error:
        fs.note(f"{fs.path(path)} was left out: {error}.")
        return None


def _present_and_online(fs, folders, processors):
    present = _cpu_file(fs, "present")
    online = _cpu_file(fs, "online")
    if not online:
        online = _online_by_folder(fs, folders, processors)
    if not present:
        present = tuple(sorted(folders.union(online)))
    strangers = sorted(set(online).difference(present))
    if strangers:
        fs.note(f"CPUs {cpulist.render(strangers)} are online but not present by {fs.path(CPU_DIR + 'present')}: they were counted as present.")
        present = tuple(sorted(set(present).union(online)))
    return present, online


def _online_by_folder(fs, folders, processors):
    """Without cpu/online (before Linux 2.6.28, or cut from a recording): cpuN/online where any CPU has it, else /proc/cpuinfo, else the folders."""
    flags = {cpu: (fs.read(f"{CPU_DIR}cpu{cpu}/online") or "").strip(BLANK) for cpu in folders}
    if "0" in flags.values() or "1" in flags.values():
        return tuple(sorted(cpu for cpu, flag in flags.items() if flag != "0"))
    listed = set(processors.blocks)
    if listed and (not folders or listed <= folders):
        return tuple(sorted(listed))
    return tuple(sorted(folders))


def _nodes(fs, present):
    """NUMA nodes, a node without CPUs (memory alone) included. On s390 a node lists hot-plug slots too: only present CPUs count."""
    nodes = {}
    for node in sorted(_numbered(fs, NODE_DIR, _NODE_NAME)):
        cpus = _read_set(fs, f"{NODE_DIR}node{node}/cpulist", cpulist.parse)
        if cpus is None:
            cpus = _read_set(fs, f"{NODE_DIR}node{node}/cpumap", cpulist.parse_mask)
        if cpus is None:
            # Recordings often keep only the links from a node to its CPUs.
            cpus = tuple(sorted(_numbered(fs, f"{NODE_DIR}node{node}", _CPU_NAME)))
        nodes[node] = tuple(cpu for cpu in cpus if cpu in present)
    return nodes


# ---- which CPUs belong together -------------------------------------------------------------------------------------------------------------------


def _live_places(fs, cpus, processors, online):
    """(cores, packages, source) of the online CPUs, from the first source that can be believed; cores is empty when none can."""
    cores = _parting(fs, cpus, _CORE_FILES)
    if cores is None:
        cores = _cores_by_ids(fs, cpus, processors)
    if cores:
        return cores, _packages(fs, cores, processors), "sysfs"
    cores, packages = _places_by_cpuinfo(fs, online, processors)
    return cores, packages, "cpuinfo"


def _parting(fs, cpus, files):
    """Groups that part the CPUs, by the first of the files that exists; None when there is none or it cannot be believed.

    CPUs without the file are in no group. Other CPUs in a group's file that are not in `cpus` (they are offline) are left out.
    """
    wanted = set(cpus)
    for name, parse in files:
        texts = {}
        for cpu in cpus:
            text = fs.read(f"{CPU_DIR}cpu{cpu}/topology/{name}")
            if text is not None:
                texts[cpu] = text
        if not texts:
            continue
        groups = _groups(fs, texts, parse, wanted, name)
        if groups is not None:
            return groups
    return None


def _groups(fs, texts, parse, wanted, name):
    groups = []
    group_of = {}
    for cpu, text in texts.items():
        try:
            known = group_of.get(cpu)
            if known is not None and texts[known[0]] == text:
                continue
            group = tuple(sorted(wanted.intersection(parse(text))))
        except cpulist.CpuListError as error:
            fs.note(f"topology/{name} of CPU {cpu} was left out: {error}.")
            return None
        if cpu not in group or (known is not None and known != group) or (known is None and any(other in group_of for other in group)):
            fs.note(f"topology/{name} contradicts itself at CPU {cpu} ({cpulist.quoted(text.strip())}): it was left out.")
            return None
        for other in group:
            group_of[other] = group
        if known is None:
            groups.append(group)
    return groups


def _packages(fs, cores, processors):
    """Groups of CPUs by package: by id where each core has one, else by the kernel's lists and masks (s390 and POWER give the id -1), else cpuinfo.

    A core lies in one package, so its first CPU speaks for all of it.
    """
    names = ("drawer_id", "book_id", "physical_package_id") if cores and _has_books(fs, cores[0][0]) else ("physical_package_id",)
    ids = [tuple(_id(fs, core[0], name) for name in names) for core in cores]
    # On s390 a package id is unique only within its book, a book id only within its drawer; before Linux 4.8 there are no drawers.
    if all(key[-1] is not None for key in ids):
        return _grouped({cpu: key for core, key in zip(cores, ids) for cpu in core})
    cpus = [cpu for core in cores for cpu in core]
    groups = _parting(fs, cpus, _PACKAGE_FILES)
    if groups is not None:
        return groups
    keys = {cpu: cpuinfo.number(processors.blocks.get(cpu, {}), "physical id") for cpu in cpus}
    return [] if None in keys.values() else _grouped(keys)


def _has_books(fs, cpu):
    return fs.status(f"{CPU_DIR}cpu{cpu}/topology/book_id") is not None


def _id(fs, cpu, name):
    text = fs.read(f"{CPU_DIR}cpu{cpu}/topology/{name}")
    text = "" if text is None else text.strip(BLANK)
    # -1, and on some kernels 65535 or 4294967295, say that the firmware told nothing: only plain digits are an id, and equal ids compare as such.
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 10 else None


def _grouped(keys):
    groups = {}
    for cpu, key in keys.items():
        groups.setdefault(key, []).append(cpu)
    return list(groups.values())


def _cores_by_ids(fs, cpus, processors):
    packages = _packages(fs, [(cpu,) for cpu in cpus], processors)
    package_of = {cpu: index for index, package in enumerate(packages) for cpu in package}
    core_ids = {cpu: _id(fs, cpu, "core_id") for cpu in cpus}
    placed = [cpu for cpu in cpus if cpu in package_of and core_ids[cpu] is not None]
    keys = {cpu: (package_of[cpu], _id(fs, cpu, "die_id"), core_ids[cpu]) for cpu in placed}
    return _held_against_cpuinfo(_grouped(keys), cpus, processors)


def _places_by_cpuinfo(fs, online, processors):
    blocks = {cpu: processors.blocks[cpu] for cpu in online if cpu in processors.blocks}
    keys = {}
    for cpu, fields in blocks.items():
        package, core = cpuinfo.number(fields, "physical id"), cpuinfo.number(fields, "core id")
        if package is not None and core is not None:
            # On s390 the numbers restart in each book and drawer; die_id is the one thing that recordings without other ids still have.
            above = tuple(cpuinfo.number(fields, name) for name in ("drawer id", "book id"))
            keys[cpu] = ((*above, package), _id(fs, cpu, "die_id"), core)
    cores = _held_against_cpuinfo(_grouped(keys), online, processors)
    return cores, _grouped({cpu: keys[cpu][0] for core in cores for cpu in core})


def _held_against_cpuinfo(cores, cpus, processors):
    """Cores found by ids, corrected by the counts of /proc/cpuinfo where these speak of the same CPUs.

    `siblings` is the number of threads and `cpu cores` the number of cores in a package (arch/x86/kernel/cpu/proc.c): when both are equal there is
    no SMT, whatever ids may collide (core_id restarts in each die of an AMD Magny-Cours).
    """
    blocks = processors.blocks if cores else {}
    if set(blocks) != set(cpus):
        return cores
    believed = []
    for core in cores:
        siblings, count = (cpuinfo.number(blocks[core[0]], name) for name in ("siblings", "cpu cores"))
        if siblings is not None and siblings == count and len(core) > 1:
            believed.extend([cpu] for cpu in core)
        else:
            believed.append(core)
    return believed


# ---- what the saved map adds ----------------------------------------------------------------------------------------------------------------------


def _with_saved(fs, topology, saved):
    """The topology with cores and packages of the saved map, unless what is online now contradicts it."""
    online = set(topology.online)
    if saved.present != topology.present:
        fs.note(f"The saved sibling map was left out: it is of CPUs {cpulist.render(saved.present)}, present are {cpulist.render(topology.present)}.")
        return topology
    cut = {core for core in (tuple(cpu for cpu in core if cpu in online) for core in saved.cores) if core}
    wrong = [core for core in topology.cores if core not in cut]
    if wrong:
        fs.note(f"The saved sibling map was left out: the kernel now says that CPUs {cpulist.render(wrong[0])} are one core, the map does not.")
        return topology
    return _with_places(topology, saved.cores, saved.packages, "saved")
