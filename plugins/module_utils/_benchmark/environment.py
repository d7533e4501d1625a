# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a measurement: the kernel, the processor, the frequency governor and the load average."""

import os
import platform
import re
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, files

# Fields of /proc/cpuinfo, the first that there is, by name in the environment.
_CPUINFO = {"cpu_model": ("model name", "cpu", "Processor"), "microcode": ("microcode",)}


# Where a model's name ends with its nominal frequency.
_NOMINAL = re.compile(r"@ ([0-9]{1,2}\.[0-9]{1,3}) ?GHz")


def read(hypervisor: "str | None" = None) -> "dict[str, str | float | None]":
    """Return the current environment of this host.

    Args:
        hypervisor: the hypervisor's name from the facts, or None.
    """
    fs = files.HostFs("/")
    fields = cpuinfo.read_first(fs)
    environment: dict[str, t.Union[str, float, None]] = {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "cmdline": (fs.read("proc/cmdline") or "").strip(),
        "governor": (fs.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "").strip() or None,
        "hypervisor": hypervisor,
        "load_average": round(os.getloadavg()[0], 2),
    }
    for name, names in _CPUINFO.items():
        environment[name] = next(filter(None, map(fields.get, names)), None)
    environment["nominal_mhz"] = _nominal_mhz(fs, environment["cpu_model"])
    return environment


def _nominal_mhz(fs: files.HostFs, model: object) -> "float | None":
    """Return the nominal frequency of CPU 0 in MHz, or None.

    It is that of intel_pstate and of amd_pstate (base_frequency, in kHz), or the one in the processor's name.
    """
    kilohertz = (fs.read("sys/devices/system/cpu/cpu0/cpufreq/base_frequency") or "").strip()
    if kilohertz.isdecimal() and 0 < int(kilohertz) < 10**9:
        return int(kilohertz) / 1000
    named = _NOMINAL.search(str(model))
    return round(float(named.group(1)) * 1000, 3) if named else None


def read_changing() -> "dict[str, str | float | None]":
    """Return the part of the environment that can change between blocks: the governor and the microcode version."""
    now = read()
    return {key: now[key] for key in ("governor", "microcode")}
