# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long a core was busy, and how long with several of its threads, as far as the usage of its CPUs tells.

Usages alone do not say when siblings were busy at the same time: 50 % and 50 % can be one after the other or together.
"""

import typing as t


class Span(t.NamedTuple):
    """A number that is not known exactly: its lowest and its highest possible value."""

    low: float
    high: float

    def within(self, other: "Span") -> "Span":
        """Return the part of it that another one leaves; its nearest end where they do not meet."""
        low, high = (min(max(end, other.low), other.high) for end in self)
        return Span(low, high)


class Core(t.NamedTuple):
    """The time of a core, each as a share of all time.

    Attributes:
        cpus: its online CPUs.
        threads: the sum of the times in which each of them was busy, 0 to their number.
        busy: the time in which at least one was busy.
        several: the time in which at least two were.
    """

    cpus: "tuple[int, ...]"
    threads: float
    busy: Span
    several: Span


def bounded(cpus: "t.Sequence[int]", usage: "t.Mapping[int, float]") -> "Core | None":
    """Return what the usages of a core's CPUs allow, or None where one is not known.

    With N busy threads of t: N <= 1 + (t - 1) * [N >= 2] and N >= 2 * [N >= 2], so the mean of N bounds the time in
    which N >= 2, at most all of it. For two threads with the usages a and b these are max(0, a + b - 1) and min(a, b).

    Args:
        cpus: the online CPUs of the core.
        usage: share of the time (0..1) in which each CPU was busy.
    """
    if not cpus or any(cpu not in usage for cpu in cpus):
        return None
    each = [usage[cpu] for cpu in cpus]
    total, most = sum(each), max(each)
    busy = Span(most, min(1.0, total))
    if len(each) == 1:
        return Core(tuple(cpus), total, busy, Span(0.0, 0.0))
    low = max(0.0, (total - 1) / (len(each) - 1))
    return Core(tuple(cpus), total, busy, Span(low, max(low, min(1.0, total / 2, total - most))))


def alone(core: Core, share: float) -> Core:
    """Return a core of two threads of whose busy time one ran alone for a share, as far as its usages allow it: the sum
    of their times is that of one busy thread, and once more that of two.
    """
    several = core.threads * (1 - share) / (2 - share)
    return seen(core, Span(several, several))


def seen(core: Core, several: Span) -> Core:
    """Return a core whose time with several busy threads was seen, as far as its usages allow it.

    With two threads the time in which at least one was busy follows: busy = a + b - several. Counters err by some
    percent, because most kernels count ticks: where they do not allow what was seen, the limits reach from the one to
    the other.

    Args:
        core: from :func:`bounded`, of the same time.
        several: the time that was seen, with its interval.
    """
    near = several.within(core.several)
    if several.high < core.several.low or several.low > core.several.high:
        near = Span(min(several.low, near.low), min(1.0, max(several.high, near.high)))
    if len(core.cpus) != 2:
        return core._replace(several=near)
    return core._replace(several=near, busy=Span(core.threads - near.high, core.threads - near.low).within(core.busy))
