# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at how a host's cores are used: its counters over a time, and random short windows of the scheduler's
switches where it has them.
"""

import math
import random
import statistics
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._host.files import HostFs
from ansible_collections.threadwise.smt.plugins.module_utils._measure.statistics import distributions
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage import (
    cores as usage_cores,
    counters,
    one_thread,
    purr,
    room,
    shared,
    tracing,
    units,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Core, Span

CONFIDENCE = 0.95
# With fewer windows nothing is said of how they vary.
MIN_WINDOWS = 5
# A window is made shorter where a buffer was full, or where it held more switches than this: reading them costs CPU.
MAX_SWITCHES = 20_000
MIN_WINDOW_SECONDS = 0.02
# How far the usages of a time between windows have to be above their median, in deviations and at least, to be a burst.
FAR, LEAST_BURST = 3.0, 0.01
# Seconds between two reads of the counters while nothing is watched.
READ_SECONDS = 10.0
HOUR = 3600.0
# The most units and pairs of units that are named.
MAX_NAMED = 50
SWITCHES, COUNTERS = "switches", "counters"
# What true use rests on: the kernel's busy times, POWER's PURR, the time with one busy thread of Intel and IBM Z.
STAT, PURR, ONE_THREAD = "proc_stat", "purr", "one_thread_active"


class Plan(t.NamedTuple):
    """How to look.

    Attributes:
        seconds: the length of the look.
        windows: how many windows there are in it; 0 for counters only.
        window_seconds: the length of each, at most.
    """

    seconds: float
    windows: int
    window_seconds: float


class _Seen:
    """What the windows showed."""

    def __init__(self, go_on: "t.Callable[[], None]") -> None:
        self.go_on = go_on
        self.of_cores: t.Dict[t.Tuple[int, ...], t.List[shared.Shares]] = {}
        self.spent = shared.Spent()
        self.seconds = 0.0
        self.taken = self.cut = self.switches = 0
        # How long nothing was watched, and how long several threads can have been busy then, by core: shares.
        self.lengths: t.List[float] = []
        self.unwatched: t.Dict[t.Tuple[int, ...], t.List[float]] = {}
        self.changed: t.Set[int] = set()


def take(
    fs: HostFs,
    cores: "t.Iterable[t.Sequence[int]]",
    plan: Plan,
    gain: "Span | None" = None,
    go_on: "t.Callable[[], None]" = lambda: None,
) -> "dict[str, t.Any]":
    """Look at a host.

    Args:
        fs: its files.
        cores: the CPUs of each core.
        plan: how to look.
        gain: the yield of SMT, as for :func:`room.use`.
        go_on: is called every ten seconds and ends the look by an exception.

    Returns:
        dict: ``method`` (``switches`` or ``counters``), ``reason`` (why not the switches, or None), ``seconds``,
        ``windows``, ``watched_seconds``, ``cut`` (windows that ended early), ``switches_a_second``,
        ``busy_ratio`` and ``shared_ratio`` (time of cores with at least one and with several busy threads, by second of
        CPU time, each as ``[low, high]``, or None),
        ``use_reason`` (why it is not known how the host is used, or None),
        ``source`` (what true use rests on: ``proc_stat``, or a counter of the processor itself, ``purr`` or
        ``one_thread_active``), ``source_reason`` (why a counter that it has was not used, or None),
        ``cores`` (each ``cpus``, ``usage``, ``busy`` and ``several``, shares of the time as ``[low, high]``), ``use``
        (as :class:`room.Use`), ``units`` and ``pairs`` (seconds an hour).
    """
    online = counters.read(fs)
    parts = [tuple(cpu for cpu in core if cpu in online) for core in cores]
    present = [core for core in parts if core]
    seen, reason = _Seen(go_on), None
    with one_thread.Counting(fs, present) as counting, purr.Counting(fs, present) as resources:
        begun, before = time.monotonic(), counters.read(fs)
        if plan.windows:
            try:
                with tracing.Instance() as instance:
                    _watch(instance, fs, present, plan, seen)
            except tracing.TracingError as error:
                reason = str(error)
        after = _wait(fs, present, begun + plan.seconds, seen)
        seen.changed |= counters.began_anew(before, after)
        usage = counters.shares(before, after)
        seconds = time.monotonic() - begun
    use_reason = _why_not(present, before, seen.changed, usage)
    bounded = [] if use_reason else list(filter(None, (usage_cores.bounded(core, usage) for core in present)))
    is_seen = seen.taken >= MIN_WINDOWS
    sums = None
    if counting.alone:
        narrowed = [
            usage_cores.alone(core, counting.alone[core.cpus]) if core.cpus in counting.alone else core
            for core in bounded
        ]
        sums = room.sums_of(narrowed)
    elif is_seen:
        narrowed = [_narrowed(core, seen) for core in bounded]
        sums = _sums(bounded, seen)
    else:
        narrowed = bounded
    used = room.use(narrowed, gain, sums, resources.used)
    threads = sum(core.threads for core in bounded)
    return {
        "method": SWITCHES if is_seen else COUNTERS,
        "reason": reason,
        "use_reason": use_reason,
        "source": ONE_THREAD if counting.alone else STAT if resources.used is None else PURR,
        "source_reason": counting.reason or resources.reason,
        "seconds": round(seconds, 1),
        "windows": seen.taken,
        "watched_seconds": round(seen.seconds, 3),
        "cut": seen.cut,
        "switches_a_second": round(seen.switches / seen.seconds) if seen.seconds else None,
        "busy_ratio": list(_times(sums.busy, 1 / threads)) if sums and threads else None,
        "shared_ratio": list(_times(sums.several, 1 / threads)) if sums and threads else None,
        "cores": [_as_data(core) for core in narrowed],
        "use": used
        and {key: list(value) if isinstance(value, tuple) else value for key, value in used._asdict().items()},
        **_named(seen),
    }


def _watch(
    instance: tracing.Instance, fs: HostFs, cores: "t.Sequence[tuple[int, ...]]", plan: Plan, seen: _Seen
) -> None:
    """Take the windows, each from a random moment of its part of the time on: work that comes at regular times is
    neither missed nor always hit. One may last into the next part, so that no moment is seen more seldom.
    """
    part = plan.seconds / plan.windows
    length = min(plan.window_seconds, part / 2)
    begun = time.monotonic()
    for number in range(plan.windows):
        if time.monotonic() > begun + plan.seconds:
            # Reading them took longer than there is between two.
            return
        before = _wait(fs, cores, begun + part * number + random.uniform(0, part), seen)
        window = instance.window(length)
        after = counters.read(fs)
        seen.changed |= counters.began_anew(before, after)
        usage = counters.shares(before, after)
        count = sum(map(len, window.switches.values()))
        seconds = (window.end - window.begin) * shared.NANO
        unit_of = units.Units(fs, window, cores)
        for core in cores:
            shares = shared.of_core(window, core, usage, unit_of, seen.spent)
            if shares is not None:
                seen.of_cores.setdefault(core, []).append(shares)
        seen.taken += 1
        seen.cut += window.is_cut
        seen.seconds += seconds
        seen.switches += count
        if window.is_cut or count > MAX_SWITCHES:
            fits = 0.8 if count <= MAX_SWITCHES else MAX_SWITCHES / count
            length = max(MIN_WINDOW_SECONDS, min(length, seconds) * fits)


def _wait(fs: HostFs, cores: "t.Sequence[tuple[int, ...]]", until: float, seen: _Seen) -> "dict[int, counters.Ticks]":
    """Wait until a moment, and return the counters of then; what they leave possible since now is added to ``seen``."""
    since, before = time.monotonic(), counters.read(fs)
    begun, first = since, before
    while since < until:
        seen.go_on()
        time.sleep(min(READ_SECONDS, until - since))
        since, now = time.monotonic(), counters.read(fs)
        seen.changed |= counters.began_anew(before, now)
        before = now
    usage = counters.shares(first, before)
    if usage:
        seen.lengths.append(since - begun)
        for core in cores:
            bounds = usage_cores.bounded(core, usage)
            seen.unwatched.setdefault(core, []).append(0.0 if bounds is None else bounds.several.high)
    return before


def _bursts(core: "tuple[int, ...]", seen: _Seen) -> float:
    """Return the share of the time with several busy threads that windows can have missed: work that comes once in
    minutes is in no window, and in the usages between two.

    What these allow beyond their median may all have been shared, where it is far from it.
    """
    shares = seen.unwatched.get(core, [])
    if not shares:
        return 0.0
    usual = statistics.median(shares)
    # The deviation of a normal variable from its median.
    deviation = statistics.median([abs(share - usual) for share in shares]) / distributions.normal_quantile(0.25)
    least = usual + FAR * deviation + LEAST_BURST
    missed = sum(
        length * (share - usual) / (1 - usual)
        for length, share in zip(seen.lengths, shares)
        if share > least and usual < 1
    )
    return missed / (sum(seen.lengths) + seen.seconds)


def _narrowed(core: Core, seen: _Seen) -> Core:
    """Return a core whose time with several busy threads is that of the windows, for its usage over the whole time."""
    windows = seen.of_cores.get(core.cpus, [])
    ratio = _ratio([(window.several, window.threads) for window in windows])
    if ratio is None:
        return core
    several = _times(ratio, core.threads)
    return usage_cores.seen(core, Span(several.low, several.high + _bursts(core.cpus, seen)))


def _sums(cores: "t.Sequence[Core]", seen: _Seen) -> "room.Sums | None":
    """Return the times of all cores together, those of the windows for the usage over the whole time."""
    by_window = list(zip(*(seen.of_cores[core.cpus] for core in cores if core.cpus in seen.of_cores)))
    threads = [sum(core.threads for core in row) for row in by_window]
    busy = _ratio(list(zip([sum(core.busy for core in row) for row in by_window], threads)))
    several = _ratio(list(zip([sum(core.several for core in row) for row in by_window], threads)))
    if busy is None or several is None:
        return None
    whole = sum(core.threads for core in cores)
    busy, several = _times(busy, whole), _times(several, whole)
    missed = [(_bursts(core.cpus, seen), len(core.cpus)) for core in cores]
    # The same work in a burst of several threads keeps fewer cores busy.
    fewer = sum(share * (number - 1) for share, number in missed)
    more = sum(share for share, _number in missed)
    return room.Sums(Span(max(0.0, busy.low - fewer), busy.high), Span(several.low, several.high + more))


def _times(span: Span, factor: float) -> Span:
    return Span(span.low * factor, span.high * factor)


def _ratio(pairs: "t.Sequence[tuple[float, float]]") -> "Span | None":
    """Return the interval of a ratio of two sums over random windows (Cochran, Sampling Techniques, section 6.3).

    Args:
        pairs: (part, whole) of each window.
    """
    whole = sum(pair[1] for pair in pairs)
    if len(pairs) < MIN_WINDOWS or whole <= 0:
        return None
    ratio = sum(pair[0] for pair in pairs) / whole
    scatter = statistics.stdev([part - ratio * of for part, of in pairs])
    half = distributions.student_quantile(1 - CONFIDENCE, len(pairs) - 1) * scatter * math.sqrt(len(pairs)) / whole
    return Span(max(0.0, ratio - half), min(1.0, ratio + half))


def _why_not(
    cores: "t.Sequence[tuple[int, ...]]",
    before: "t.Mapping[int, counters.Ticks]",
    changed: "t.Collection[int]",
    usage: "t.Mapping[int, float]",
) -> "str | None":
    """Return why it is not known how a host was used, None where it is: what the counters lack is not left out."""
    if not before:
        return "it has no /proc/stat"
    if not cores:
        return "it does not show which CPUs share a core"
    if changed:
        return f"CPUs {cpulist.render(changed)} went offline or came online while it was looked at: look again"
    placed = {cpu for core in cores for cpu in core}
    if set(before) - placed:
        return f"it does not show to which cores CPUs {cpulist.render(set(before) - placed)} belong"
    missing = placed - set(usage)
    return f"no time of CPUs {cpulist.render(missing)} was counted: look for longer" if missing else None


def _as_data(core: Core) -> "dict[str, t.Any]":
    return {
        "cpus": list(core.cpus),
        "usage": core.threads / len(core.cpus),
        "busy": list(core.busy),
        "several": list(core.several),
    }


def _named(seen: _Seen) -> "dict[str, t.Any]":
    """Return the units that ran most, and the pairs that shared cores most: seconds of an hour of such work."""
    if not seen.seconds:
        return {"units": [], "pairs": []}
    hour = HOUR / seen.seconds
    spent = seen.spent
    by_time = sorted(spent.ran, key=lambda unit: -spent.ran[unit])[:MAX_NAMED]
    by_pair = sorted(spent.pairs, key=lambda pair: -spent.pairs[pair])[:MAX_NAMED]
    return {
        "units": [
            {
                "unit": unit,
                "ran": spent.ran[unit] * hour,
                "beside": spent.beside[unit] * hour,
                "apart": spent.apart[unit] * hour,
            }
            for unit in by_time
        ],
        "pairs": [{"units": list(pair), "seconds": spent.pairs[pair] * hour} for pair in by_pair],
    }
