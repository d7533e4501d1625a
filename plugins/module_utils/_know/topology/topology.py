# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`Topology`: a host's CPUs, which of them share a core, a package and a NUMA node, and which are online.

The kernel reports the same facts in several files, which do not always agree. In order of preference:

1. `topology/core_cpus_list`, its older name `thread_siblings_list`, then the hexadecimal masks `core_cpus` and
`thread_siblings`: the kernel's own
   definition of a core (Documentation/admin-guide/cputopology.rst). They are used only if they partition the CPUs: each
   CPU is in its own list and in no other one.
2. The ids `physical_package_id`, `die_id` and `core_id`: used only if there is no list, because a core_id is unique at
most within a die.
3. `physical id` and `core id` of /proc/cpuinfo, which are older than dies.

The core of an offline CPU is unknown: the kernel removes the CPU's directory, or leaves a stale one (seen on s390 and
on old kernels). Only a topology cache that was saved while all CPUs were online has it, see cache.py. CPUs whose core
is unknown are omitted, and `complete` is False.
"""

import functools
import itertools
import re
import types
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import seen_cpus

CPU_DIR = "sys/devices/system/cpu/"
NODE_DIR = "sys/devices/system/node/"
BLANK = " \t\r\n\0"

_CPU_NAME = re.compile(r"cpu([0-9]{1,6})")
_NODE_NAME = re.compile(r"node([0-9]{1,6})")
_ID = re.compile(r"[0-9]{1,10}")
_Groups = t.List[t.Tuple[int, ...]]
_Parse = t.Callable[[str], t.Tuple[int, ...]]
_Files = t.Tuple[t.Tuple[str, _Parse], ...]
# The blocks of /proc/cpuinfo.
_Processors = t.Callable[[], t.Dict[int, t.Dict[str, str]]]
_CORE_FILES: _Files = (
    ("core_cpus_list", cpulist.parse),
    ("thread_siblings_list", cpulist.parse),
    ("core_cpus", cpulist.parse_mask),
    ("thread_siblings", cpulist.parse_mask),
)
_PACKAGE_FILES: _Files = (
    ("package_cpus_list", cpulist.parse),
    ("core_siblings_list", cpulist.parse),
    ("package_cpus", cpulist.parse_mask),
    ("core_siblings", cpulist.parse_mask),
)


class Topology(t.NamedTuple):
    """A host's CPUs. Sets of CPUs are sorted tuples.

    Attributes:
        present: CPUs that exist and that this host can use, online or not.
        possible: CPU numbers that the kernel reserves; those not in `present` are slots for hot-plug, not missing CPUs.
        online: CPUs that are online.
        isolated: CPUs excluded from the scheduler's load balancing (isolcpus=, cpuset partitions).
        cores: one tuple per core, sorted by first CPU; it contains offline siblings if their core is known.
        packages: one tuple per package (socket), sorted by first CPU, of the CPUs whose core is known.
        nodes: NUMA node -> its CPUs; empty when the kernel shows no nodes.
        source: where the cores come from: ``sysfs``, ``saved`` (the topology cache was needed), ``cpuinfo`` or
            ``unknown``.
        complete: True when the core of every present CPU is known.
        unavailable: CPUs that the kernel lists as present and that nobody on the host can bring online; they are in
            none of the others but `possible`.
    """

    present: "tuple[int, ...]" = ()
    possible: "tuple[int, ...]" = ()
    online: "tuple[int, ...]" = ()
    isolated: "tuple[int, ...]" = ()
    cores: "tuple[tuple[int, ...], ...]" = ()
    packages: "tuple[tuple[int, ...], ...]" = ()
    nodes: "t.Mapping[int, tuple[int, ...]]" = types.MappingProxyType({})
    source: str = "unknown"
    complete: bool = False
    unavailable: "tuple[int, ...]" = ()

    @property
    def offline(self) -> "tuple[int, ...]":
        """CPUs that are present and not online."""
        return tuple(sorted(set(self.present).difference(self.online)))

    @property
    def primaries(self) -> "tuple[int, ...]":
        """The first CPU of each core."""
        return tuple(map(min, self.cores))

    @property
    def secondaries(self) -> "tuple[int, ...]":
        """The CPUs that share a core with a primary."""
        return tuple(sorted(cpu for core in self.cores for cpu in core[1:]))

    @property
    def threads_per_core(self) -> "dict[str, int | None]":
        """The ``min`` and ``max`` number of threads of a core, and the most that are online in one (``online_max``);
        all None when no core is known.
        """
        if not self.cores:
            return {"min": None, "max": None, "online_max": None}
        sizes, online = list(map(len, self.cores)), set(self.online)
        return {
            "min": min(sizes),
            "max": max(sizes),
            "online_max": max(map(len, map(online.intersection, self.cores))),
        }

    @property
    def numbering(self) -> str:
        """The numbering scheme of siblings, from the cores that have siblings.

        ``adjacent``: next to each other (0,1)(2,3); ``split``: all first threads before all second threads (0,2)(1,3);
        ``mixed``: neither; ``none``: no core is known to have siblings.
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


