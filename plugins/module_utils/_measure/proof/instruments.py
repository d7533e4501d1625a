# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""What there is on a host to measure with, how fine it is, and what it costs.

Sources: clock_gettime(2) and Documentation/timers/highres.rst for clocks and timers, Documentation/scheduler/
sched-stats.rst for /proc/schedstat; the others as in the packages that use them.
"""

import os
import statistics
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.sampling import (
    energy,
    perf_counters,
    runner,
    telemetry,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import tracing

# How often each is read, and so how often a sample reads it: once before and once after.
READS = 5
READS_A_SECOND = 2
# A clock or a timer with coarser steps makes each sample of half a second uncertain by more than half a percent.
MAX_STEP_SECONDS = 0.0025
CLOCK_READS, SLEEPS, SLEEP_SECONDS = 2000, 9, 0.001
CLOCK_SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"
SCHEDSTATS = "proc/sys/kernel/sched_schedstats"


class Instrument(t.NamedTuple):
    """Something to measure with.

    Attributes:
        name: for people.
        reason: why it cannot be used; None where it can.
        detail: what it is here: a source, a step; empty for nothing of note.
        cost: the share of a CPU that it takes at the pace of an evaluation; None where it was not read.
    """

    name: str
    reason: "str | None"
    detail: str = ""
    cost: "float | None" = None


def try_all(fs: HostFs) -> "list[Instrument]":
    """Try each instrument of this host.

    Args:
        fs: the host's files.
    """
    cpus = sorted(map(int, runner.cpu_times()))
    counters = energy.Energy(fs)
    return [
        _clock(fs),
        _timer(),
        _read("usage of CPUs", lambda: bool(runner.cpu_times()), "the host has no /proc/stat"),
        _read(
            "frequency",
            lambda: bool(telemetry.frequencies(fs, cpus)),
            "neither cpufreq nor /proc/cpuinfo has it",
        ),
        _read(
            "energy of the packages",
            lambda: bool(counters.read().counts),
            "the kernel has no counter of it (powercap), or only root may read it",
        ),
        _perf(),
        _schedstat(fs),
        _switches(),
    ]


def _clock(fs: HostFs) -> Instrument:
    """Return the finest step of the clock that samples are timed with."""
    times = [time.monotonic() for _read_again in range(CLOCK_READS)]
    # A coarse one does not move in this time.
    end = time.monotonic() + 0.05
    while times[-1] == times[0] and time.monotonic() < end:
        times.append(time.monotonic())
    steps = [after - before for before, after in zip(times, times[1:]) if after > before]
    step = max(statistics.median(steps) if steps else 1.0, time.get_clock_info("monotonic").resolution)
    source = (fs.read(CLOCK_SOURCE) or "").strip()[:40]
    return Instrument("clock", _coarse(step), f"{source or 'source not known'}, steps of {_short(step)}")


def _timer() -> Instrument:
    """Return how late a process wakes up that asks for a millisecond: a kernel without high resolution timers
    counts in ticks.
    """
    late = []
    for _again in range(SLEEPS):
        begun = time.monotonic()
        time.sleep(SLEEP_SECONDS)
        late.append(time.monotonic() - begun - SLEEP_SECONDS)
    typical = max(0.0, statistics.median(late))
    return Instrument("timer", _coarse(typical), f"a sleep of 1 ms ends {_short(typical)} late")


def _coarse(seconds: float) -> "str | None":
    if seconds <= MAX_STEP_SECONDS:
        return None
    return f"it is coarse, {_short(seconds)}: samples have to be {seconds / MAX_STEP_SECONDS:.0f} times as long"


def _short(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms" if seconds >= 1e-4 else f"{1e6 * seconds:.1f} us"


def _read(name: str, read: "t.Callable[[], bool]", reason: str) -> Instrument:
    """Return an instrument that is read in this process, with what reading takes."""
    begun = time.process_time()
    works = [read() for _again in range(READS)]
    cost = (time.process_time() - begun) / READS * READS_A_SECOND
    return Instrument(name, None, "", round(cost, 6)) if all(works) else Instrument(name, reason)


def _perf() -> Instrument:
    before = _time_of_children()
    reason = perf_counters.unavailable_reason()
    cost = (_time_of_children() - before) * READS_A_SECOND / 2
    return Instrument("cycles and instructions (perf)", reason, "", None if reason else round(cost, 6))


def _time_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _schedstat(fs: HostFs) -> Instrument:
    name = "waiting times of the scheduler (schedstat)"
    if fs.read("proc/schedstat") is None:
        return Instrument(name, "the kernel was built without it (CONFIG_SCHEDSTATS)")
    switched = (fs.read(SCHEDSTATS) or "").strip()
    return Instrument(name, "kernel.sched_schedstats is 0" if switched == "0" else None)


def _switches() -> Instrument:
    name = "switches of the scheduler (tracefs)"
    try:
        with tracing.Instance() as instance:
            instance.window(0.01)
    except tracing.TracingError as error:
        return Instrument(name, str(error)[:300])
    return Instrument(name, None)
