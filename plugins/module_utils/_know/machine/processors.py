# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The name of a host's processor, and its nominal frequency."""

import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import files as host_files

# Fields of /proc/cpuinfo with the name, the first that there is.
_NAMES = ("model name", "cpu", "Processor")
# arm64 has numbers instead: who made it, and which part it is (MIDR_EL1; arch/arm64/include/asm/cputype.h). Those of
# servers, also of the few with SMT.
_ARM_MAKERS = {
    0x41: "Arm",
    0x42: "Broadcom",
    0x43: "Cavium",
    0x46: "Fujitsu",
    0x48: "HiSilicon",
    0x4E: "NVIDIA",
    0x50: "Applied Micro",
    0x51: "Qualcomm",
    0x61: "Apple",
    0x6D: "Microsoft",
    0xC0: "Ampere",
}
_ARM_PARTS = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4A): "Neoverse-E1",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD84): "Neoverse-V3",
    (0x41, 0xD8E): "Neoverse-N3",
    (0x43, 0x0A1): "ThunderX",
    (0x43, 0x0AF): "ThunderX2",
    (0x46, 0x001): "A64FX",
    (0x48, 0xD01): "TaiShan v110",
    (0x50, 0x000): "X-Gene",
    (0x51, 0xC00): "Falkor",
    (0x6D, 0xD49): "Azure Cobalt 100",
    (0xC0, 0xAC3): "AmpereOne",
    (0xC0, 0xAC4): "AmpereOne A",
}
_HEX = re.compile(r"0x[0-9a-fA-F]{1,3}")

_CPU = "sys/devices/system/cpu/cpu0/"
# Where the kernel has the frequency that the maker names, and how many of its units a MHz has: intel_pstate and
# amd_pstate, POWER without a hypervisor (powernv-cpufreq), and ACPI's CPPC, as on Arm servers
# (Documentation/admin-guide/acpi/cppc_sysfs.rst).
_NOMINAL_FILES = (
    (_CPU + "cpufreq/base_frequency", 1000),
    (_CPU + "cpufreq/cpuinfo_nominal_freq", 1000),
    (_CPU + "acpi_cppc/nominal_freq", 1),
)
_MAX_MHZ = 10**6
# Where a model's name ends with its nominal frequency.
_IN_NAME = re.compile(r"@ ([0-9]{1,2}\.[0-9]{1,3}) ?GHz")
# Of a POWER partition: what its hypervisor says (arch/powerpc/kernel/setup-common.c). Where cpufreq runs, the field has
# the present frequency.
_CLOCK = re.compile(r"([0-9]{1,6}\.[0-9]{1,6})MHz")


def model(fields: "t.Mapping[str, str]") -> "str | None":
    """Return the name of a processor, or None where nothing says it.

    Args:
        fields: its fields of /proc/cpuinfo.
    """
    name = next(filter(None, map(fields.get, _NAMES)), None)
    maker, part = (fields.get(field, "") for field in ("CPU implementer", "CPU part"))
    if name is not None or not (_HEX.fullmatch(maker) and _HEX.fullmatch(part)):
        return name
    maker_name = _ARM_MAKERS.get(int(maker, 16), f"implementer {maker}")
    return f"{maker_name} {_ARM_PARTS.get((int(maker, 16), int(part, 16)), f'part {part}')}"


def nominal_mhz(fs: host_files.HostFs, fields: "t.Mapping[str, str]") -> "float | None":
    """Return the nominal frequency of CPU 0 in MHz, or None where neither the kernel nor the processor's name has it.

    Args:
        fs: the host's files.
        fields: the CPU's fields of /proc/cpuinfo.
    """
    for path, units in _NOMINAL_FILES:
        number = (fs.read(path) or "").strip()
        if number.isdecimal() and 0 < int(number) < _MAX_MHZ * units:
            return int(number) / units
    named = _IN_NAME.search(model(fields) or "")
    if named is not None:
        return round(float(named.group(1)) * 1000, 3)
    clock = _CLOCK.fullmatch(fields.get("clock", ""))
    return float(clock.group(1)) if clock is not None and fs.status(_CPU + "cpufreq") is None else None
