# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a measurement: the kernel, the processor, the frequency governor and the load average."""

from __future__ import annotations

import os
import platform
import re

CPUINFO = {"cpu_model": r"^(?:model name|cpu|Processor)\s*:\s*(.+)$", "microcode": r"^microcode\s*:\s*(\S+)"}
CPUINFO_HEAD = 16 * 1024


def read(hypervisor: str | None = None) -> dict[str, str | float | None]:
    """Return the current environment of this host.

    Args:
        hypervisor: the hypervisor's name from the facts, or None.
    """
    cpuinfo = _head("/proc/cpuinfo")
    environment: dict[str, str | float | None] = {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "cmdline": _head("/proc/cmdline").strip(),
        "governor": _head("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None,
        "hypervisor": hypervisor,
        "load_average": round(os.getloadavg()[0], 2),
    }
    for name, pattern in CPUINFO.items():
        found = re.search(pattern, cpuinfo, re.MULTILINE)
        environment[name] = found.group(1).strip() if found else None
    return environment


def read_changing() -> dict[str, str | float | None]:
    """Return the part of the environment that can change between blocks: the governor and the microcode version."""
    now = read()
    return {key: now[key] for key in ("governor", "microcode")}


def _head(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as text:
            return text.read(CPUINFO_HEAD)
    except OSError:
        return ""
