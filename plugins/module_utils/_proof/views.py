# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs share a core, as others read it on the same host: the kernel's own files, each by itself,
and the tools that people believe.

Sources: lscpu(1) of util-linux for ``-p``, lstopo(1) of hwloc for its XML, ppc64_cpu(8) of powerpc-utils for
``--info``, proc(5) for /proc/stat.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, cpulist, files, processes
from ansible_collections.threadwise.smt.plugins.module_utils._topology.topology import CPU_DIR, Topology

# What a tool may print: 8192 CPUs with their caches in XML.
MAX_OUTPUT = 16 << 20
# Differences that are written out.
MAX_NAMED = 5
SECONDS = 30.0

_OBJECT = re.compile(r"<object\s+type=\"(Core|PU)\"([^>]{0,100000})>")
_CPUSET = re.compile(r"\bcpuset=\"([0-9a-fx,]{1,20000})\"")
_CORE_LINE = re.compile(r"\s*Core\s+[0-9]{1,6}:((?:\s+[0-9]{1,6}\*?)+)\s*")

Run = t.Callable[["list[str]", float], "tuple[int, str, str]"]


class View(t.NamedTuple):
    """What one source says.

    Attributes:
        source: its name, for people.
        cores: the CPUs of each core that it knows; None where it says nothing of cores.
        online: the CPUs that it has online; None where it says nothing of that.
        reason: why it could not be asked; None where it was.
    """

    source: str
    cores: "tuple[tuple[int, ...], ...] | None" = None
    online: "tuple[int, ...] | None" = None
    reason: "str | None" = None


def read(fs: files.HostFs, online: "t.Iterable[int]", run: Run = processes.run) -> "list[View]":
    """Ask all sources.

    Args:
        fs: the host's files.
        online: the CPUs whose files are read.
        run: runs a command, as ``processes.run``.
    """
    return [
        View("/sys/devices/system/cpu/online", online=_cpus(fs.read(CPU_DIR + "online"))),
        _of_files(fs, "core_cpus_list", online),
        _of_files(fs, "thread_siblings_list", online),
        # Not the cores: the ids there are unique in a die, and nothing says in which die a CPU is.
        View("/proc/cpuinfo", online=tuple(sorted(cpuinfo.read(fs).blocks)) or None),
        View("/proc/stat", online=_of_stat(fs)),
        _asked(run, "lscpu", ["lscpu", "-p=CPU,CORE,SOCKET"], _of_lscpu),
        _asked(run, "hwloc", ["lstopo-no-graphics", "--no-io", "--of", "xml", "-"], _of_hwloc),
        _asked(run, "ppc64_cpu", ["ppc64_cpu", "--info"], _of_ppc64_cpu),
    ]


def _of_files(fs: files.HostFs, name: str, online: "t.Iterable[int]") -> View:
    found = [_cpus(fs.read(f"{CPU_DIR}cpu{cpu}/topology/{name}")) for cpu in online]
    cores = sorted({core for core in found if core})
    return View(f"topology/{name}", tuple(cores)) if cores else View(f"topology/{name}", reason="it does not exist")


def _of_stat(fs: files.HostFs) -> "tuple[int, ...] | None":
    found = re.findall(r"^cpu([0-9]{1,6}) ", fs.read("proc/stat", files.LARGE) or "", re.MULTILINE)
    return tuple(sorted(map(int, found))) or None


def _asked(run: Run, name: str, argv: "list[str]", parse: "t.Callable[[str], View]") -> View:
    status, output, _errors = run(argv, SECONDS)
    if status == 127:
        return View(name, reason="it is not installed")
    if status != 0 or len(output) > MAX_OUTPUT:
        return View(name, reason=f"it ended with exit code {status}" if status else "it printed too much")
    view = parse(output)
    return view if view.cores else View(name, reason="it names no cores")


def _of_lscpu(output: str) -> View:
    """Read lines of ``CPU,CORE,SOCKET``; a core without a number is not known."""
    groups: dict[tuple[str, str], list[int]] = {}
    online = []
    for line in output.splitlines():
        fields = line.strip().split(",")
        if len(fields) == 3 and re.fullmatch("[0-9]{1,6}", fields[0]):
            online.append(int(fields[0]))
            if fields[1].isdigit():
                groups.setdefault((fields[1], fields[2]), []).append(online[-1])
    return View("lscpu", _sorted(groups.values()), tuple(sorted(online)))


def _of_hwloc(output: str) -> View:
    """Read the CPU sets of objects of the type Core; hwloc shows only CPUs that it may use."""
    groups = []
    for _kind, attributes in (found for found in _OBJECT.findall(output) if found[0] == "Core"):
        written = _CPUSET.search(attributes)
        if written:
            groups.append(_of_bitmap(written.group(1)))
    return View("hwloc", _sorted(group for group in groups if group))


def _of_bitmap(text: str) -> "tuple[int, ...]":
    """Return the CPUs of a bitmap of hwloc: hexadecimal words of 32 bits, each with 0x or empty for 0."""
    words = [word[2:] if word.startswith("0x") else word for word in text.split(",")]
    try:
        return cpulist.parse_mask(",".join((word or "0").rjust(8, "0") for word in words))
    except cpulist.CpuListError:
        return ()


def _of_ppc64_cpu(output: str) -> View:
    """Read the threads of each core; an asterisk marks those that are online."""
    lines = [match.group(1).split() for match in map(_CORE_LINE.fullmatch, output.splitlines()) if match]
    online = sorted(int(cpu[:-1]) for line in lines for cpu in line if cpu.endswith("*"))
    return View("ppc64_cpu", _sorted([int(cpu.rstrip("*")) for cpu in line] for line in lines), tuple(online))


def _cpus(text: "str | None") -> "tuple[int, ...] | None":
    try:
        return cpulist.parse(text) or None if text else None
    except cpulist.CpuListError:
        return None


def _sorted(groups: "t.Iterable[t.Iterable[int]]") -> "tuple[tuple[int, ...], ...]":
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def differences(topology: Topology, view: View) -> "list[str]":
    """Return in which a source differs from the facts, one sentence each.

    Cores are compared as far as both know their online CPUs: many sources leave out what is offline.

    Args:
        topology: of the facts.
        view: of the source.
    """
    found = []
    if view.online is not None and set(view.online) != set(topology.online):
        found.append(
            f"{view.source} has CPUs {cpulist.render(view.online)} online, and the facts have"
            f" {cpulist.render(topology.online)}"
        )
    if view.cores is not None:
        ours = {cpu: core for core in topology.cores for cpu in core}
        # Files can contradict each other: a CPU may be on several of these cores.
        common = {cpu for core in view.cores for cpu in core} & set(ours) & set(topology.online)
        others = sorted(
            {(_part(core, common), _part(ours[cpu], common)) for core in view.cores for cpu in core if cpu in common}
        )
        wrong = [(their, our) for their, our in others if their != our]
        found += [
            f"{view.source} has CPUs {their} on one core, and the facts have {our}" for their, our in wrong[:MAX_NAMED]
        ]
        if len(wrong) > MAX_NAMED:
            found.append(f"{view.source} differs in {len(wrong) - MAX_NAMED} more cores")
    return found


def _part(core: "t.Sequence[int]", common: "t.Container[int]") -> str:
    return cpulist.render(cpu for cpu in core if cpu in common)
