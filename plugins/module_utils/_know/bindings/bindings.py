# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else binds work to CPUs of a host: interrupts, unit files, libvirt guests,
containers, isolated CPUs and NUMA nodes.
"""

import errno
import os
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist, kernel_files, text as host_text
from ansible_collections.threadwise.smt.plugins.module_utils._know.bindings import programs

MAX_UNIT_FILES = 10000
_CPU_DIRECTORY = "sys/devices/system/cpu"
_NODE_DIRECTORY = "sys/devices/system/node"
# What a write to the CPUs of an interrupt gives that the kernel manages.
MANAGED = (errno.EIO, errno.EPERM)
_INTERRUPTS = "proc/irq"
_MANAGER_FILES = tuple(f"{folder}/systemd/system.conf" for folder in ("etc", "run", "usr/local/lib", "usr/lib"))
_MANAGER_DIRECTORIES = tuple(f"{path}.d" for path in _MANAGER_FILES)
# The first one that has a file counts (systemd.unit(5), "Unit File Load Path").
_UNIT_DIRECTORIES = (
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
_UNIT_SETTING = re.compile(r"^[ \t]*(CPUAffinity|AllowedCPUs)[ \t]*=[ \t]*(.*)$", re.MULTILINE)
_MANAGER_ARGUMENT = re.compile(r"(?:^|\s)systemd\.cpu_affinity=(\S+)")
_VMBUS = "sys/bus/vmbus/devices"
# Docker alone looks for each CPU of a list when it starts a container (verifyPlatformContainerResources in
# daemon/daemon_unix.go; seen with 20.10).
_DOCKERS = "Docker's container"
_NEEDS_EACH = " (docker start refuses it while one of its CPUs is offline)"
# Folder with an entry for each, the file of one, where its CPUs stand in it (keys of JSON, or a line), and what to
# call it.
_CONTAINERS: "tuple[tuple[str, str, tuple[str, ...] | re.Pattern[str], str], ...]" = (
    ("var/lib/docker/containers", "/hostconfig.json", ("CpusetCpus",), _DOCKERS),
    (
        "var/lib/containers/storage/overlay-containers",
        "/userdata/config.json",
        ("linux", "resources", "cpu", "cpus"),
        "Podman's container",
    ),
    (
        "var/lib/lxc",
        "/config",
        re.compile(r"^\s*lxc\.cgroup2?\.cpuset\.cpus\s*=\s*(\S+)", re.MULTILINE),
        "LXC's container",
    ),
    ("etc/pve/lxc", "", re.compile(r"^lxc\.cgroup2?\.cpuset\.cpus\s*[:=]\s*(\S+)", re.MULTILINE), "the container"),
    ("etc/pve/qemu-server", "", re.compile(r"^affinity:\s*(\S+)", re.MULTILINE), "the guest"),
)
# Of each of its drivers.
_LIBVIRT_DIRECTORIES = tuple(f"{top}/libvirt/{driver}" for top in ("etc", "run") for driver in ("qemu", "lxc", "libxl"))
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
    bound = []
    seen = set()
    for unit, paths in _unit_files(host).items():
        settings: dict[str, list[UnitSetting]] = {key: [] for key in ("CPUAffinity", "AllowedCPUs")}
        for path in paths:
            # A unit may have further names, which are links to its file.
            real = os.path.realpath(os.path.join(host.sysroot, path))
            if real in seen:
                continue
            seen.add(real)
            # A backslash continues a line.
            text = re.sub(r"\\\n", " ", host.read(path) or "")
            for key, value in _UNIT_SETTING.findall(text):
                if not value.strip():
                    settings[key].clear()
                    continue
                cpus = cpulist.parse_or_empty(",".join(value.replace(",", " ").split()))
                sentence = f"/{host_text.printable(path, 256)} sets {key}={host_text.printable(value.strip(), 64)}"
                settings[key].append(UnitSetting(cpus, sentence, key, unit))
        bound += [setting for of_key in settings.values() for setting in of_key]
    argument = _MANAGER_ARGUMENT.search(host.read("proc/cmdline") or "")
    if argument:
        text = f"/proc/cmdline sets systemd.cpu_affinity={host_text.printable(argument[1], 64)}"
        bound.append(UnitSetting(cpulist.parse_or_empty(argument[1]), text, "CPUAffinity", ""))
    return bound


def _unit_files(host: kernel_files.KernelFiles) -> "dict[str, list[str]]":
    """Return the files of each unit in the order in which systemd reads them, the manager's under an empty name: a file
    hides those of its name in later directories, and drop-ins follow the unit's own file by their names
    (systemd.unit(5)).
    """
    own: dict[str, str] = {}
    for path in filter(host.exists, _MANAGER_FILES):
        own.setdefault("", path)
    drop_ins: dict[str, dict[str, str]] = {}
    for directory in _MANAGER_DIRECTORIES:
        _add_drop_ins(host, directory, drop_ins.setdefault("", {}))
    for directory in _UNIT_DIRECTORIES:
        for name in host.names(directory):
            if name.endswith(".d"):
                _add_drop_ins(host, f"{directory}/{name}", drop_ins.setdefault(name[:-2], {}))
            elif name.endswith((".service", ".slice", ".scope")):
                own.setdefault(name, f"{directory}/{name}")
    return {
        unit: [*([own[unit]] if unit in own else []), *(path for _name, path in sorted(drop_ins.get(unit, {}).items()))]
        for unit in list(dict.fromkeys([*own, *drop_ins]))[:MAX_UNIT_FILES]
    }


def _add_drop_ins(host: kernel_files.KernelFiles, directory: str, drop_ins: "dict[str, str]") -> None:
    for name in host.names(directory):
        if name.endswith(".conf"):
            drop_ins.setdefault(name, f"{directory}/{name}")


def guests(host: kernel_files.KernelFiles) -> "list[Binding]":
    """Return the CPUs that libvirt guests are pinned to."""
    bound = []
    for directory in _LIBVIRT_DIRECTORIES:
        for name in host.names(directory):
            if name.endswith(".xml"):
                guest = host_text.printable(name[:-4], 64)
                for element, value in _LIBVIRT_PINNING.findall(host.read(directory + "/" + name) or ""):
                    bound.append(Binding(_libvirt_cpus(value), f"libvirt guest {guest} is pinned there ({element})"))
    return bound


def _libvirt_cpus(text: str) -> "frozenset[int]":
    """Return the CPUs of a libvirt list, which may exclude CPUs: ``0-3,^2``."""
    parts = [part.strip() for part in text.split(",")]
    included = cpulist.parse_or_empty(",".join(part for part in parts if part[:1] != "^"))
    return included - cpulist.parse_or_empty(",".join(part[1:] for part in parts if part[:1] == "^"))


def vmbus_cpus(host: kernel_files.KernelFiles) -> "frozenset[int]":
    """Return the CPUs that serve channels of Hyper-V's VMBus: the kernel refuses to take them offline
    (hv_synic_cleanup in drivers/hv/hv.c), unless it is one that moves channels.
    """
    cpus: set[int] = set()
    for device in host.names(_VMBUS):
        for channel in host.names(f"{_VMBUS}/{device}/channels"):
            cpus |= cpulist.parse_or_empty(host.read(f"{_VMBUS}/{device}/channels/{channel}/cpu"))
    return frozenset(cpus)


class Container(t.NamedTuple):
    """A container or guest with CPUs of its own, whether it runs or not.

    Attributes:
        name: its id, which the cgroup of a running one has in its name.
        binding: its CPUs.
        needs_each: whether it is not started while one of its CPUs is offline.
    """

    name: str
    binding: Binding
    needs_each: bool = False


def containers(host: kernel_files.KernelFiles) -> "list[Container]":
    """Return the containers of Docker, Podman, LXC and Proxmox, and Proxmox' guests, that their files pin to CPUs."""
    bound = []
    for folder, path, where, what in _CONTAINERS:
        for name in host.names(folder)[:MAX_UNIT_FILES]:
            text = host.read(f"{folder}/{name}{path}") or ""
            if isinstance(where, tuple):
                value = programs.json_text(text, where)
            else:
                match = where.search(text)
                value = match[1] if match else ""
            cpus = cpulist.parse_or_empty(value)
            if cpus:
                shown = host_text.printable(name.partition(".")[0], 64)
                needs_each = what == _DOCKERS
                text = f"{what} {shown} is pinned there{_NEEDS_EACH if needs_each else ''}"
                bound.append(Container(name.partition(".")[0], Binding(cpus, text), needs_each))
    return bound


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
    return [(number, cpus) for number, cpus in all_interrupts(host) if not cpus >= online]


def all_interrupts(host: kernel_files.KernelFiles) -> "list[tuple[str, frozenset[int]]]":
    """Return number and CPUs of the interrupts whose CPUs the kernel shows."""
    numbers = [number for number in host.names(_INTERRUPTS) if number.isdigit()]
    affinities = [(number, cpulist.parse_or_empty(host.read(interrupt_path(number)))) for number in numbers]
    return [(number, cpus) for number, cpus in affinities if cpus]


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
