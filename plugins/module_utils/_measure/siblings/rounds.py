# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe: it measures which CPUs share a core, for guests,
whose hypervisor may present another topology than the hardware's.

Testing a different pair on all CPUs in each round is not possible: the sibling of each CPU works in every round,
whichever CPU it is paired with, so all rounds look alike. Therefore a random half of the CPUs works while the other
half sleeps, and then the other way round. Each round yields data on each of the N * (N - 1) / 2 pairs, so the number of
rounds grows only with the logarithm of N. inference.py evaluates the rounds, docs/probe.md says how many are needed.
"""

import itertools
import math
import os
import random
import time
import typing as t

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._host.compat.typing_forms import TypedDict
from ansible_collections.threadwise.smt.plugins.module_utils._know.topology.topology import Topology
from ansible_collections.threadwise.smt.plugins.module_utils._measure.siblings.inference import (
    ALPHA,
    MAX_PARTNERS,
    SHARES,
    PairedRounds,
    PairTests,
    critical_value,
    groups,
)
from ansible_collections.threadwise.smt.plugins.module_utils._measure.siblings.workers import (
    Machine,
    ProbeError,
    Workers,
)

MODES = ("auto", "always", "never")
DEFAULT_SECONDS = 30.0
# What the host's lock is held for.
PURPOSE = "smt_probe"
MAX_CPUS = 256
"""Above this number the evaluation takes longer than the rounds, and the workers need more file
descriptors than a process may open.
"""

_ROUND_SECONDS = 0.05
# Fewer paired rounds than the square of the critical value cannot reach it, however clear the data are. Each further
# evaluation waits for half as many more.
_FIRST_LOOK = 1.1
_NEXT_LOOK = 1.5
# Up to this number all pairs are reported, above it only those that may share a core.
_MAX_PAIRS_REPORTED = 120


class PairRatio(TypedDict):
    """Pace of two CPUs in the same round, relative to their pace in different rounds.

    Attributes:
        pair: CPU list.
        result: ``shares``, ``apart``, or None when it is unclear.
        ratio: the estimate.
        low: lower confidence bound.
        high: upper confidence bound.
    """

    pair: str
    result: "str | None"
    ratio: "float | None"
    low: "float | None"
    high: "float | None"


class Measurement(TypedDict):
    """Result of the probe.

    Attributes:
        cpus: CPU list of the measured CPUs.
        pairs: CPU lists, one per core that two or more of the CPUs share.
        singles: CPU list of the CPUs that share a core with none of the others.
        unclear: CPU list of the CPUs whose core is unclear.
        ratios: all pairs, or if there are many only those that may share a core.
        rounds: number of rounds.
        seconds: duration.
        confidence: probability that no claim is wrong.
    """

    cpus: str
    pairs: "list[str]"
    singles: str
    unclear: str
    ratios: "list[PairRatio]"
    rounds: int
    seconds: float
    confidence: float


def wanted(mode: str, facts: "t.Mapping[str, t.Any]") -> bool:
    """Return whether the probe should run on a host.

    Args:
        mode: ``always``, ``never``, or ``auto``: if a hypervisor presents a topology without SMT, or none.
        facts: ``ansible_facts['smt']``.
    """
    if mode != "auto":
        return mode == "always"
    several = len(cpulist.parse(facts["cpus"]["online"])) > 1
    return several and facts["hypervisor"] is not None and (facts["threads_per_core"]["max"] or 1) == 1


def measurable(online: "t.Iterable[int]") -> "list[int]":
    """Return the CPUs that this process can measure, sorted.

    Args:
        online: the online CPUs.

    Raises:
        ProbeError: there are too few or too many of them.
    """
    cpus = sorted(set(online) & os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise ProbeError(
            f"there is nothing to compare: of the online CPUs {cpulist.render(online)} this process may use"
            f" {cpulist.render(cpus) or 'none'}"
        )
    if len(cpus) > MAX_CPUS:
        raise ProbeError(
            f"{len(cpus)} CPUs are more than the {MAX_CPUS} that can be measured at once: restrict the probe to fewer"
            " CPUs with taskset"
        )
    return cpus


def run(
    cpus: "t.Iterable[int]",
    seconds_budget: float = DEFAULT_SECONDS,
    workers: "t.Callable[[list[int]], t.ContextManager[Machine]]" = Workers,
    chance: "random.Random | None" = None,
    clock: "t.Callable[[], float]" = time.monotonic,
) -> Measurement:
    """Measure which of these CPUs share a core. Nothing is changed, and no process is left behind.

    Args:
        cpus: two or more CPUs, each online and allowed to this process (`measurable`).
        seconds_budget: time limit in seconds; what is not clear by then is reported as unclear.
        workers: creates the workers for a list of CPUs.
        chance: source of the random halves.
        clock: returns the time in seconds.

    Raises:
        ProbeError: a process could not be pinned, or was lost.
    """
    cpus = sorted(cpus)
    chance = chance or random.Random()
    begun = clock()
    samples: list[PairedRounds] = []
    looks, rounds = 1, 0
    next_look = math.ceil(_FIRST_LOOK * critical_value(len(cpus), 1) ** 2)
    with workers(cpus) as machine:
        while True:
            sample, count = _paired_rounds(machine, cpus, chance)
            samples.append(sample)
            rounds += count
            spent = clock() - begun >= seconds_budget
            if len(samples) < next_look and not spent:
                continue
            tests = PairTests(cpus, samples, looks)
            statuses = tests.statuses()
            cores, unclear = groups(cpus, statuses)
            if spent or not unclear:
                break
            looks += 1
            next_look = math.ceil(next_look * _NEXT_LOOK)
        machine.check_pins()
    return {
        "cpus": cpulist.render(cpus),
        "pairs": [cpulist.render(core) for core in cores if len(core) > 1],
        "singles": cpulist.render(core[0] for core in cores if len(core) == 1),
        "unclear": cpulist.render(unclear),
        "ratios": _ratios(tests, cpus, statuses),
        "rounds": rounds,
        "seconds": round(clock() - begun, 1),
        "confidence": 1 - ALPHA,
    }


def compare_with_kernel(result: Measurement, topology: Topology) -> "bool | None":
    """Return whether the kernel's topology agrees with the measurement.

    Args:
        result: what `run` returned.
        topology: the kernel's topology.

    Returns:
        False if at least one core differs; None if none differs, but some CPUs are unclear or unknown to the kernel;
        else True.
    """
    cpus = set(cpulist.parse(result["cpus"]))
    kernel_core = {cpu: cpus.intersection(core) for core in topology.cores for cpu in core}
    measured = [cpulist.parse(pair) for pair in result["pairs"]] + [(cpu,) for cpu in cpulist.parse(result["singles"])]
    if any(cpu in kernel_core and kernel_core[cpu] != set(core) for core in measured for cpu in core):
        return False
    return True if not result["unclear"] and cpus.issubset(kernel_core) else None


def _paired_rounds(machine: Machine, cpus: "list[int]", chance: random.Random) -> "tuple[PairedRounds, int]":
    """Run rounds in which each CPU works once.

    Returns them and their number, which is 1 if all CPUs were drawn for the same round, else 2.
    """
    first = _half(cpus, chance)
    halves = [half for half in (first, set(cpus) - first) if half]
    slowness: dict[int, t.Optional[float]] = {}
    for half in halves:
        slowness.update(machine.measure(half, _ROUND_SECONDS))
    return PairedRounds({cpu: int(cpu in first) for cpu in cpus}, slowness), len(halves)


def _half(cpus: "list[int]", chance: random.Random) -> "set[int]":
    # If all CPUs may be on one core, the number of active CPUs must vary between rounds: otherwise each CPU always has
    # the same number of partners. If they cannot be, the number stays constant, so that effects of the number alone
    # (clock rate, power, a busy hypervisor) are the same in all rounds.
    if len(cpus) <= MAX_PARTNERS + 1:
        return {cpu for cpu in cpus if chance.random() < 0.5}
    return set(chance.sample(cpus, (len(cpus) + chance.randrange(2)) // 2))


def _ratios(tests: PairTests, cpus: "list[int]", statuses: "t.Mapping[tuple[int, int], str]") -> "list[PairRatio]":
    pairs = list(itertools.combinations(cpus, 2))
    reported: list[PairRatio] = []
    for pair in pairs:
        if len(pairs) <= _MAX_PAIRS_REPORTED or tests.is_candidate(*pair):
            ratio, low, high = tests.ratio(*pair)
            reported.append(
                {"pair": cpulist.render(pair), "result": statuses.get(pair), "ratio": ratio, "low": low, "high": high}
            )
    return sorted(reported, key=lambda pair: (pair["result"] != SHARES, pair["ratio"] or 1.0))
