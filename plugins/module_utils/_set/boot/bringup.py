# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CPUs that ``maxcpus=N`` leaves online.

The kernel starts CPUs until N are online (kernel/cpu.c, `bringup_nonboot_cpus`). *Serial*: in numerical order.
*Parallel*, when it was built with CONFIG_HOTPLUG_PARALLEL (x86-64 since Linux 6.5, and distribution kernels with a
backport): the first thread of each core first, then the others (`cpuhp_bringup_cpus_parallel`); ``cpuhp.parallel=0``
turns this off.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, files as host_files
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._set.boot import supported

SERIAL, PARALLEL = "serial", "parallel"

_PARALLEL_SINCE = (6, 5)
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,4})(?=[^0-9]|$)")
_STATES = "sys/devices/system/cpu/hotplug/states"
# What kstrtobool reads as false (lib/kstrtox.c).
_FALSE = re.compile(r"[nNfF0].*|[oO][fF].*")


def bringup_mode(
    fs: host_files.HostFs, kernel: str, arguments: "t.Iterable[str]", architecture: str, running: "str | None" = None
) -> str:
    """Return how a kernel brings up CPUs.

    Args:
        fs: the host's files, which may include the kernel's build configuration.
        kernel: release of the kernel, such as ``6.1.0-13-amd64``.
        arguments: its boot arguments.
        architecture: architecture as ``uname -m`` prints it.
        running: release of the running kernel, whose hot-plug states can be read, or None.

    Returns:
        `SERIAL` or `PARALLEL`.
    """
    if architecture not in ("x86_64", "amd64") or not _is_built_parallel(fs, kernel, running):
        return SERIAL
    values = [
        value for name, dummy, value in (argument.partition("=") for argument in arguments) if name == "cpuhp.parallel"
    ]
    return SERIAL if values and _FALSE.fullmatch(values[-1]) else PARALLEL


def _is_built_parallel(fs: host_files.HostFs, kernel: str, running: "str | None") -> bool:
    text = supported.configuration(fs, kernel)
    if text is not None:
        return "CONFIG_HOTPLUG_PARALLEL=y" in text.split("\n")
    states = fs.read(_STATES) if kernel == running else None
    if states:
        # CPUHP_BP_KICK_AP exists only in kernels that start CPUs in two steps.
        return "cpu:kick_ap" in states
    version = _VERSION.match(kernel)
    return version is not None and (int(version.group(1)), int(version.group(2))) >= _PARALLEL_SINCE


def left_online(topology: Topology, count: int, mode: str) -> "tuple[int, ...]":
    """Return the CPUs that ``maxcpus=count`` leaves online.

    Args:
        topology: a complete topology.
        count: value of `maxcpus`.
        mode: `SERIAL` or `PARALLEL`.

    Returns:
        The CPUs, sorted.
    """
    first = topology.primaries if mode == PARALLEL else topology.present
    chosen = set(first)
    order = list(first) + [cpu for cpu in topology.present if cpu not in chosen]
    return tuple(sorted(order[:count]))


def miscount(topology: Topology, count: int, mode: str) -> "str | None":
    """Return why ``maxcpus=count`` would not leave exactly one thread of each core online.

    Args:
        topology: a complete topology.
        count: value of `maxcpus`.
        mode: `SERIAL` or `PARALLEL`.

    Returns:
        A sentence with the CPU numbers and without a full stop; None when one thread of each core would be left.
    """
    left = set(left_online(topology, count, mode))
    doubled = [core for core in topology.cores if len(left.intersection(core)) > 1]
    empty = [core for core in topology.cores if not left.intersection(core)]
    if not doubled and not empty:
        return None
    parts = []
    if doubled:
        parts.append(
            f"{len(doubled)} of {len(topology.cores)} cores have more than one thread ({_cores_text(doubled)})"
        )
    if empty:
        parts.append(f"{len(empty)} of {len(topology.cores)} cores have none ({_cores_text(empty)})")
    order = "in numerical order" if mode == SERIAL else "with the first thread of each core first"
    return (
        f"maxcpus={count} leaves CPUs {cpulist.render(left)} online, because the numbering of siblings is"
        f" {topology.numbering} and this kernel starts CPUs {order}: {' and '.join(parts)}"
    )


def _cores_text(cores: "t.Sequence[t.Collection[int]]") -> str:
    shown = "; ".join(cpulist.render(core) for core in cores[:8])
    return shown if len(cores) <= 8 else shown + "; ..."
