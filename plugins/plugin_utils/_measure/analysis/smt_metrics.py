# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""SMT metrics computed from rates, times and counters.

docs/measures.md gives each formula with its source. Rates are work per time in any one unit; shares are 1 for 100 %.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._measure.workloads import metrics as workload_metrics
from ansible_collections.threadwise.smt.plugins.plugin_utils._measure.judgement import Ratio
from ansible_collections.threadwise.smt.plugins.plugin_utils._page import change

# Two workers on one CPU have half of it each: what costs less than this is a shared core, what costs more is a shared
# CPU.
COST_OF_ONE_CPU = 0.45


class SmtMetricsError(ValueError):
    """A metric cannot be computed from these values. The message names the value."""


def cost_of_sharing(shared: float, separate: float) -> float:
    """Return the share of its rate that a worker loses to a co-runner on the same core: 1 - shared / separate.

    Args:
        shared: rate with the two workers on siblings.
        separate: rate of the same two workers on two cores.

    Raises:
        SmtMetricsError: a rate is not above zero.
    """
    return 1 - _positive("shared", shared) / _positive("separate", separate)


def smt_yield(all_threads: float, one_per_core: float) -> float:
    """Return the gain from second threads: rate of all threads / rate of one worker per core; 1 when they add nothing.

    Args:
        all_threads: rate with a worker on every thread.
        one_per_core: rate with one worker per core.

    Raises:
        SmtMetricsError: a rate is not above zero.
    """
    return _positive("all_threads", all_threads) / _positive("one_per_core", one_per_core)


def gain_of_switching_off(smt_on: float, smt_off: float) -> float:
    """Return the share by which the rate rises (below zero: falls) when SMT is switched off: smt_off / smt_on - 1.

    Args:
        smt_on: rate of the whole machine with SMT on.
        smt_off: rate of the whole machine with SMT off.

    Raises:
        SmtMetricsError: a rate is not above zero.
    """
    return _positive("smt_off", smt_off) / _positive("smt_on", smt_on) - 1


SHARING, ALONE = "cost_of_sharing", "cost_of_sharing_alone"
# Effect of a comparison -> (name of its metric, the metric from candidate / baseline).
EFFECTS: dict[str, tuple[str, t.Callable[[float], float]]] = {
    SHARING: ("cost of sharing", lambda ratio: cost_of_sharing(ratio, 1)),
    # Two workers against one: the ratio of the summed rates is twice that of a single worker.
    ALONE: ("cost of sharing", lambda ratio: cost_of_sharing(ratio, 2)),
    "core_yield": ("yield of a core", lambda ratio: smt_yield(ratio, 1)),
    "cost_of_one_cpu": ("cost of sharing one CPU", lambda ratio: cost_of_sharing(ratio, 1)),
    "smt_yield": ("SMT yield", lambda ratio: smt_yield(ratio, 1)),
    "smt_off": ("gain of switching off", lambda ratio: gain_of_switching_off(1, ratio)),
}