def read_topology(fs: host_files.HostFs, saved: "Topology | None" = None) -> Topology:
    """Read a host's topology.

    Damaged or contradictory files raise nothing: they are ignored and noted in `fs.problems`.

    Args:
        fs: the host's files.
        saved: topology that was saved while all CPUs were online, already checked to be of this machine (`cache.load`).
    """
    # It is slow on large hosts: read once, where it is needed.
    processors = functools.lru_cache(maxsize=None)(lambda: cpuinfo.read(fs).blocks)
    folders = _numbered(fs, CPU_DIR, _CPU_NAME)
    listed, online = _present_and_online(fs, folders, processors)
    offline = set(listed).difference(online)
    gone = seen_cpus.unavailable(fs, offline) if offline else frozenset()
    present = tuple(sorted(set(listed).difference(gone)))
    topology = Topology(
        present=present,
        unavailable=tuple(sorted(gone)),
        possible=_read_set(fs, CPU_DIR + "possible") or present,
        online=online,
        isolated=_read_set(fs, CPU_DIR + "isolated") or (),
        nodes=_nodes(fs, set(present)),
    )
    cpus = list(filter(folders.__contains__, online))
    cores, source = _partition(fs, cpus, _CORE_FILES), "sysfs"
    if cores is None:
        cores = _cores_by_ids(fs, cpus, processors)
    if cores:
        packages = _packages(fs, cores, processors)
    else:
        (cores, packages), source = _groups_by_cpuinfo(fs, online, processors), "cpuinfo"
    topology = _with_groups(topology, cores, packages, source)
    if saved is not None and not topology.complete:
        topology = _with_saved(fs, topology, saved)
    return topology


def _with_groups(topology: Topology, cores: _Groups, packages: _Groups, source: str) -> Topology:
    return topology._replace(
        cores=tuple(sorted(map(tuple, map(sorted, cores)))),
        packages=tuple(sorted(map(tuple, map(sorted, packages)))),
        source=source if cores else "unknown",
        complete=bool(cores) and set(itertools.chain(*cores)).issuperset(topology.present),
    )


# ---- present and online CPUs -----------------------------------------------------------------------------------------


def _numbered(fs: host_files.HostFs, directory: str, pattern: "re.Pattern[str]") -> "set[int]":
    numbers = set()
    for match in filter(None, map(pattern.fullmatch, fs.names(directory.rstrip("/")))):
        if int(match.group(1)) <= cpulist.MAX_CPU:
            numbers.add(int(match.group(1)))
    return numbers


def _read_set(fs: host_files.HostFs, path: str, parse: _Parse = cpulist.parse) -> "tuple[int, ...] | None":
    """Return the CPUs in a file, or None when it is missing, unreadable or invalid; an invalid file is noted."""
    text = fs.read(path)
    if text is None:
        return None
    try:
        return parse(text)
    except cpulist.CpuListError as error:
        fs.note(f"{fs.path(path)} was ignored: {error}.")
        return None


def _present_and_online(
    fs: host_files.HostFs, folders: "set[int]", processors: _Processors
) -> "tuple[tuple[int, ...], tuple[int, ...]]":
    present = _read_set(fs, CPU_DIR + "present")
    online = _read_set(fs, CPU_DIR + "online")
    if not online:
        online = _online_by_folder(fs, folders, processors)
    if not present:
        present = tuple(sorted(folders.union(online)))
    unlisted = set(online).difference(present)
    if unlisted:
        fs.note(
            f"CPUs {cpulist.render(unlisted)} are online but not listed in {fs.path(CPU_DIR + 'present')}: they are"
            " treated as present."
        )
        present = tuple(sorted(unlisted.union(present)))
    return present, online


