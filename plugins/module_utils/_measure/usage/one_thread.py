# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of a core's busy time one of its two threads ran alone, as the processor itself counts it over the whole
time: events of Intel's processors and of IBM Z, which perf knows by name.

What the events of Intel count is in tools/perf/pmu-events/arch/x86, whose metric SMT_2T_Utilization is the same; an
event with ``any`` of its formula is not used, because a thread in deep sleep does not count it. Those of IBM Z are the
MT-diagnostic counter set, by which the kernel scales CPU times (arch/s390/kernel/vtime.c).
"""

import functools
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpuinfo
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import perf_counters

# Two counters do not start and end at the same time.
TOLERANCE = 0.02


class Pair(t.NamedTuple):
    """Two events, which are counted at the same time.

    Attributes:
        alone: counts while a thread runs and its sibling does not.
        other: the second one.
        unit: of the processor's units, whose events they are; empty for that of its CPUs.
        busy: the busy time of a core, of the sums of both over its threads.
    """

    alone: str
    other: str
    unit: str
    busy: "t.Callable[[float, float], float]"


def _distributed(_alone: float, other: float) -> float:
    """Each cycle is counted for the one thread that runs, or by half for each of two."""
    return other


def _of_threads(alone: float, other: float) -> float:
    """Each thread counts while it runs: those with both count twice, and once more with those alone all do."""
    return (alone + other) / 2


def _together(alone: float, other: float) -> float:
    """The second event counts while both run."""
    return alone + other


# From Ice Lake on; from Sandy Bridge to Skylake, under two names.
INTEL = (
    Pair("cpu_clk_unhalted.one_thread_active", "cpu_clk_unhalted.ref_distributed", "", _distributed),
    Pair("cpu_clk_unhalted.one_thread_active", "cpu_clk_unhalted.ref_xclk", "", _of_threads),
    Pair("cpu_clk_thread_unhalted.one_thread_active", "cpu_clk_thread_unhalted.ref_xclk", "", _of_threads),
)
# From z13 on.
IBM_Z = Pair("MT_DIAG_CYCLES_ONE_THR_ACTIVE", "MT_DIAG_CYCLES_TWO_THR_ACTIVE", "cpum_cf", _together)


class Counting:
    """Context manager that counts while its body runs, where the host has such events.

    Args:
        fs: the host's files.
        cores: the online CPUs of each core.

    Attributes:
        alone: after its end, by core, the share of its busy time in which one of its threads ran alone; empty where
            nothing was counted.
        reason: why a processor that has such events did not count them; None where it did, and where it has none.
    """

    def __init__(self, fs: HostFs, cores: "t.Iterable[tuple[int, ...]]") -> None:
        self._cores = [core for core in cores if len(core) == 2]
        self.alone: t.Dict[t.Tuple[int, ...], float] = {}
        self.reason: t.Optional[str] = None
        self._pair: t.Optional[Pair] = None
        self._counting: t.Optional[perf_counters.Counting] = None
        for pair in _known(fs) if self._cores else ():
            self.reason = perf_counters.refusal(_named(pair), functools.partial(_counted, pair=pair))
            if self.reason is None:
                self._pair = pair
                break

    def __enter__(self) -> "Counting":
        """Start counting."""
        if self._pair is not None:
            cpus = sorted(cpu for core in self._cores for cpu in core)
            self._counting = perf_counters.Counting(cpus, _named(self._pair))
            self._counting.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        """Stop, and keep what was counted."""
        if self._pair is None or self._counting is None:
            return
        self._counting.__exit__(*raised)
        self.alone = shares(self._counting.text, self._pair, self._cores)
        if not self.alone:
            self.reason = f"perf counted no {self._pair.alone}, or more of it than there was"


def shares(text: str, pair: Pair, cores: "t.Iterable[tuple[int, ...]]") -> "dict[tuple[int, ...], float]":
    """Return, by core, the share of its busy time in which one thread ran alone, of what perf printed; without the
    cores that were idle, or whose counters contradict each other.
    """
    counts = _counted(text, pair)
    by_cpu = {}
    for core in cores:
        each = [counts[str(cpu)] for cpu in core if str(cpu) in counts]
        if len(each) != len(core):
            continue
        alone, other = (sum(of_cpu[name] for of_cpu in each) for name in (pair.alone, pair.other))
        busy = pair.busy(alone, other)
        if busy > 0 and alone <= busy * (1 + TOLERANCE):
            by_cpu[core] = min(1.0, alone / busy)
    return by_cpu


def _counted(text: str, pair: Pair) -> "dict[str, dict[str, float]]":
    """Return the counts of both events by CPU, of those that have both."""
    names = (pair.alone, pair.other)
    counts = perf_counters.counted(text, names)
    return {cpu: events for cpu, events in counts.items() if set(events) == set(names)}


def _known(fs: HostFs) -> "tuple[Pair, ...]":
    """Return the pairs that a host's processor may have; without a unit that counts there are none."""
    units = fs.names("sys/bus/event_source/devices")
    if IBM_Z.unit in units:
        return (IBM_Z,)
    if not any(unit in units for unit in perf_counters.UNITS):
        return ()
    processor = cpuinfo.read_first(fs)
    # The other thread of a virtual machine's CPU can be another machine's.
    is_guest = "hypervisor" in processor.get("flags", "").split()
    return INTEL if processor.get("vendor_id") == "GenuineIntel" and not is_guest else ()


def _named(pair: Pair) -> str:
    """Return the events as ``perf stat -e`` takes them, together or not at all."""
    names = (f"{pair.unit}/{event}/" if pair.unit else event for event in (pair.alone, pair.other))
    return f"{{{','.join(names)}}}"
