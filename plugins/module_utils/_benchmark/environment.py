# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a measurement: the kernel, the processor, the frequency governor and the load average."""

import os
import platform

from ansible_collections.threadwise.smt.plugins.module_utils._facts import processors
from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, files


def read(hypervisor: "str | None" = None) -> "dict[str, str | float | None]":
    """Return the current environment of this host.

    Args:
        hypervisor: the hypervisor's name from the facts, or None.
    """
    fs = files.HostFs("/")
    fields = cpuinfo.read_first(fs)
    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "cmdline": (fs.read("proc/cmdline") or "").strip(),
        "governor": (fs.read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or "").strip() or None,
        "hypervisor": hypervisor,
        "load_average": round(os.getloadavg()[0], 2),
        "cpu_model": processors.model(fields),
        "microcode": fields.get("microcode") or None,
        "nominal_mhz": processors.nominal_mhz(fs, fields),
    }


def read_changing() -> "dict[str, str | float | None]":
    """Return the part of the environment that can change between blocks: the governor and the microcode version."""
    now = read()
    return {key: now[key] for key in ("governor", "microcode")}