@dataclasses.dataclass(frozen=True)
class SmtMetric:
    """An SMT metric of a comparison.

    Attributes:
        name: of the metric.
        value: of the metric.
        low: the lower end of its interval; None where the comparison has none.
        high: the upper end.
        change: that of one worker, in the workload's own metric.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    change: change.Change


def of_comparison(effect: str, aggregate: str, found: Ratio) -> SmtMetric:
    """Convert a comparison's ratio and interval into the metric of its effect.

    Args:
        effect: a key of :data:`EFFECTS`.
        aggregate: how the values of the comparison's workers become one.
        found: the comparison.
    """
    if effect == ALONE and aggregate == workload_metrics.MEAN_PER_JOB:
        # What a job takes is that of one worker on both sides.
        effect = SHARING
    name, metric = EFFECTS[effect]
    ends = sorted(metric(end) for end in (found.ci_low, found.ci_high) if end is not None)
    low, high = (ends[0], ends[1]) if len(ends) == 2 else (None, None)
    workers = 2 if effect == ALONE else 1
    of_one = [end and end / workers for end in (found.ci_low, found.ci_high)]
    changed = change.Change.of_ratios(found.better, found.ratio / workers, *of_one)
    return SmtMetric(name, metric(found.ratio), low, high, changed)


def what_two_share(paired: float, alone: float, margin: float = 0.05) -> str:
    """Classify what two CPUs share by the loss of a worker on one of them to a worker on the other.

    A hypervisor may show a wrong topology; the loss shows the real one.

    Args:
        paired: rate of a worker while the other one runs.
        alone: rate of a worker alone.
        margin: a loss up to this share counts as none.

    Returns:
        ``nothing``, ``core`` or ``cpu``.

    Raises:
        SmtMetricsError: a rate is not above zero.
    """
    cost = cost_of_sharing(paired, alone)
    if cost <= margin:
        return "nothing"
    return "core" if cost < COST_OF_ONE_CPU else "cpu"


def most_clients(responses: t.Mapping[float, float], limit: float) -> float | None:
    """Return the largest number of clients that is served within a limit, as all smaller measured ones are.

    Args:
        responses: number of clients -> response time (median, p99, ...), in the limit's unit; infinity where the load
            was not sustained.
        limit: the longest response time allowed.

    Returns:
        The number of clients, or None where the smallest one exceeds the limit.

    Raises:
        SmtMetricsError: there is no response time, or one is not above zero.
    """
    if not responses:
        raise SmtMetricsError("the number of clients needs at least one response time")
    most = None
    for clients in sorted(responses):
        response = responses[clients]
        if response == math.inf or _positive(f"the response time at {clients} clients", response) > limit:
            break
        most = clients
    return most


def achievement_rate(performance: float, cpu_usage: float) -> float:
    """Return performance / CPU usage, the rate that usage predicts for a full CPU; with SMT it falls with load.

    Args:
        performance: rate (work per time).
        cpu_usage: summed usage of the logical CPUs, 1 for one busy CPU.

    Raises:
        SmtMetricsError: a value is not above zero.
    """
    return _positive("performance", performance) / _positive("cpu_usage", cpu_usage)


def headroom(performance: float, cpu_usage: float, capacity: float) -> dict[str, float]:
    """Return the headroom: as CPU usage suggests, and as measured.

    Args:
        performance: present rate.
        cpu_usage: used share of all logical CPUs' time, above 0 up to 1.
        capacity: rate measured with all threads busy.

    Returns:
        ``{by_usage, real}`` in the rate's unit: performance x (1 / cpu_usage - 1), and capacity - performance.

    Raises:
        SmtMetricsError: a value is out of range.
    """
    if _positive("cpu_usage", cpu_usage) > 1:
        raise SmtMetricsError(f"cpu_usage is {cpu_usage}: a share of all CPUs' time is at most 1")
    return {
        "by_usage": _positive("performance", performance) * (1 / cpu_usage - 1),
        "real": _positive("capacity", capacity) - performance,
    }


def cpi(cycles: float, instructions: float) -> float:
    """Return the cycles per instruction of one thread; the inverse is IPC.

    Args:
        cycles: cycles of the thread.
        instructions: retired instructions of the thread.

    Raises:
        SmtMetricsError: a count is not above zero.
    """
    return _positive("cycles", cycles) / _positive("instructions", instructions)


def core_cpi(core_cycles: float, instructions: t.Sequence[float]) -> float:
    """Return the cycles per instruction of a core: cycles in which any of its threads ran / instructions of all its
    threads.

    Args:
        core_cycles: cycles of the core, not the sum over its threads.
        instructions: retired instructions of each thread.

    Raises:
        SmtMetricsError: a count is not above zero.
    """
    return cpi(core_cycles, math.fsum(instructions))


def _positive(name: str, value: t.Any) -> float:
    """Return the value as a float; anything but a finite number above zero is refused."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool) or not 0 < float(value) < math.inf:
        raise SmtMetricsError(f"{name} is {str(value)[:60]}: it must be a number above zero")
    return float(value)
