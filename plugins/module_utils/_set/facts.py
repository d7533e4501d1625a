# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible_facts['smt']`: all facts about a host's SMT, as plain data. Reads only."""

import hashlib
import itertools
import json
import os
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import (
    cpuinfo,
    cpulist,
    files as host_files,
    kernel_files,
    state_file,
)
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._know.consumers import find, history
from ansible_collections.threadwise.smt.plugins.module_utils._know.machine import (
    hypervisor,
    ppc64_cpu,
    vulnerabilities,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.siblings import (
    cache as sibling_cache,
    source as sibling_source,
)
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology import cache as topology_cache, seen_cpus
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology, read_topology
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import detection as boot_detection
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot.visit import record as boot_visit
from ansible_collections.threadwise.smt.plugins.module_utils._set.rollback import record as rollback_record
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime import (
    snapshot as smt_snapshot,
    state as smt_state,
)
from ansible_collections.threadwise.smt.plugins.module_utils._set.runtime.rollback import pending as pending_rollback
from ansible_collections.threadwise.smt.plugins.module_utils._set.slot import record as slot_record

ARCHITECTURE_PATH = "proc/sys/kernel/arch"
_ARCHITECTURE = re.compile(r"[a-z0-9_]{1,20}")
# Field of /proc/cpuinfo, start of its value, architecture: for recorded trees, because uname describes another machine.
ARCHITECTURE_SIGNS = (
    ("vendor_id", "IBM/S390", "s390x"),
    ("CPU architecture", "8", "aarch64"),
    ("CPU architecture", "AArch64", "aarch64"),
    ("CPU implementer", "0x", "arm"),
    ("isa", "rv64", "riscv64"),
    ("isa", "rv32", "riscv32"),
    ("arch", "IA-64", "ia64"),
    ("cpu", "POWER", "ppc64"),
    ("CPU Family", "Loongson-64bit", "loongarch64"),
    ("cpu", "UltraSparc", "sparc64"),
)
# Why the kernel switches nothing, by what smt/control reads.
_NOT_SWITCHED = {
    smt_state.ABSENT: "this kernel has no {} (added in Linux 4.19 on x86, later on other architectures)",
    smt_state.FORCE_OFF: "smt/control reads forceoff: siblings come back only by a reboot without nosmt=force",
    smt_state.NOT_SUPPORTED: (
        "smt/control reads notsupported: no SMT on this machine, or it is off in firmware, or the hypervisor shows one"
        " thread per core"
    ),
}


class Methods(TypedDict):
    """Methods to change the SMT state: the preferred one, those that are possible,
    and the reason why each other one is not.
    """

    chosen: "str | None"
    possible: "list[str]"
    impossible: "dict[str, str]"


def gather(fs: host_files.HostFs, siblings: object = sibling_source.KERNEL) -> "dict[str, t.Any]":
    """Read the facts of a host.

    Args:
        fs: the host's files
        siblings: whose siblings they show, as for :func:`sibling_source.parse`; the hardware class is always that of
            the kernel's

    Returns:
        plain data as smt_facts documents it; with other siblings than the kernel's ``source`` is ``measured`` or
        ``declared``

    Raises:
        SiblingsError: the siblings that are asked for are not valid, or not known on this host
    """
    kept = state_file.Kept(fs)
    saved = _snapshot(fs) if smt_snapshot.PATH in kept or pending_rollback.ROLLED_BACK_PATH in kept else None
    kernel = kernel_topology(fs, kept)
    measured = sibling_cache.load(fs) if sibling_cache.PATH in kept else None
    topology = kernel if siblings == sibling_source.KERNEL else sibling_source.applied(kernel, siblings, measured)
    control = (fs.read(smt_state.CONTROL) or "").strip(" \t\r\n\0") or smt_state.ABSENT
    shown = seen_cpus.contradiction(fs, topology.online)
    if shown:
        fs.note(f"{shown}.")
    active = None if shown else _active(fs, topology)
    loader = boot_detection.find_loader(fs)
    guest_of = hypervisor.detect(fs)
    supported = None if shown else _supported(control, topology)
    running = find.running(kernel_files.KernelFiles(fs.sysroot))
    has_consumers = running or history.PATH in kept
    consumers = _consumers(fs, running, topology, active) if has_consumers else find.Facts([], [])
    facts = {
        "supported": supported,
        "control": control,
        "active": active,
        "sockets": len(topology.packages) or None,
        "cores": len(topology.cores) or None,
        "threads_per_core": topology.threads_per_core,
        "cpus": {
            "present": cpulist.render([*topology.present, *topology.unavailable]),
            **{name: cpulist.render(getattr(topology, name)) for name in ("possible", "online", "offline", "isolated")},
        },
        "packages": list(map(cpulist.render, topology.packages)),
        "sibling_groups": list(map(cpulist.render, topology.cores)),
        "primaries": cpulist.render(topology.primaries),
        "secondaries": cpulist.render(topology.secondaries),
        "nodes": {str(node): cpulist.render(cpus) for node, cpus in topology.nodes.items()},
        "numbering": topology.numbering,
        "source": topology.source,
        "complete": topology.complete,
        "measured": measured,
        "boot": boot_detection.facts(fs, loader),
        "vulnerabilities": vulnerabilities.read(fs, guest_of is not None, active),
        "hypervisor": guest_of,
        "provider": hypervisor.about_threads(fs, supported),
        "kernel": (fs.read("proc/sys/kernel/osrelease") or "").strip() or None,
        "ppc64_cpu": ppc64_cpu.read(fs),
        "methods": {
            "runtime": _runtime_methods(fs, control, topology, shown),
            "boot": boot_detection.methods(loader, _write_blocked_by(fs, ("boot", "etc"))),
        },
        "hardware_class": hardware_class(fs, kernel, guest_of),
        "online_before": cpulist.render(saved["cpu"]["online"]) if saved else None,
        "pending_rollback": rollback_record.pending(fs) if rollback_record.FILE.path in kept else None,
        "pending_change": _pending_change(fs) if pending_rollback.PATH in kept else None,
        "reboot_slot": slot_record.pending(fs) if slot_record.FILE.path in kept else None,
        "consumers": consumers.now,
        "consumers_after_switch": consumers.after_switch,
    }
    if boot_visit.PROGRAM in kept:
        boot_visit.note_problem(fs)
    facts["problems"] = fs.problems
    return facts


def _pending_change(fs: host_files.HostFs) -> "dict[str, t.Any] | None":
    """Return by whom a change is that waits for its confirmation,
    and in how many seconds it is rolled back without it; None where none waits.
    """
    pending = pending_rollback.load(fs)
    return None if pending is None else {"by": pending["by"], "seconds_left": pending_rollback.seconds_left(pending)}


def _consumers(fs: host_files.HostFs, running: find.Running, topology: Topology, active: "bool | None") -> find.Facts:
    """Return who counted CPUs before this collection changed them, and believes in that number still; and who would
    believe in another number after SMT is switched, of each core in use to one thread or to all of them.
    """
    online = frozenset(topology.online)
    used = [core for core in topology.cores if online.intersection(core)]
    switched = [min(online.intersection(core)) for core in used] if active else itertools.chain(*used)
    after = online if active is None else (online - {cpu for core in used for cpu in core}).union(switched)
    return find.facts(running, history.load(fs, online), after)


def _snapshot(fs: host_files.HostFs) -> "smt_snapshot.Snapshot | None":
    """Return the snapshot from before this collection first changed the host; None if it did not,
    or if the snapshot cannot be read.
    """
    try:
        return smt_snapshot.load(fs)
    except smt_snapshot.SmtSnapshotError as error:
        fs.note(f"Which CPUs were off on purpose is not known: {error}.")
        return None


def kernel_topology(fs: host_files.HostFs, kept: state_file.Kept) -> Topology:
    """Return what the kernel shows, and what it showed before CPUs went offline, by the state files that are kept."""
    topology = read_topology(fs, topology_cache.load(fs) if topology_cache.PATH in kept else None)
    return _with_seen(topology, smt_snapshot.seen_cores(fs)) if smt_snapshot.SEEN_PATH in kept else topology


def _with_seen(topology: Topology, seen: smt_state.Cores) -> Topology:
    """Return a topology with the cores that a change has seen in this boot, for CPUs that are offline now.

    Their packages are those of their siblings.
    """
    present = frozenset(topology.present)
    known = ([cpu for cpu in core if cpu in present] for core in seen)
    cores = smt_state.join_cores(topology.cores, [core for core in known if core])
    if tuple(cores) == topology.cores:
        return topology
    core_of = {cpu: core for core in cores for cpu in core}
    packages = tuple(
        tuple(sorted({sibling for cpu in package for sibling in core_of[cpu]})) for package in topology.packages
    )
    placed = {cpu for package in packages for cpu in package} if packages else set(core_of)
    return topology._replace(cores=tuple(cores), packages=packages, source="saved", complete=placed >= present)


def _supported(control: str, topology: Topology) -> "bool | None":
    """Return whether this machine has SMT, from the control if the kernel has one, else from the topology;
    None if neither shows it.
    """
    if topology.secondaries:
        return True
    # With all CPUs there and none beside another one it is off in firmware, which some kernels show as on (Intel), and
    # others as notsupported (AMD).
    if control == smt_state.ON and topology.complete:
        return False
    if smt_state.is_switchable(control):
        return True
    if control == smt_state.NOT_SUPPORTED or topology.complete:
        return False
    return None


def _active(fs: host_files.HostFs, topology: Topology) -> "bool | None":
    """Return whether a core has two siblings online, from smt/active, else from the topology;
    None if neither shows it.
    """
    text = (
        (fs.read(smt_state.ACTIVE) or "").strip(" \t\r\n\0")
        if topology.source not in sibling_source.NOT_THE_KERNELS
        else ""
    )
    siblings_online = (topology.threads_per_core["online_max"] or 0) > 1
    if text in ("0", "1"):
        if siblings_online and text == "0":
            fs.note(
                f"{fs.path(smt_state.ACTIVE)} reads 0, but the CPU lists show siblings online: one of the two is wrong."
            )
        return text == "1"
    if siblings_online:
        return True
    placed = set(itertools.chain(*topology.cores))
    return False if placed and placed.issuperset(topology.online) else None


def _runtime_methods(fs: host_files.HostFs, control: str, topology: Topology, shown: "str | None") -> Methods:
    """Return the methods that can change the SMT state at run time on this host; none where what it shows of its CPUs
    contradicts itself (``shown``).
    """
    possible, impossible = [], {}
    for name, blocked_by in (("smt_control", _control_blocked_by), ("cpu_online", _online_blocked_by)):
        reason = shown or blocked_by(fs, control, topology)
        if reason is None:
            possible.append(name)
        else:
            impossible[name] = reason
    return {"chosen": possible[0] if possible else None, "possible": possible, "impossible": impossible}


def _control_blocked_by(fs: host_files.HostFs, control: str, topology: Topology) -> "str | None":
    """Return the reason why smt/control cannot be used, or None."""
    if topology.source in sibling_source.NOT_THE_KERNELS:
        return f"smt/control knows only the kernel's siblings, and these are {topology.source}"
    if topology.complete and not topology.secondaries and control == smt_state.ON:
        return "no core has a second thread: it is off in firmware, or the processor has none"
    if control in _NOT_SWITCHED:
        return _NOT_SWITCHED[control].format(fs.path(smt_state.CONTROL))
    if not smt_state.is_switchable(control):
        return f"smt/control reads {cpulist.quoted(control)}: the kernel cannot switch SMT on this architecture"
    return _write_blocked_by(fs, (smt_state.CONTROL,))


def _online_blocked_by(fs: host_files.HostFs, control: str, topology: Topology) -> "str | None":
    """Return the reason why single CPUs cannot be switched, or None."""
    if control in smt_state.OFF:
        return f"smt/control reads {control}: the kernel refuses to bring a sibling online"
    if not topology.secondaries:
        return (
            "no core has a sibling to take offline"
            if topology.complete
            else "the core of some CPU is not known, so the siblings are not known either"
        )
    files = [f"{smt_state.CPU_DIRECTORY}/cpu{cpu}/online" for cpu in topology.secondaries]
    if not any(map(fs.status, files)):
        return "no sibling has a file cpuN/online: this kernel has no CPU hot-plug"
    return _write_blocked_by(fs, files[:1])


def _write_blocked_by(fs: host_files.HostFs, paths: "t.Iterable[str]") -> "str | None":
    """Return the reason why these files, or files in these directories, cannot be written, or None."""
    if not fs.is_host:
        return "these are the files of a recorded tree, not of the running system"
    if os.geteuid() != 0:
        return "only root may write it: use become"
    return next(filter(None, map(fs.write_refusal, paths)), None)


def hardware_class(fs: host_files.HostFs, topology: Topology, guest_of: "str | None") -> "str | None":
    """Return a short id that is equal on hosts that can share an evaluation,
    or None if the core of some CPU is not known.

    It depends on architecture, processor model and stepping, the number and numbering of packages, cores and threads,
    and the hypervisor. It does not depend on what may change on a machine: offline CPUs, boot arguments, clock rates,
    microcode.

    Args:
        fs: the host's files
        topology: its topology
        guest_of: its hypervisor, or None
    """
    if not topology.complete:
        return None
    fields = cpuinfo.read_first(fs)
    sizes = topology.threads_per_core
    shape = f"{len(topology.packages)}s{len(topology.cores)}c{len(topology.present)}t"
    name = architecture(fs, fields)
    parts = [
        name,
        shape,
        topology.numbering,
        sorted(map(len, topology.cores)),
        sorted(map(len, topology.packages)),
        sizes["max"],
        guest_of,
        list(map(fields.get, cpuinfo.MODEL_FIELDS)),
    ]
    digest = hashlib.sha256(json.dumps(parts).encode("utf-8")).hexdigest()
    return "-".join((name, shape, topology.numbering, digest[:8]))


def architecture(fs: host_files.HostFs, fields: "t.Mapping[str, str]") -> str:
    """Return the architecture, of a recorded tree as far as its files say it, or ``unknown``.

    Args:
        fs: the host's files
        fields: those of /proc/cpuinfo that identify the model
    """
    text = os.uname().machine if fs.is_host else (fs.read(ARCHITECTURE_PATH) or "").strip()
    if fs.is_host or _ARCHITECTURE.fullmatch(text):
        return text
    if "flags" in fields and "cpu family" in fields:
        return "x86_64" if "lm" in fields["flags"].split() else "i686"
    return next(
        (name for field, start, name in ARCHITECTURE_SIGNS if fields.get(field, "").startswith(start)), "unknown"
    )
