# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much of what a machine can do it does, and how much room is left for more work of the kind that it has.

CPU usage counts a busy thread as one, whether it has its core for itself or shares it. A core with one busy thread does
1 (the unit of work here), with all its threads busy it does y, the yield of SMT. With t threads and N of them busy the
work per time is taken to grow with N and ever less so, from 1 at N = 1 to y at N = t: between
1 + (y - 1) (N - 1) / (t - 1) and y. With two threads both are the same.
"""

import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.usage.cores import Core, Span

# What second threads are commonly said to give. Used where nobody has measured it, and named as a guess.
GUESS = Span(1.0, 1.3)
# Beyond these no yield has been reported: threads at worst take half of the work away, and each adds at most as much as
# the first one does.
LEAST_YIELD = 0.5
# A yield of more or less than this is no yield.
LIMITS = Span(0.25, 8.0)


class Use(t.NamedTuple):
    """The use of a machine.

    Attributes:
        usage: share of its CPUs' time in which they were busy.
        busy: share of its cores' time in which at least one thread was busy.
        several: share of it in which at least two were.
        work: share that it does of the work it can do.
        room: how much more work it could do, as a share of what it does; None where it did none.
        by_usage: what its usage says of that.
        bound: the share of its work by which SMT off could change it at most under the load that was seen.
        gain: the yield that counted, as it was measured or guessed.
    """

    usage: float
    busy: Span
    several: Span
    work: Span
    room: "Span | None"
    by_usage: "float | None"
    bound: float
    gain: Span


class Sums(t.NamedTuple):
    """Times of all cores together, where they are known better than from each of them, as in :class:`Core`."""

    busy: Span
    several: Span


def use(
    cores: "t.Sequence[Core]", gain: "Span | None" = None, sums: "Sums | None" = None, own: "float | None" = None
) -> "Use | None":
    """Return the use of a machine, or None without cores.

    Args:
        cores: all cores with an online CPU.
        gain: the work of a core with all threads busy, in that of one thread alone, with its interval; None where
            nobody has measured it.
        sums: of the windows.
        own: the share that the machine does of the work it can do, as its processor counts it. It takes the place of a
            guess; where second threads were measured, it counts as far as that allows it.
    """
    if not cores:
        return None
    most_threads = max(len(core.cpus) for core in cores)
    threads = sum(core.threads for core in cores)
    known = sums_of(cores)
    busy, several = known if sums is None else (span.within(bounds) for span, bounds in zip(sums, known))
    done = GUESS if gain is None else gain
    # With more than one thread each share falls with the yield: what one thread does alone is less of what the core
    # could do.
    fewest = (threads - busy.low) / max(1, most_threads - 1)
    most = threads - busy.high if most_threads <= 2 else several.high
    low = _done(threads, busy.low, fewest, done.high) / _can(cores, done.high)
    high = _done(threads, busy.high, most, done.low) / _can(cores, done.low)
    low, high = (min(1.0, max(0.0, end)) for end in (low, high))
    work = Span(min(low, high), max(low, high))
    if own is not None:
        work = Span(own, own) if gain is None else Span(own, own).within(work)
    usage = threads / sum(len(core.cpus) for core in cores)
    left = None if work.low <= 0 else Span(1 / work.high - 1, 1 / work.low - 1)
    return Use(
        usage,
        Span(busy.low / len(cores), busy.high / len(cores)),
        Span(several.low / len(cores), several.high / len(cores)),
        work,
        left,
        None if usage <= 0 else 1 / usage - 1,
        max(_changed(busy, several, factor) for factor in gain or (LEAST_YIELD, max(2.0, most_threads))),
        done,
    )


def _changed(busy: Span, several: Span, gain: float) -> float:
    """Return the share of the work that changes at most where a core does 1 in the time in which several of its
    threads did y: s |y - 1| of b - s + s y, with the time s of several threads and b of at least one.
    """
    if several.high <= 0:
        return 0.0
    alone = max(0.0, busy.low - several.high)
    return several.high * abs(gain - 1) / (alone + several.high * gain)


def sums_of(cores: "t.Sequence[Core]") -> Sums:
    """Return the times of all cores together, as far as each of them is known."""
    return Sums(_sum(core.busy for core in cores), _sum(core.several for core in cores))


def _sum(spans: "t.Iterable[Span]") -> Span:
    """Return the sum of spans, each of which may be anywhere."""
    each = list(spans)
    return Span(sum(span.low for span in each), sum(span.high for span in each))


def _done(threads: float, busy: float, shared: float, gain: float) -> float:
    """Return the work of cores that were busy for a time, and shared by several threads for another."""
    return min(threads, busy + (gain - 1) * shared)


def _can(cores: "t.Sequence[Core]", gain: float) -> float:
    """Return the work that all cores can do."""
    return sum(gain if len(core.cpus) > 1 else 1.0 for core in cores)
