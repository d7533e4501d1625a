# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a measurement: the kernel, the processor, the frequency governor and the load average."""

import os
import platform
import time

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo, files
from ansible_collections.threadwise.smt.plugins.module_utils._know.machine import processors
from ansible_collections.threadwise.smt.plugins.module_utils._measure.arms import frequency
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import quotas, runner, telemetry

# How often other work is looked at before a plan, and the pause before each look, in seconds.
LOOKS, PAUSE = 5, 0.1


def boost(fs: files.HostFs) -> "bool | None":
    """Return whether CPUs may run faster than their nominal frequency; None where the kernel does not say it."""
    for arm in (frequency.Turbo, frequency.Boost):
        value = (fs.read(arm.path) or "").strip()
        if value in ("0", "1"):
            return int(value) == arm.on
    return None


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
        "boost": boost(fs),
        "hypervisor": hypervisor,
        "load_average": round(os.getloadavg()[0], 2),
        "cpu_model": processors.model(fields),
        "microcode": fields.get("microcode") or None,
        "nominal_mhz": processors.nominal_mhz(fs, fields),
        "cpu_quota": min((quota.cpus for quota in quotas.read(fs)), default=None),
    }


def read_changing() -> "dict[str, str | float | None]":
    """Return the part of the environment that can change between blocks: the governor and the microcode version."""
    now = read()
    return {key: now[key] for key in ("governor", "microcode")}


def wanted_by_others() -> "tuple[float, int]":
    """Return how many CPUs other work wants now, and how many there are online: CPU time alone shows no more than the
    CPUs have.
    """
    fs = files.HostFs("/")
    before, runnable = runner.cpu_times(), []
    for _look in range(LOOKS):
        time.sleep(PAUSE)
        # This process is one of them.
        counts = [line.split()[1] for line in (fs.read("proc/stat") or "").splitlines() if line.startswith("procs_r")]
        runnable += [int(count) - 1 for count in counts if count.isdigit()]
    usage, steal = runner.cpu_usage(before, runner.cpu_times())
    used = sum(usage.values()) + (steal or 0.0) * len(usage)
    return round(max(used, sum(runnable) / len(runnable) if runnable else 0.0), 2), max(1, len(usage))


def announcement(wanted: float, cpus: int, governor: "str | None") -> "list[str]":
    """Return what will widen the intervals of a plan that begins now, as sentences for people.

    Args:
        wanted: CPUs that other work wants.
        cpus: number of CPUs online.
        governor: the frequency governor, or None.
    """
    sentences = []
    if wanted > telemetry.BUSY_SHARE * cpus:
        sentences.append(
            f"Busy now: other work wants {wanted:.1f} of {cpus} CPUs, so intervals will be wide. Wait until the host is"
            " quiet, as smt_eval does with smt_eval_wait_quiet=10m, go on, or end the plan (smt_eval_stop)."
        )
    if governor not in (None, "performance"):
        sentences.append(f"The frequency governor is {governor}: with performance samples vary less.")
    return sentences