def _online_by_folder(fs: host_files.HostFs, folders: "set[int]", processors: _Processors) -> "tuple[int, ...]":
    """Return the online CPUs without cpu/online (before Linux 2.6.28, or missing in a recorded tree).

    They come from cpuN/online if any CPU has it, else from /proc/cpuinfo, else from the directories cpuN.
    """
    flags = {cpu: (fs.read(f"{CPU_DIR}cpu{cpu}/online") or "").strip(BLANK) for cpu in folders}
    if "0" in flags.values() or "1" in flags.values():
        return tuple(sorted(cpu for cpu, flag in flags.items() if flag != "0"))
    listed = set(processors())
    if listed and (not folders or listed <= folders):
        return tuple(sorted(listed))
    return tuple(sorted(folders))


def read_memory_nodes(fs: host_files.HostFs) -> "tuple[int, ...]":
    """Return the NUMA nodes that have memory (since Linux 2.6.24); none where the kernel shows no nodes."""
    return _read_set(fs, NODE_DIR + "has_memory") or ()


def _nodes(fs: host_files.HostFs, present: "set[int]") -> "dict[int, tuple[int, ...]]":
    """Return the NUMA nodes, including those without CPUs (memory only).

    On s390 a node also lists hot-plug slots: only present CPUs count.
    """
    nodes = {}
    for node in sorted(_numbered(fs, NODE_DIR, _NODE_NAME)):
        cpus = _read_set(fs, f"{NODE_DIR}node{node}/cpulist")
        if cpus is None:
            cpus = _read_set(fs, f"{NODE_DIR}node{node}/cpumap", cpulist.parse_mask)
        if cpus is None:
            # Recorded trees often contain only the links from a node to its CPUs.
            cpus = tuple(sorted(_numbered(fs, f"{NODE_DIR}node{node}", _CPU_NAME)))
        nodes[node] = tuple(filter(present.__contains__, cpus))
    return nodes


# ---- cores and packages ----------------------------------------------------------------------------------------------


