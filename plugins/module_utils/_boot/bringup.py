# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CPUs ``maxcpus=N`` leaves online.

The kernel starts CPUs until N are online (kernel/cpu.c, `bringup_nonboot_cpus`). *Serial*: in the order of their numbers. *Parallel*, where it was
built with CONFIG_HOTPLUG_PARALLEL (x86-64 since Linux 6.5, and kernels of distributions that took it over): the first thread of each core first,
then the others (`cpuhp_bringup_cpus_parallel`); ``cpuhp.parallel=0`` turns it off.
"""

from __future__ import annotations

import re

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist

SERIAL, PARALLEL = "serial", "parallel"

_SINCE = (6, 5)
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,4})(?=[^0-9]|$)")
_STATES = "sys/devices/system/cpu/hotplug/states"
# As kstrtobool reads a boolean (lib/kstrtox.c).
_NO = re.compile(r"[nNfF0].*|[oO][fF].*")


def way(fs, kernel, arguments, architecture, running=None):
    """How a kernel brings up CPUs.

    Args:
        fs: `files.HostFs`; the kernel's build configuration is looked up there.
        kernel: its release (str), such as ``6.1.0-13-amd64``.
        arguments: the boot arguments it will get.
        architecture: as uname -m gives it.
        running: the release of the running kernel, whose hot-plug states can be looked at, or None.

    Returns:
        `SERIAL` or `PARALLEL`.
    """
    if architecture not in ("x86_64", "amd64") or not _is_built_parallel(fs, kernel, running):
        return SERIAL
    values = [value for name, dummy, value in (argument.partition("=") for argument in arguments) if name == "cpuhp.parallel"]
    return SERIAL if values and _NO.fullmatch(values[-1]) else PARALLEL


def _is_built_parallel(fs, kernel, running):
    for path in ("boot/config-" + kernel, f"lib/modules/{kernel}/config", f"usr/lib/modules/{kernel}/config"):
        text = fs.read(path)
        if text and "CONFIG_SMP=" in text:
            return "CONFIG_HOTPLUG_PARALLEL=y" in text.split("\n")
    states = fs.read(_STATES) if kernel == running else None
    if states:
        # CPUHP_BP_KICK_AP, which exists where CPUs are started in two steps.
        return "cpu:kick_ap" in states
    version = _VERSION.match(kernel)
    return version is not None and (int(version.group(1)), int(version.group(2))) >= _SINCE


def left_online(topology, count, how):
    """The CPUs that ``maxcpus=count`` leaves (sorted tuple of int).

    Args:
        topology: a complete `topology.Topology`.
        how: `SERIAL` or `PARALLEL`.
    """
    first = topology.primaries if how == PARALLEL else topology.present
    chosen = set(first)
    order = list(first) + [cpu for cpu in topology.present if cpu not in chosen]
    return tuple(sorted(order[:count]))


def objection(topology, count, how):
    """Why ``maxcpus=count`` would not give one thread of each core, with the numbers; None when it would.

    Returns:
        a sentence (str) without a full stop, or None.
    """
    left = set(left_online(topology, count, how))
    doubled = [core for core in topology.cores if len(left.intersection(core)) > 1]
    empty = [core for core in topology.cores if not left.intersection(core)]
    if not doubled and not empty:
        return None
    parts = []
    if doubled:
        parts.append(f"{len(doubled)} of {len(topology.cores)} cores with more than one thread ({_cores_text(doubled)})")
    if empty:
        parts.append(f"{len(empty)} of {len(topology.cores)} cores with none ({_cores_text(empty)})")
    return "maxcpus=%d leaves CPUs %s, because siblings are numbered %s here and CPUs are brought up %s: %s" % (
        count,
        cpulist.render(left),
        topology.numbering,
        "in the order of their numbers" if how == SERIAL else "first threads first",
        " and ".join(parts),
    )


def _cores_text(cores):
    shown = "; ".join(cpulist.render(core) for core in cores[:8])
    return shown if len(cores) <= 8 else shown + "; ..."
