# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hypervisor shows this machine to the kernel, from files alone.

A guest's topology is what its hypervisor tells, which need not be the truth; so who asks about siblings has to know that it is a guest.
"""

from __future__ import annotations

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo

UNNAMED = "unknown"
"""There is a hypervisor, and nothing tells which."""

_HEAD = 8192
_DMI = ("sys_vendor", "product_name", "bios_vendor", "board_vendor")
_DMI_NAMES = (
    ("VMware", "vmware"),
    ("VirtualBox", "virtualbox"),
    ("innotek", "virtualbox"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Bochs", "bochs"),
    ("Xen", "xen"),
    ("Virtual Machine", "hyperv"),
    ("Google Compute Engine", "kvm"),
    ("Amazon EC2", "amazon"),
    ("Apple Virtualization", "apple"),
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("QEMU", "qemu"),
)
_CLOCK_NAMES = (("kvm-clock", "kvm"), ("hyperv_clocksource", "hyperv"), ("xen", "xen"))
_DEVICE_TREE_NAMES = (("xen", "xen"), ("vmware", "vmware"), ("kvm", "kvm"), ("qemu", "qemu"), ("dummy-virt", "qemu"))


def detect(fs):
    """The name of the hypervisor (str), `UNNAMED`, or None on a machine of its own or where nothing tells of one.

    Sources, the first that answers: /sys/hypervisor/type (Xen), /proc/sysinfo (s390), the clock sources and the `hypervisor` flag with the DMI names
    (x86), DMI alone (arm64), the device tree and `platform` of /proc/cpuinfo (POWER, arm).

    Args:
        fs: `files.HostFs`.
    """
    kind = _word(fs, "sys/hypervisor/type")
    if kind:
        return kind
    sysinfo = fs.read("proc/sysinfo")
    if sysinfo:
        return _of_s390(sysinfo)
    fields = cpuinfo.first(fs.head("proc/cpuinfo", _HEAD) or "")
    if "flags" in fields:
        return _of_x86(fs) if "hypervisor" in fields["flags"].split() else None
    return _of_dmi(fs) or _of_device_tree(fs) or ("phyp" if "pSeries" in _platform(fs) else None)


def _of_x86(fs):
    clocks = fs.read("sys/devices/system/clocksource/clocksource0/available_clocksource") or ""
    return _first_match(clocks, _CLOCK_NAMES) or _of_dmi(fs) or UNNAMED


def _of_dmi(fs):
    return _first_match("\n".join(fs.read("sys/class/dmi/id/" + name) or "" for name in _DMI), _DMI_NAMES)


def _of_device_tree(fs):
    texts = [fs.read("proc/device-tree/" + name) or "" for name in ("hypervisor/compatible", "compatible", "model")]
    return _first_match("\n".join(texts), _DEVICE_TREE_NAMES)


def _of_s390(sysinfo):
    """`VMnn Control Program` names z/VM or KVM; without one the machine is a logical partition of PR/SM, which also hands out CPUs."""
    programs = [line.partition(":")[2] for line in sysinfo.split("\n") if line.startswith("VM") and "Control Program" in line]
    if programs:
        return _first_match(programs[0], (("KVM", "kvm"), ("z/VM", "zvm"))) or UNNAMED
    return "pr/sm" if "LPAR" in sysinfo else None


def _platform(fs):
    """The end of /proc/cpuinfo on POWER, where the machine stands behind the last CPU."""
    text = fs.read("proc/cpuinfo") or ""
    return "\n".join(line for line in text[-_HEAD:].split("\n") if line.startswith(("platform", "machine")))


def _first_match(text, names):
    return next((name for part, name in names if part in text), None)


def _word(fs, path):
    return (fs.read(path) or "").strip(" \t\r\n\0")
