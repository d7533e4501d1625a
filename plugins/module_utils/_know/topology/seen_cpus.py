# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which of the CPUs that a kernel lists nobody on the host can use, and where the lists contradict each other.

Sources: drivers/s390/char/sclp_cmd.c and arch/s390/kernel/smp.c (``configure``), drivers/base/cpu.c and
Documentation/arch/arm64/cpu-hotplug.rst (``enabled``, since Linux 6.11). lxcfs shows a container its own list of CPUs
online, and the host's files of each CPU.
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import ReadableFiles

CPU_DIR = "sys/devices/system/cpu"
MOUNTS = "proc/self/mounts"
# What lxcfs covers: either can be shown by it and the other not.
_OF_LXCFS = re.compile(rf"^\S+ (/proc/cpuinfo|/{CPU_DIR}(?:/\S*)?) fuse\.lxcfs ", re.MULTILINE)


def unavailable(files: ReadableFiles, offline: "t.Iterable[int]") -> "frozenset[int]":
    """Return the CPUs that are present and that nobody on the host can bring online: they are in standby on s390, or
    the firmware has not enabled them.

    Args:
        files: the host's files.
        offline: the CPUs that are present and not online.
    """
    cpus = frozenset(offline)
    if not cpus:
        return cpus
    text = files.read(f"{CPU_DIR}/enabled")
    enabled = cpulist.parse_or_empty(text)
    return frozenset(
        cpu
        for cpu in cpus
        if (enabled and cpu not in enabled) or (files.read(f"{CPU_DIR}/cpu{cpu}/configure") or "").strip() == "0"
    )


def of_lxcfs(files: ReadableFiles) -> "str | None":
    """Return the file or folder about CPUs that lxcfs shows in place of the kernel, or None."""
    mount = _OF_LXCFS.search(files.read(MOUNTS) or "")
    return mount and mount[1]


def contradiction(files: ReadableFiles, online: "t.Collection[int]") -> "str | None":
    """Return what says that the list of CPUs online is not that of the kernel, as a sentence without a full stop; None
    where nothing does. A change would be one of the machine, and not of what is shown here.

    Args:
        files: the host's files.
        online: the CPUs of the list.
    """
    listed = frozenset(online)
    flags = {}
    for name in files.names(CPU_DIR):
        number = name[len("cpu") :]
        if name.startswith("cpu") and number.isdecimal():
            flag = (files.read(f"{CPU_DIR}/{name}/online") or "").strip()
            if flag in ("0", "1"):
                flags[int(number)] = flag == "1"
    wrong = [cpu for cpu, flag in flags.items() if flag != (cpu in listed)]
    if not wrong:
        path = of_lxcfs(files)
        return path and f"lxcfs shows {path}, as in a container: the CPUs are the machine's, and are changed there"
    return (
        f"/{CPU_DIR}/online lists CPUs {cpulist.render(listed)}, and the file online of CPUs {cpulist.render(wrong)}"
        " says otherwise, as in a container (lxcfs): the CPUs are the machine's, and are changed there"
    )
