# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The hypervisor that runs this machine, and what a cloud decides about the threads of its cores; by files only, no
cloud is asked.

A guest's topology comes from its hypervisor and may be wrong, so the facts on siblings have to be read with this one.

Sources: the providers' documentation of their instance types and of threads per core (AWS "CPU options for Amazon EC2
instances", Google "Set the number of threads per core", Alibaba "Specify CPU options").
"""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, files as host_files

UNNAMED = "unknown"
"""There is a hypervisor, but its name is not known."""

_Names = t.Iterable[t.Tuple[str, str]]
_TYPE, _SYSINFO = "sys/hypervisor/type", "proc/sysinfo"
_CLOCKS = "sys/devices/system/clocksource/clocksource0/available_clocksource"
_SMBIOS = "sys/firmware/dmi/entries/0-0/raw"
_DMI_DIR, _DMI = "sys/class/dmi/id/", ("sys_vendor", "product_name", "bios_vendor", "board_vendor")
_HYPERV = {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine"}
_DEVICE_TREE = tuple("proc/device-tree/" + name for name in ("hypervisor/compatible", "compatible", "model"))
_DMI_NAMES = (
    ("VMware", "vmware"),
    ("VirtualBox", "virtualbox"),
    ("innotek", "virtualbox"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Bochs", "bochs"),
    ("Xen", "xen"),
    ("Google Compute Engine", "kvm"),
    ("Amazon EC2", "amazon"),
    ("KubeVirt", "kvm"),
    ("Alibaba Cloud", "kvm"),
    ("Nutanix", "kvm"),
    ("Oracle Cloud", "kvm"),
    ("Hetzner", "kvm"),
    ("DigitalOcean", "kvm"),
    ("Apple Virtualization", "apple"),
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("QEMU", "qemu"),
)
# Who has machines of its own under the name of its virtual ones, and how products of these are named.
_CLOUDS = ("amazon", "kvm")
_METAL = re.compile(r"\.metal\b|\bebm|BM\.|bare ?metal", re.IGNORECASE)
_CHARACTERISTICS = 0x13
_CLOCK_NAMES = (("kvm-clock", "kvm"), ("hyperv_clocksource", "hyperv"), ("xen", "xen"))
_WITH_CLOCKS_OF_OTHERS = ("parallels", "virtualbox")
_DEVICE_TREE_NAMES = (("xen", "xen"), ("vmware", "vmware"), ("kvm", "kvm"), ("qemu", "qemu"), ("dummy-virt", "qemu"))
# Who decides about the threads of a core for its machines, by the vendor that SMBIOS names.
_CHOSEN = {
    "Amazon EC2": "EC2 gives an instance its threads per core when it is launched (CpuOptions, ThreadsPerCore)",
    "Google": "Google Cloud gives an instance its threads per core while it is stopped (--threads-per-core)",
    "Alibaba Cloud": "Alibaba Cloud gives an instance its threads per core when it is made (CpuOptions.ThreadsPerCore)",
    "Microsoft Corporation": (
        "the size of a machine in Azure, or HwThreadCountPerCore of Hyper-V, gives its threads per core"
    ),
}
# Families of EC2 of which each CPU is a core: T2, Arm (a1, and those with a g behind the number), AMD since the seventh
# generation, and those for HPC, whose second threads are off.
_EC2_ONE_THREAD = re.compile(r"(?:t2|a1|[a-z]+[0-9]+g[a-z]*|[a-z]+[78]a[a-z]*|hpc[0-9]+[a-z]*)\.[a-z0-9-]+")
_EC2_TYPE = re.compile(r"[a-z0-9-]{2,20}\.[a-z0-9-]{2,20}")


def detect(fs: host_files.HostFs) -> "str | None":
    """Return the name of the hypervisor, `UNNAMED`, or None on bare metal or if no hypervisor is detected.

    The first source with a result is used: /sys/hypervisor/type (Xen), /proc/sysinfo (s390), the clock sources and the
    `hypervisor` flag with the DMI names (x86), DMI alone (arm64), the device tree and `platform` of /proc/cpuinfo
    (POWER, arm).

    Args:
        fs: the host's files
    """
    kind = (fs.read(_TYPE) or "").strip(" \t\r\n\0")
    if kind:
        return kind
    sysinfo = fs.read(_SYSINFO)
    if sysinfo:
        return _of_s390(sysinfo)
    fields = cpuinfo.read_first(fs)
    if "flags" in fields:
        if "hypervisor" in fields["flags"].split():
            return _of_x86(fs)
        # Some hide themselves from what asks the processor. Machines of clouds have the names of their guests.
        hidden = _of_dmi(fs)
        return hidden if hidden not in _CLOUDS or _smbios_virtual(fs) else None
    return _of_dmi(fs) or _of_device_tree(fs) or ("phyp" if "pSeries" in _platform(fs) else None)


def signs(fs: host_files.HostFs) -> "dict[str, str]":
    """Return the files that :func:`detect` goes by beside /proc/cpuinfo, as path -> text, with nothing in them but what
    it looks for: firmware has serial numbers there, and owners put names.

    Args:
        fs: the host's files
    """
    texts = {path: fs.read(path) or "" for path in (_TYPE, _CLOCKS)}
    sysinfo = fs.read(_SYSINFO) or ""
    texts[_SYSINFO] = "\n".join([*_control_programs(sysinfo), *(["LPAR"] if "LPAR" in sysinfo else [])])
    for name, text in _dmi(fs).items():
        metal = _METAL.search(text) if name == "product_name" else None
        known = [part for part, _name in _DMI_NAMES if part in text] + ([metal.group()] if metal else [])
        texts[_DMI_DIR + name] = text if text == _HYPERV.get(name) else " ".join(known)
    is_virtual = _smbios_virtual(fs)
    if is_virtual is not None:
        # Printable bytes with and without the bit.
        texts[_SMBIOS] = "@" * _CHARACTERISTICS + ("P" if is_virtual else "@")
    for path in _DEVICE_TREE:
        texts[path] = " ".join(part for part, _name in _DEVICE_TREE_NAMES if part in (fs.read(path) or ""))
    return {path: text for path, text in texts.items() if text}


def about_threads(fs: host_files.HostFs, supported: "bool | None") -> "str | None":
    """Return how the threads of a core of this machine are chosen where that is not on the host, as a sentence without
    a full stop; None elsewhere.

    Args:
        fs: the host's files.
        supported: whether the machine has SMT, as the facts say it.
    """
    vendor, product = (
        (fs.read(_DMI_DIR + "sys_vendor") or "").strip(),
        (fs.read(_DMI_DIR + "product_name") or "").strip(),
    )
    chosen = _CHOSEN.get(vendor)
    if supported is not False or chosen is None:
        return None
    if vendor == "Amazon EC2" and _EC2_TYPE.fullmatch(product):
        if product.endswith(".metal") or ".metal-" in product:
            return f"{product} of EC2 is a machine of its own: it has the threads of its processor"
        if _EC2_ONE_THREAD.fullmatch(product):
            return f"each CPU of {product} of EC2 is a core, by its type: another type has two threads a core"
    return chosen


def _of_x86(fs: host_files.HostFs) -> str:
    clocks = fs.read(_CLOCKS) or ""
    by_clock, by_name = _first_match(clocks, _CLOCK_NAMES), _of_dmi(fs)
    # Some hypervisors offer guests the interfaces of KVM, and KVM those of Hyper-V.
    if by_name in _WITH_CLOCKS_OF_OTHERS or (by_clock == "hyperv" and by_name in ("kvm", "qemu")):
        return "kvm" if by_name == "qemu" else by_name
    return by_clock or by_name or UNNAMED


def _of_dmi(fs: host_files.HostFs) -> "str | None":
    """Return the hypervisor by SMBIOS: the name that vendor and product give, unless the machine says that it is none.

    Clouds have machines of their own under the same vendor: their product is named so, and SMBIOS has a bit for what is
    a virtual machine (DMTF DSP0134, type 0, second byte of the extended characteristics).
    """
    texts = _dmi(fs)
    if _HYPERV.items() <= texts.items():
        return "hyperv"
    name = _first_match("\n".join(texts.values()), _DMI_NAMES)
    is_virtual = _smbios_virtual(fs)
    if name is None:
        return UNNAMED if is_virtual else None
    on_metal = is_virtual is False or _METAL.search(texts["product_name"]) is not None
    return None if name in _CLOUDS and on_metal and not is_virtual else name


def _dmi(fs: host_files.HostFs) -> "dict[str, str]":
    return {name: (fs.read(_DMI_DIR + name) or "").strip() for name in _DMI}


def _smbios_virtual(fs: host_files.HostFs) -> "bool | None":
    """Return the bit of SMBIOS for virtual machines; None where only root may read it, or it is not there."""
    raw = fs.raw(_SMBIOS, 4096)
    return None if raw is None or len(raw) <= _CHARACTERISTICS else bool(raw[_CHARACTERISTICS] & 0x10)


def _of_device_tree(fs: host_files.HostFs) -> "str | None":
    return _first_match("\n".join(fs.read(path) or "" for path in _DEVICE_TREE), _DEVICE_TREE_NAMES)


def _of_s390(sysinfo: str) -> "str | None":
    """Return z/VM or KVM from `VMnn Control Program`.

    Without that line the machine is a logical partition of PR/SM, which also assigns CPUs.
    """
    programs = _control_programs(sysinfo)
    if programs:
        return _first_match(programs[0].partition(":")[2], (("KVM", "kvm"), ("z/VM", "zvm"))) or UNNAMED
    return "pr/sm" if "LPAR" in sysinfo else None


def _control_programs(sysinfo: str) -> "list[str]":
    return [line for line in sysinfo.split("\n") if line.startswith("VM") and "Control Program" in line]


def _platform(fs: host_files.HostFs) -> str:
    """Return the platform in /proc/cpuinfo. On POWER it is after the last CPU."""
    common, blocks = cpuinfo.read(fs)
    fields = dict(common, **list(blocks.values())[-1]) if blocks else common
    return "\n".join(fields.get(name, "") for name in ("platform", "machine"))


def _first_match(text: str, names: _Names) -> "str | None":
    for part, name in names:
        if part in text:
            return name
    return None
