# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs share a core, as others read it on the same host: the kernel's own files, each by itself,
and the tools that people believe.

Sources: lscpu(1) of util-linux for ``-p``, lstopo(1) of hwloc for its XML, ppc64_cpu(8) of powerpc-utils for
``--info``, proc(5) for /proc/stat.
"""

import errno
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, cpulist, files, processes
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import CPU_DIR, Topology

# What a tool may print: 8192 CPUs with their caches in XML.
MAX_OUTPUT = 16 << 20
# Differences that are written out.
MAX_NAMED = 5
SECONDS = 30.0

_OBJECT = re.compile(r"<object\s+type=\"(Core|PU)\"([^>]{0,100000})>")
_CPUSET = re.compile(r"\bcpuset=\"([0-9a-fx,]{1,20000})\"")
_CORE_LINE = re.compile(r"\s*Core\s+[0-9]{1,6}:((?:\s+[0-9]{1,6}\*?)+)\s*")
# What processes.run says of a command that did not run.
_NOT_RUN = re.compile(r"\S+ (is not installed|cannot be run: .+)")

Run = t.Callable[["list[str]", float], "tuple[int, str, str]"]


class View(t.NamedTuple):
    """What one source says.

    Attributes:
        source: its name, for people.
        cores: the CPUs of each core that it knows; None where it says nothing of cores.
        online: the CPUs that it has online; None where it says nothing of that.
        reason: why it says nothing, or which CPUs it says nothing of; None where it says all.
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
        _of_online(fs),
        _of_files(fs, "core_cpus_list", online),
        _of_files(fs, "thread_siblings_list", online),
        # Not the cores: the ids there are unique in a die, and nothing says in which die a CPU is.
        _of_text(fs, "proc/cpuinfo", lambda text: cpuinfo.parse(text).blocks),
        _of_text(fs, "proc/stat", lambda text: map(int, re.findall(r"^cpu([0-9]{1,6}) ", text, re.MULTILINE))),
        _asked(run, "lscpu", ["lscpu", "-p=CPU,CORE,SOCKET"], _of_lscpu),
        _asked(run, "hwloc", ["lstopo-no-graphics", "--no-io", "--of", "xml", "-"], _of_hwloc),
        _asked(run, "ppc64_cpu", ["ppc64_cpu", "--info"], _of_ppc64_cpu),
    ]


def _of_online(fs: files.HostFs) -> View:
    path = CPU_DIR + "online"
    cpus, reason = _cpus(fs, path)
    return View(f"/{path}", online=cpus, reason=reason)


def _of_files(fs: files.HostFs, name: str, online: "t.Iterable[int]") -> View:
    lists = {cpu: _cpus(fs, f"{CPU_DIR}cpu{cpu}/topology/{name}") for cpu in online}
    cores = tuple(sorted({core for core, _reason in lists.values() if core}))
    silent: dict[str, list[int]] = {}
    for cpu, (_core, reason) in lists.items():
        if reason is not None:
            silent.setdefault(reason, []).append(cpu)
    reasons = [f"of CPUs {cpulist.render(cpus)} {reason}" for reason, cpus in silent.items()] if cores else silent
    return View(f"topology/{name}", cores or None, reason="; ".join(reasons) or None)


def _of_text(fs: files.HostFs, path: str, cpus: "t.Callable[[str], t.Iterable[int]]") -> View:
    """Return the CPUs that a file for people names, as ``cpus`` finds them in its text."""
    try:
        groups = tuple(sorted(cpus(fs.text(path, files.LARGE))))
    except OSError as error:
        return View(f"/{path}", reason=_unreadable(error))
    return View(f"/{path}", online=groups) if groups else View(f"/{path}", reason="it names no CPUs")


def _asked(run: Run, name: str, argv: "list[str]", parse: "t.Callable[[str], View]") -> View:
    status, output, errors = run(argv, SECONDS)
    not_run = _NOT_RUN.fullmatch(errors) if status == 127 else None
    if not_run:
        return View(name, reason=f"it {not_run.group(1)}")
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
    for _kind, attributes in (entry for entry in _OBJECT.findall(output) if entry[0] == "Core"):
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


def _cpus(fs: files.HostFs, path: str) -> "tuple[tuple[int, ...] | None, str | None]":
    """Return the CPUs that a file lists, or the reason why there are none."""
    try:
        cpus = cpulist.parse(fs.text(path))
    except OSError as error:
        return None, _unreadable(error)
    except cpulist.CpuListError:
        return None, "it is no list of CPUs"
    return (cpus, None) if cpus else (None, "it names no CPUs")


def _unreadable(error: OSError) -> str:
    return "it does not exist" if error.errno == errno.ENOENT else f"it cannot be read ({error.strerror})"


def _sorted(groups: "t.Iterable[t.Iterable[int]]") -> "tuple[tuple[int, ...], ...]":
    return tuple(sorted(tuple(sorted(group)) for group in groups))


def differences(topology: Topology, view: View) -> "list[str]":
    """Return in which a source differs from the facts, one sentence each.

    Cores are compared as far as both know their online CPUs: many sources leave out what is offline.

    Args:
        topology: of the facts.
        view: of the source.
    """
    sentences = []
    if view.online is not None and set(view.online) != set(topology.online):
        sentences.append(
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
        sentences += [
            f"{view.source} has CPUs {their} on one core, and the facts have {our}" for their, our in wrong[:MAX_NAMED]
        ]
        if len(wrong) > MAX_NAMED:
            sentences.append(f"{view.source} differs in {len(wrong) - MAX_NAMED} more cores")
    return sentences


def _part(core: "t.Sequence[int]", common: "t.Container[int]") -> str:
    return cpulist.render(cpu for cpu in core if cpu in common)
