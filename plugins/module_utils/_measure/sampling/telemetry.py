# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the host did while a sample ran: usage of its cores, frequency, throttling, counters;
and how much CPU time other processes used.
"""

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import energy, perf_counters, runner

# How long the plan pauses before a block to measure the load of other processes.
OBSERVATION_SECONDS = 0.25
# Other processes that use a larger share of all CPUs' time disturb the measurement.
BUSY_SHARE = 0.1


class NoCounts(TypedDict):
    """Why a sample has no counts of cycles and instructions."""

    reason: "str | None"


class Recorder:
    """Records what one host does while samples run.

    Args:
        cores: the CPUs of each core, offline siblings included.
        filesystem: the host's files; None stands for those of the running system.
    """

    def __init__(self, cores: "Iterable[tuple[int, ...]]", filesystem: "HostFs | None" = None) -> None:
        self._cores = tuple(cores)
        self._files = filesystem or HostFs("/")
        self._energy = energy.Energy(self._files)
        self._no_counters = perf_counters.unavailable_reason()
        self._events = perf_counters.events(self._files)

    @contextlib.contextmanager
    def around(self, workers: "Iterable[Iterable[int]]", record: "dict[str, object]") -> "Iterator[None]":
        """Record while the body runs.

        Args:
            workers: the workers' CPU lists.
            record: gets the keys ``frequency`` (mean MHz by CPU number), ``throttled`` (number of throttle events, or
                None when the host does not report them), ``joules`` (energy of the processor's packages, or None when
                it is not counted or this process may not read it) and ``perf`` (cycles and instructions, and
                why threads waited, or the reason why there are none) when the body has ended without an exception.

        Yields:
            Nothing.
        """
        cpus = sorted({cpu for worker in workers for cpu in worker} or {int(cpu) for cpu in runner.cpu_times()})
        before, throttles = frequencies(self._files, cpus), self._throttles(cpus)
        with contextlib.ExitStack() as stack:
            counting = None if self._no_counters else stack.enter_context(perf_counters.Counting(cpus, self._events))
            counts = self._energy.read()
            yield
            record["joules"] = self._energy.joules(counts, self._energy.read())
        after, throttled = frequencies(self._files, cpus), self._throttles(cpus)
        record["frequency"] = {cpu: round((before[cpu] + after[cpu]) / 2, 1) for cpu in before if cpu in after}
        record["throttled"] = (
            sum(max(0, throttled[core] - throttles[core]) for core in throttles if core in throttled)
            if throttles
            else None
        )
        record["perf"] = self._counted(counting)

    def core_usage(self, cpu_usage: "Mapping[str, float]") -> "dict[str, float]":
        """Compute the usage of each core: the mean of the usage of its online threads.

        Args:
            cpu_usage: usage (0..1) by CPU number, as ``runner.run`` returns it.

        Returns:
            Usage (0..1) by the core's online CPUs, joined by commas (``0,4``).
        """
        usage = {}
        for core in self._cores:
            online = [str(cpu) for cpu in core if str(cpu) in cpu_usage]
            if online:
                usage[",".join(online)] = round(sum(cpu_usage[cpu] for cpu in online) / len(online), 4)
        return usage

    def _counted(self, counting: "perf_counters.Counting | None") -> "perf_counters.CoreRates | NoCounts":
        if counting is None:
            return {"reason": self._no_counters}
        counts = perf_counters.parse(counting.text)
        return (
            perf_counters.by_core(counts, self._cores)
            if counts
            else {"reason": "perf counted nothing during this sample"}
        )

    def _throttles(self, cpus: "Collection[int]") -> "dict[tuple[int, ...], int]":
        """Return the throttle events so far of each core of these CPUs;
        the siblings of a core show the same counter.
        """
        counts = {}
        for core in self._cores:
            cpu = next((cpu for cpu in core if cpu in cpus), -1)
            count = _number(self._files.read(_cpu_file(cpu, "thermal_throttle/core_throttle_count")))
            if count is not None:
                counts[core] = int(count)
        return counts


def _cpu_file(cpu: int, name: str) -> str:
    return f"sys/devices/system/cpu/cpu{cpu}/{name}"


def frequencies(filesystem: HostFs, cpus: "Iterable[int]") -> "dict[str, float]":
    """Read the present frequency of CPUs: from cpufreq, or from /proc/cpuinfo where there is no cpufreq.

    Args:
        filesystem: the host's files.
        cpus: the CPUs to look at.

    Returns:
        MHz by CPU number, for the CPUs whose frequency the host reports.
    """
    kilohertz = {str(cpu): _number(filesystem.read(_cpu_file(cpu, "cpufreq/scaling_cur_freq"))) for cpu in cpus}
    in_megahertz = {cpu: value / 1000 for cpu, value in kilohertz.items() if value}
    if in_megahertz:
        return in_megahertz
    blocks = cpuinfo.read(filesystem).blocks
    megahertz = {str(cpu): _number(fields.get("cpu MHz")) for cpu, fields in blocks.items()}
    return {cpu: value for cpu, value in megahertz.items() if value and cpu in kilohertz}


def load_by_others() -> float:
    """Return the share (0..1) of all online CPUs' time that other processes or the hypervisor used while the plan
    paused.
    """
    before = runner.cpu_times()
    time.sleep(OBSERVATION_SECONDS)
    usage, _steal = runner.cpu_usage(before, runner.cpu_times())
    return round(sum(usage.values()) / len(usage), 4) if usage else 0.0


def too_busy(others: float) -> "str | None":
    """Return a warning when other processes disturb the measurement, or None.

    Args:
        others: share (0..1) of all CPUs' time, as ``load_by_others`` returns it.
    """
    if others <= BUSY_SHARE:
        return None
    return (
        f"others used {round(100 * others)} % of the CPU time before this block: this host is too busy for narrow"
        " confidence intervals; measure when it is idle"
    )


def _number(text: "str | None") -> "float | None":
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return None
