# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What else belongs to a measurement: the kernel, the processor, the governor, the load by others."""

from __future__ import annotations

import os
import platform
import re

CPUINFO = {"cpu_model": r"^(?:model name|cpu|Processor)\s*:\s*(.+)$", "microcode": r"^microcode\s*:\s*(\S+)"}
CPUINFO_HEAD = 16 * 1024


def read(hypervisor: str | None = None) -> dict[str, str | float | None]:
    """The environment of this host, now: a dict of str, float or None.

    Args:
        hypervisor: its name as the facts have it.
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


def changing() -> dict[str, str | float | None]:
    """What of the environment may change from block to block: a dict of str or None."""
    now = read()
    return {key: now[key] for key in ("governor", "microcode")}


def _head(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as text:
            return text.read(CPUINFO_HEAD)
    except OSError:
        return ""