def _partition(fs: host_files.HostFs, cpus: "list[int]", files: _Files) -> "_Groups | None":
    """Return groups that partition the CPUs, from the first of the files that exists and is consistent,
    or None when there is none.

    CPUs without the file are in no group. CPUs in a group's file that are not in `cpus` (they are offline) are ignored.

    Args:
        fs: the host's files.
        cpus: the CPUs to partition.
        files: (name in the directory ``topology``, parser) of each file, in order of preference.
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


def _groups(
    fs: host_files.HostFs, texts: "dict[int, str]", parse: _Parse, wanted: "set[int]", name: str
) -> "_Groups | None":
    groups = []
    group_of: dict[int, tuple[int, ...]] = {}
    for cpu, text in texts.items():
        try:
            known = group_of.get(cpu)
            if known is not None and texts[known[0]] == text:
                continue
            group = tuple(sorted(wanted.intersection(parse(text))))
        except cpulist.CpuListError as error:
            fs.note(f"topology/{name} of CPU {cpu} was ignored: {error}.")
            return None
        if (
            cpu not in group
            or (known is not None and known != group)
            or (known is None and not group_of.keys().isdisjoint(group))
        ):
            fs.note(
                f"topology/{name} contradicts itself at CPU {cpu} ({cpulist.quoted(text.strip())}): it was ignored."
            )
            return None
        group_of.update(dict.fromkeys(group, group))
        if known is None:
            groups.append(group)
    return groups


def _packages(fs: host_files.HostFs, cores: _Groups, processors: _Processors) -> _Groups:
    """Return groups of CPUs by package, from the first source that covers all cores.

    The sources are the ids in sysfs, the lists and masks in sysfs (s390 and POWER show the id -1), and /proc/cpuinfo.
    All CPUs of a core are in the same package, so its first CPU is enough.
    """
    # On s390 a package id is unique only within its book, a book id only within its drawer; before Linux 4.8 there are
    # no drawers.
    names: tuple[str, ...] = ("physical_package_id",)
    if cores and fs.status(f"{CPU_DIR}cpu{cores[0][0]}/topology/book_id") is not None:
        names = ("drawer_id", "book_id", *names)
    keys: dict[int, t.Any] = {}
    for core in cores:
        keys.update(dict.fromkeys(core, tuple([_id(fs, core[0], name) for name in names])))
    if all(key[-1] is not None for key in keys.values()):
        return _grouped(keys)
    groups = _partition(fs, list(keys), _PACKAGE_FILES)
    if groups is not None:
        return groups
    keys = {cpu: cpuinfo.number(processors().get(cpu, {}), "physical id") for cpu in keys}
    return [] if None in keys.values() else _grouped(keys)


def _id(fs: host_files.HostFs, cpu: int, name: str) -> "int | None":
    text = fs.read(f"{CPU_DIR}cpu{cpu}/topology/{name}")
    text = "" if text is None else text.strip(BLANK)
    # Firmware without ids shows as -1, on some kernels as 65535 or 4294967295. Only digits are an id; the large numbers
    # simply compare as equal.
    return int(text) if _ID.fullmatch(text) else None


def _grouped(keys: "t.Mapping[int, t.Hashable]") -> _Groups:
    groups: dict[t.Hashable, list[int]] = {}
    for cpu, key in keys.items():
        groups.setdefault(key, []).append(cpu)
    return list(map(tuple, groups.values()))


def _cores_by_ids(fs: host_files.HostFs, cpus: "list[int]", processors: _Processors) -> _Groups:
    packages = _packages(fs, [(cpu,) for cpu in cpus], processors)
    package_of = {cpu: index for index, package in enumerate(packages) for cpu in package}
    core_ids = {cpu: _id(fs, cpu, "core_id") for cpu in cpus}
    located = [cpu for cpu in cpus if cpu in package_of and core_ids[cpu] is not None]
    keys = {cpu: (package_of[cpu], _id(fs, cpu, "die_id"), core_ids[cpu]) for cpu in located}
    return _corrected_by_cpuinfo(_grouped(keys), cpus, processors)


def _groups_by_cpuinfo(
    fs: host_files.HostFs, online: "tuple[int, ...]", processors: _Processors
) -> "tuple[_Groups, _Groups]":
    """Return (cores, packages) from /proc/cpuinfo."""
    keys = {}
    for cpu in filter(processors().__contains__, online):
        fields = processors()[cpu]
        package, core_id = cpuinfo.number(fields, "physical id"), cpuinfo.number(fields, "core id")
        if package is not None and core_id is not None:
            # On s390 the numbers restart in each book and drawer; die_id is the only id that some recorded trees have.
            above = tuple(cpuinfo.number(fields, name) for name in ("drawer id", "book id"))
            keys[cpu] = ((*above, package), _id(fs, cpu, "die_id"), core_id)
    cores = _corrected_by_cpuinfo(_grouped(keys), online, processors)
    return cores, _grouped({cpu: keys[cpu][0] for core in cores for cpu in core})


def _corrected_by_cpuinfo(cores: _Groups, cpus: "t.Iterable[int]", processors: _Processors) -> _Groups:
    """Return cores that were found by ids, corrected by the counts in /proc/cpuinfo if it lists the same CPUs.

    `siblings` is the number of threads and `cpu cores` the number of cores in a package (arch/x86/kernel/cpu/proc.c):
    if both are equal there is no SMT, even if ids collide (core_id restarts in each die of an AMD Magny-Cours).
    """
    blocks = processors() if cores else {}
    if set(blocks) != set(cpus):
        return cores
    corrected: _Groups = []
    for core in cores:
        siblings, count = (cpuinfo.number(blocks[core[0]], name) for name in ("siblings", "cpu cores"))
        if siblings is not None and siblings == count and len(core) > 1:
            corrected.extend((cpu,) for cpu in core)
        else:
            corrected.append(core)
    return corrected


# ---- topology cache --------------------------------------------------------------------------------------------------


def _with_saved(fs: host_files.HostFs, topology: Topology, saved: Topology) -> Topology:
    """Return the topology with cores and packages of the cache, unless the CPUs now online contradict it."""
    online = set(topology.online)
    if saved.present != topology.present:
        fs.note(
            f"The topology cache was ignored: it describes CPUs {cpulist.render(saved.present)}, but CPUs"
            f" {cpulist.render(topology.present)} are present."
        )
        return topology
    online_cores = {core for core in (tuple(cpu for cpu in core if cpu in online) for core in saved.cores) if core}
    wrong = [core for core in topology.cores if core not in online_cores]
    if wrong:
        fs.note(
            f"The topology cache was ignored: the kernel reports CPUs {cpulist.render(wrong[0])} as one core, but the"
            " cache does not."
        )
        return topology
    return _with_groups(topology, list(saved.cores), list(saved.packages), "saved")
