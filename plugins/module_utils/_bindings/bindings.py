# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else binds work to CPUs of a host: interrupts, unit files, libvirt guests, kubelet,
isolated CPUs and NUMA nodes.
"""

import errno
import os
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files, text as host_text

MAX_UNIT_FILES = 10000
KUBELET_STATE = "var/lib/kubelet/cpu_manager_state"

_CPU_DIRECTORY = "sys/devices/system/cpu"
_NODE_DIRECTORY = "sys/devices/system/node"
# What a write to the CPUs of an interrupt gives that the kernel manages.
MANAGED = (errno.EIO, errno.EPERM)
_INTERRUPTS = "proc/irq"
_MANAGER_DIRECTORIES = ("etc/systemd/system.conf.d", "run/systemd/system.conf.d", "usr/lib/systemd/system.conf.d")
_UNIT_DIRECTORIES = (
    "etc/systemd/system",
    "run/systemd/system",
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
_UNIT_SETTING = re.compile(r"^[ \t]*(CPUAffinity|AllowedCPUs)[ \t]*=[ \t]*(.+)$", re.MULTILINE)
_MANAGER_ARGUMENT = re.compile(r"(?:^|\s)systemd\.cpu_affinity=(\S+)")
_LIBVIRT_DIRECTORIES = ("etc/libvirt/qemu", "run/libvirt/qemu")
_LIBVIRT_PINNING = re.compile(r"""<(vcpupin|emulatorpin|iothreadpin|vcpu)\b[^>]*\bcpuset=['"]([^'"]*)['"]""")


class Binding(t.NamedTuple):
    """CPUs that something is bound to.

    Attributes:
        cpus: the CPUs
        text: what is bound to them, printable
    """

    cpus: "frozenset[int]"
    text: str


class UnitSetting(t.NamedTuple):
    """CPUs that a file of systemd binds units to.

    Attributes:
        cpus: the CPUs
        text: the file and its setting, printable
        key: the setting, ``CPUAffinity`` or ``AllowedCPUs``
        unit: the name of the unit, of its template, or of its type (``service``); empty for the manager itself, from
            which all units inherit
    """

    cpus: "frozenset[int]"
    text: str
    key: str
    unit: str

    def applies_to(self, unit: str) -> bool:
        """Return whether the file belongs to a unit, given by its name."""
        name, _dot, kind = unit.rpartition(".")
        return self.unit in (unit, f"{name.partition('@')[0]}@.{kind}", kind)


def units(host: kernel_files.KernelFiles) -> "list[UnitSetting]":
    """Return ``CPUAffinity=`` and ``AllowedCPUs=`` (systemd.exec(5), systemd.resource-control(5)) of unit files,
    their drop-ins and the manager.
    """
    found = []
    files = [("", "etc/systemd/system.conf")]
    files += [
        ("", f"{directory}/{name}")
        for directory in _MANAGER_DIRECTORIES
        for name in host.names(directory)
        if name.endswith(".conf")
    ]
    for directory in _UNIT_DIRECTORIES:
        for name in host.names(directory):
            if name.endswith(".d"):
                files += [
                    (name[:-2], f"{directory}/{name}/{part}")
                    for part in host.names(directory + "/" + name)
                    if part.endswith(".conf")
                ]
            elif name.endswith((".service", ".slice", ".scope")):
                files.append((name, f"{directory}/{name}"))
    seen = set()
    for unit, path in files[:MAX_UNIT_FILES]:
        real = os.path.realpath(os.path.join(host.sysroot, path))
        if real in seen:
            continue
        seen.add(real)
        for key, value in _UNIT_SETTING.findall(host.read(path) or ""):
            cpus = cpulist.parse_or_empty(",".join(value.replace(",", " ").split()))
            text = f"/{host_text.printable(path, 256)} sets {key}={host_text.printable(value.strip(), 64)}"
            found.append(UnitSetting(cpus, text, key, unit))
    argument = _MANAGER_ARGUMENT.search(host.read("proc/cmdline") or "")
    if argument:
        text = f"/proc/cmdline sets systemd.cpu_affinity={host_text.printable(argument[1], 64)}"
        found.append(UnitSetting(cpulist.parse_or_empty(argument[1]), text, "CPUAffinity", ""))
    return found


def guests(host: kernel_files.KernelFiles) -> "list[Binding]":
    """Return the CPUs that libvirt guests are pinned to."""
    found = []
    for directory in _LIBVIRT_DIRECTORIES:
        for name in host.names(directory):
            if name.endswith(".xml"):
                guest = host_text.printable(name[:-4], 64)
                for element, value in _LIBVIRT_PINNING.findall(host.read(directory + "/" + name) or ""):
                    found.append(Binding(_libvirt_cpus(value), f"libvirt guest {guest} is pinned there ({element})"))
    return found


def _libvirt_cpus(text: str) -> "frozenset[int]":
    """Return the CPUs of a libvirt list, which may exclude CPUs: ``0-3,^2``."""
    parts = [part.strip() for part in text.split(",")]
    included = cpulist.parse_or_empty(",".join(part for part in parts if part[:1] != "^"))
    return included - cpulist.parse_or_empty(",".join(part[1:] for part in parts if part[:1] == "^"))


def kubelet_is_static(host: kernel_files.KernelFiles) -> bool:
    """Return whether the CPU manager policy of kubelet is static."""
    try:
        state = host_text.parse_json(host.read(KUBELET_STATE) or "{}")
    except ValueError:
        return False
    return isinstance(state, dict) and state.get("policyName") == "static"


def online(host: kernel_files.KernelFiles) -> "frozenset[int]":
    """Return the CPUs that are online."""
    return cpulist.parse_or_empty(host.read(_CPU_DIRECTORY + "/online"))


def isolated(host: kernel_files.KernelFiles) -> "list[Binding]":
    """Return the CPUs isolated at boot, with the boot argument."""
    arguments = (("isolated", "isolcpus="), ("nohz_full", "nohz_full="))
    return [
        Binding(cpulist.parse_or_empty(host.read(f"{_CPU_DIRECTORY}/{name}")), argument) for name, argument in arguments
    ]


def nodes(host: kernel_files.KernelFiles) -> "list[Binding]":
    """Return the CPUs of each NUMA node, with its name."""
    names = [name for name in host.names(_NODE_DIRECTORY) if re.fullmatch(r"node[0-9]+", name)]
    return [Binding(cpulist.parse_or_empty(host.read(f"{_NODE_DIRECTORY}/{name}/cpulist")), name) for name in names]


def interrupt_path(number: str) -> str:
    """Return the path of the CPU list of an interrupt."""
    return f"{_INTERRUPTS}/{number}/smp_affinity_list"


def interrupts(host: kernel_files.KernelFiles, online: "frozenset[int]") -> "list[tuple[str, frozenset[int]]]":
    """Return number and CPUs of the interrupts that may not be handled by all online CPUs."""
    found = []
    for number in host.names(_INTERRUPTS):
        cpus = cpulist.parse_or_empty(host.read(interrupt_path(number))) if number.isdigit() else frozenset()
        if cpus and not cpus >= online:
            found.append((number, cpus))
    return found


def interrupt_devices(host: kernel_files.KernelFiles, number: str) -> str:
    """Return the names of the devices or drivers of an interrupt, printable, separated by blanks."""
    return host_text.printable(" ".join(host.directories(f"{_INTERRUPTS}/{number}")), 64)


def is_placed_by_kernel(host: kernel_files.KernelFiles, number: str, cpus: "frozenset[int]") -> bool:
    """Return whether the kernel chose the CPUs of an interrupt: they follow the driver's hint,
    or the interrupt is managed.

    The kernel moves managed interrupts away and back by itself. write_irq_affinity (kernel/irq/proc.c) returns EIO,
    since Linux 6.11 EPERM, for a managed interrupt before it parses the text, and EINVAL for a text that is not a valid
    CPU list. A write of such a text never changes anything and tells the two cases apart.
    """
    try:
        hint = frozenset(cpulist.parse_mask(host.read(f"{_INTERRUPTS}/{number}/affinity_hint") or ""))
    except cpulist.CpuListError:
        hint = frozenset()
    if hint == cpus:
        return True
    if not host.is_host:
        return False
    try:
        host.write(interrupt_path(number), "none")
    except OSError as error:
        return error.errno in MANAGED
    return False
