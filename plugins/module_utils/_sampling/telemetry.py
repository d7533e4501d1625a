# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the host did during a sample beside the work: usage of its cores, frequency, throttling, counters; and how busy others keep it."""

from __future__ import annotations

import contextlib
import re
import time

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import LARGE, HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._sampling import perf_counters, runner

CPU = "sys/devices/system/cpu/cpu%d/"
FREQUENCY = CPU + "cpufreq/scaling_cur_freq"
CORE_THROTTLES = CPU + "thermal_throttle/core_throttle_count"
# So long the plan stands still before a block, to see what others do.
LOOK_SECONDS = 0.25
# Others that use more than this share of all CPUs' time disturb what is measured.
BUSY_SHARE = 0.1


class Recorder:
    """Records beside samples of one host.

    Args:
        cores: CPU tuples, one a core, offline siblings included.
        filesystem: the host's files.
    """

    def __init__(self, cores, filesystem=None):
        self._cores = tuple(cores)
        self._files = filesystem or HostFs("/")
        self._no_counters = perf_counters.why_not()

    @contextlib.contextmanager
    def around(self, workers, record):
        """Record while the body runs, and add to ``record`` (a dict): ``frequency``, ``throttled`` and ``perf``.

        Args:
            workers: the workers' CPU lists.
        """
        cpus = sorted({cpu for worker in workers for cpu in worker} or {int(cpu) for cpu in runner.cpu_times()})
        speeds, throttles = frequencies(self._files, cpus), self._throttles(cpus)
        with contextlib.nullcontext() if self._no_counters else perf_counters.Counting(cpus) as counting:
            yield
        after, throttled = frequencies(self._files, cpus), self._throttles(cpus)
        record["frequency"] = {cpu: round((speeds[cpu] + after[cpu]) / 2, 1) for cpu in speeds if cpu in after}
        record["throttled"] = sum(max(0, throttled[core] - throttles[core]) for core in throttles if core in throttled) if throttles else None
        record["perf"] = self._counted(counting)

    def core_usage(self, cpu_usage):
        """Usage of each core: the mean of its online threads' usage.

        Args:
            cpu_usage: {CPU number as str: 0..1}, as the runner gives it.

        Returns:
            {"0,4": 0..1}: the key names the core's online CPUs.
        """
        found = {}
        for core in self._cores:
            online = [str(cpu) for cpu in core if str(cpu) in cpu_usage]
            if online:
                found[",".join(online)] = round(sum(cpu_usage[cpu] for cpu in online) / len(online), 4)
        return found

    def _counted(self, counting):
        if counting is None:
            return {"reason": self._no_counters}
        counts = perf_counters.parse(counting.text)
        return perf_counters.by_core(counts, self._cores) if counts else {"reason": "perf counted nothing during this sample"}

    def _throttles(self, cpus):
        """{core: throttle events so far}, of the cores of these CPUs; the siblings of a core show the same counter."""
        found = {}
        for core in self._cores:
            count = _number(self._files.read(CORE_THROTTLES % next((cpu for cpu in core if cpu in cpus), -1)))
            if count is not None:
                found[core] = int(count)
        return found


def frequencies(filesystem, cpus):
    """{CPU number as str: MHz}, now, of the CPUs that tell: by cpufreq, else by /proc/cpuinfo."""
    told = {str(cpu): _number(filesystem.read(FREQUENCY % cpu)) for cpu in cpus}
    found = {cpu: kilohertz / 1000 for cpu, kilohertz in told.items() if kilohertz}
    if found:
        return found
    cpuinfo = filesystem.read("proc/cpuinfo", LARGE) or ""
    wanted = set(told)
    pairs = re.findall(r"(?m)^processor\s*:\s*(\d+)$(?:\n(?!processor\b).*)*?\ncpu MHz\s*:\s*([0-9.]+)$", cpuinfo)
    return {cpu: float(megahertz) for cpu, megahertz in pairs if cpu in wanted and _number(megahertz)}


def load_by_others():
    """Share (0..1) of all online CPUs' time that was used, or taken by the hypervisor, while the plan stood still."""
    before = runner.cpu_times()
    time.sleep(LOOK_SECONDS)
    usage, _steal = runner.cpu_usage(before, runner.cpu_times())
    return round(sum(usage.values()) / len(usage), 4) if usage else 0.0


def too_busy(others):
    """A sentence about a host on which others disturb what is measured, or None."""
    if others <= BUSY_SHARE:
        return None
    return f"others used {int(round(100 * others))} % of the CPU time before this block: this host is too busy for narrow intervals; measure when it is idle"


def _number(text):
    try:
        return float(text)
    except (TypeError, ValueError):
        return None
