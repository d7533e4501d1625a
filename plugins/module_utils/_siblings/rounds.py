# Copyright: threadwise.smt contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds which CPUs share a core by measuring, for hosts whose topology may not be the truth: guests.

Pairs cannot be tried side by side on all CPUs at once: then the sibling of each CPU works in every round, whomever the CPU is paired with, and no round
differs from another. So a random half works while the other half sleeps, and then the other way round. Each round tells something about each
of the N * (N - 1) / 2 pairs, so that the number of rounds grows with the logarithm of N only. probe_evidence.py says what is made of the
rounds, docs/probe.md how many they are.
"""

from __future__ import annotations

import itertools
import math
import os
import random
import time

from ansible_collections.threadwise.smt.plugins.module_utils._host import cpulist
from ansible_collections.threadwise.smt.plugins.module_utils._siblings.inference import ALPHA, MOST_PARTNERS, SHARES, Evidence, Twin, critical_value, groups
from ansible_collections.threadwise.smt.plugins.module_utils._siblings.workers import ProbeError, Workers

MODES = ("auto", "always", "never")
DEFAULT_SECONDS = 30.0
MOST_CPUS = 256
"""Above it the evidence takes longer than the rounds, and workers take more descriptors than a process has."""

_ROUND_SECONDS = 0.05
# Fewer twins than the square of the critical value cannot reach it, however clear they are; then half as many more each time.
_FIRST_LOOK = 1.1
_NEXT_LOOK = 1.5
# Up to so many pairs are told each, with more only those that might share.
_PAIRS_TOLD = 120


def wanted(mode, facts):
    """Whether the probe should run on a host.

    Args:
        mode: ``always``, ``never``, or ``auto``: where a hypervisor shows a topology without SMT, or none.
        facts: ``ansible_facts['smt']``.

    Returns:
        bool.
    """
    if mode != "auto":
        return mode == "always"
    several = len(cpulist.parse(facts["cpus"]["online"])) > 1
    return several and facts["hypervisor"] is not None and (facts["threads_per_core"]["max"] or 1) == 1


def measurable(online):
    """The CPUs (list of int) that this process can measure.

    Args:
        online: CPU numbers (iterable of int).

    Raises:
        ProbeError: they are too few or too many.
    """
    cpus = sorted(set(online) & os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise ProbeError(f"there is nothing to compare: of the online CPUs {cpulist.render(online)} this process may use {cpulist.render(cpus) or 'none'}")
    if len(cpus) > MOST_CPUS:
        raise ProbeError(f"{len(cpus)} CPUs are more than the {MOST_CPUS} that can be measured at once: give the probe fewer with taskset")
    return cpus


def run(cpus, seconds_budget=DEFAULT_SECONDS, workers=Workers, chance=None, clock=time.monotonic):
    """Measure which of these CPUs share a core. Nothing is changed, and no process is left.

    Args:
        cpus: two or more CPU numbers, each online and allowed to this process (`measurable`).
        seconds_budget: when the budget is spent, what is not clear is unclear.
        workers: what makes the workers of a list of CPUs (`probe_workers.Workers`).
        chance: `random.Random` that draws who works with whom.
        clock: callable, the seconds (float).

    Returns:
        dict: ``cpus`` (CPU list, what was measured), ``pairs`` (list of CPU lists (str), one a core that two or more of the CPUs share),
            ``singles`` (CPU list of those that share with none), ``unclear`` (CPU list), ``ratios`` (list of {pair, verdict, ratio, low, high}: pace together
            as a share of the pace apart, of all pairs or, where they are many, of those that might share), ``rounds``, ``seconds``, ``confidence``
            (that no claim is wrong).

    Raises:
        ProbeError: a process could not be pinned, or was lost.
    """
    cpus = sorted(cpus)
    chance = chance or random.Random()
    begun = clock()
    twins, looks, rounds = [], 1, 0
    next_look = math.ceil(_FIRST_LOOK * critical_value(len(cpus), 1) ** 2)
    with workers(cpus) as machine:
        while True:
            twin, taken = _twin(machine, cpus, chance)
            twins.append(twin)
            rounds += taken
            spent = clock() - begun >= seconds_budget
            if len(twins) < next_look and not spent:
                continue
            evidence = Evidence(cpus, twins, looks)
            verdicts = evidence.verdicts()
            cores, unclear = groups(cpus, verdicts)
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
        "ratios": _ratios(evidence, cpus, verdicts),
        "rounds": rounds,
        "seconds": round(clock() - begun, 1),
        "confidence": 1 - ALPHA,
    }


def compare_with_kernel(result, topology):
    """Whether the kernel's topology says what was measured.

    Args:
        result: what `run` returned.
        topology: Topology.

    Returns:
        True, False as soon as one core differs, None when no core that is clear differs and others are not clear or not known to the kernel.
    """
    cpus = set(cpulist.parse(result["cpus"]))
    told = {cpu: cpus.intersection(core) for core in topology.cores for cpu in core}
    measured = [cpulist.parse(pair) for pair in result["pairs"]] + [(cpu,) for cpu in cpulist.parse(result["singles"])]
    if any(cpu in told and told[cpu] != set(core) for core in measured for cpu in core):
        return False
    return True if not result["unclear"] and cpus.issubset(told) else None


def _twin(machine, cpus, chance):
    """Two rounds in which each CPU works once: (Twin, number of rounds)."""
    first = _half(cpus, chance)
    halves = [half for half in (first, set(cpus) - first) if half]
    slowness = {}
    for half in halves:
        slowness.update(machine.measure(half, _ROUND_SECONDS))
    return Twin({cpu: int(cpu in first) for cpu in cpus}, slowness), len(halves)


def _half(cpus, chance):
    # Where all CPUs may be one core, their number at work has to differ between rounds: else each always has as many partners. Where they may not, it
    # stays the same, so that what depends on the number alone (clock rate, power, a crowded hypervisor) does not tell the rounds apart.
    if len(cpus) <= MOST_PARTNERS + 1:
        return {cpu for cpu in cpus if chance.random() < 0.5}
    return set(chance.sample(cpus, (len(cpus) + chance.randrange(2)) // 2))


def _ratios(evidence, cpus, verdicts):
    pairs = list(itertools.combinations(cpus, 2))
    told = []
    for pair in pairs:
        if len(pairs) <= _PAIRS_TOLD or evidence.is_candidate(*pair):
            ratio, low, high = evidence.ratio(*pair)
            told.append({"pair": cpulist.render(pair), "verdict": verdicts.get(pair), "ratio": ratio, "low": low, "high": high})
    return sorted(told, key=lambda one: (one["verdict"] != SHARES, one["ratio"] or 1.0))
