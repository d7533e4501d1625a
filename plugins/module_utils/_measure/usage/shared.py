# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who ran on the threads of a core at the same time, in one window of the scheduler's switches."""

import collections
import itertools
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.tracing import Window

IDLE = 0
# What ran on a CPU without a switch, where nothing else named it.
UNNAMED = -1
# A CPU without a switch was busy if it was so for more than this share of the time, by its counters.
BUSY = 0.5
NANO = 1e-9

Unit = t.Optional[str]


class Shares(t.NamedTuple):
    """The time of a core in a window, as shares of it.

    Attributes:
        threads: the sum of the times in which each of its threads was busy.
        busy: with at least one busy thread.
        several: with at least two.
    """

    threads: float
    busy: float
    several: float


class Spent:
    """The seconds of CPU time of units, summed over cores and windows.

    Attributes:
        ran: by unit.
        beside: of it, beside a busy sibling.
        apart: of that, beside a sibling that ran another unit.
        pairs: seconds in which two units shared a core, by their names in order.
    """

    def __init__(self) -> None:
        self.ran: t.Dict[Unit, float] = collections.defaultdict(float)
        self.beside: t.Dict[Unit, float] = collections.defaultdict(float)
        self.apart: t.Dict[Unit, float] = collections.defaultdict(float)
        self.pairs: t.Dict[t.Tuple[Unit, Unit], float] = collections.defaultdict(float)


def tasks(window: Window, cpus: "t.Iterable[int]") -> "collections.Counter[int]":
    """Return the nanoseconds that each task ran on some CPUs, as far as switches name it: by pid."""
    counts: t.Counter[int] = collections.Counter()
    for cpu in cpus:
        # Whether a CPU without a switch was busy does not matter for whose its task is.
        for begin, end, pid in _stretches(window, cpu, 1.0):
            if pid > IDLE:
                counts[pid] += end - begin
    return counts


def of_core(
    window: Window,
    cpus: "t.Sequence[int]",
    usage: "t.Mapping[int, float]",
    unit_of: "t.Callable[[int], Unit]",
    spent: Spent,
) -> "Shares | None":
    """Return how long a core was busy in a window, and add who ran on it to ``spent``.

    Args:
        window: with the switches of these CPUs.
        cpus: the online CPUs of the core.
        usage: share of the window in which each CPU was busy, by its counters, for one without a switch.
        unit_of: the unit of a pid that ran.
        spent: is added to.

    Returns:
        None for a window without any time.
    """
    whole = window.end - window.begin
    if whole <= 0:
        return None
    # When which CPU goes to which task.
    changes = sorted(
        (begin, cpu, pid) for cpu in cpus for begin, _end, pid in _stretches(window, cpu, usage.get(cpu, 0.0))
    )
    running: dict[int, int] = {}
    threads = busy = several = 0
    for (at, cpu, pid), following in itertools.zip_longest(changes, changes[1:]):
        running[cpu] = pid
        until = following[0] if following else window.end
        length = until - at
        if length <= 0:
            continue
        on = [task for task in running.values() if task != IDLE]
        if on:
            threads += length * len(on)
            busy += length
            several += length if len(on) > 1 else 0
            _book([unit_of(task) for task in on], length * NANO, spent)
    return Shares(threads / whole, busy / whole, several / whole)


def _book(units: "list[Unit]", seconds: float, spent: Spent) -> None:
    for place, unit in enumerate(units):
        spent.ran[unit] += seconds
        if len(units) > 1:
            spent.beside[unit] += seconds
            if any(other != unit for other in units[:place] + units[place + 1 :]):
                spent.apart[unit] += seconds
    if len(units) > 1:
        for first, second in sorted({tuple(sorted((a or "", b or ""))) for a, b in itertools.combinations(units, 2)}):
            # Of two tasks without a name it is not known whether they are of one unit.
            if first != second or not first:
                spent.pairs[(first or None, second or None)] += seconds


def _stretches(window: Window, cpu: int, usage: float) -> "t.Iterator[tuple[int, int, int]]":
    """Yield (begin, end, pid) of what ran on a CPU, from the begin of a window to its end."""
    switches = window.switches.get(cpu) or []
    if not switches:
        yield window.begin, window.end, window.running.get(cpu, UNNAMED) if usage > BUSY else IDLE
        return
    begin, pid = window.begin, switches[0].before
    for switch in switches:
        at = min(max(switch.at, window.begin), window.end)
        if at > begin:
            yield begin, at, pid
        begin, pid = at, switch.after
    if window.end > begin:
        yield begin, window.end, pid
